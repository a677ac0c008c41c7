// Who hears of sessions that have changed.
// In the path: the engine reports each durable change of a session (a step, an update, a reset, a deletion) before it
// answers the caller.
// Threads: Set is called before the first change, and again with null only when no call is running; Report from any
// thread.
#ifndef NORMD_SERVER_ENGINE_CHANGE_LISTENER_H_
#define NORMD_SERVER_ENGINE_CHANGE_LISTENER_H_

#include <atomic>
#include <functional>
#include <string_view>

namespace normd {

// Gets the session's key. Must not block.
using ChangeListener = std::function<void(std::string_view key)>;

class ChangeReports {
 public:
  // Borrows `listener`; null: nobody listens.
  void Set(const ChangeListener* listener) { listener_.store(listener, std::memory_order_release); }
  void Report(std::string_view key) const {
    const ChangeListener* const listener = listener_.load(std::memory_order_acquire);
    if (listener != nullptr) (*listener)(key);
  }

 private:
  std::atomic<const ChangeListener*> listener_{nullptr};
};

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_CHANGE_LISTENER_H_
