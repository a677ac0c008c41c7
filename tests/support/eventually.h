// Waits for what another thread or process does.
#ifndef NORMD_TESTS_SUPPORT_EVENTUALLY_H_
#define NORMD_TESTS_SUPPORT_EVENTUALLY_H_

#include <chrono>
#include <functional>
#include <thread>

namespace normd {

// Waits until `holds`, for 30 s at most. Returns whether it does.
inline bool Eventually(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_EVENTUALLY_H_
