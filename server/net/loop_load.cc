#include "server/net/loop_load.h"

#include "server/base/steady_time.h"

namespace normd::net {
namespace {

constexpr absl::Duration kSlowCallback = absl::Milliseconds(5);

}  // namespace

absl::Duration LoopLoad::turn() const {
  const int64_t began_ns = turn_began_ns_.load(std::memory_order_relaxed);
  return began_ns == 0 ? absl::ZeroDuration() : SteadyNow() - absl::FromUnixNanos(began_ns);
}

void LoopLoad::Note(absl::Duration callback) {
  const int64_t ns = absl::ToInt64Nanoseconds(callback);
  busy_ns_.fetch_add(ns, std::memory_order_relaxed);
  if (callback >= kSlowCallback) slow_callbacks_.fetch_add(1, std::memory_order_relaxed);
  int64_t longest = longest_callback_ns_.load(std::memory_order_relaxed);
  while (ns > longest && !longest_callback_ns_.compare_exchange_weak(longest, ns, std::memory_order_relaxed)) {
  }
}

LoopLoad::Stats LoopLoad::Take() {
  return {.longest_callback = absl::Nanoseconds(longest_callback_ns_.exchange(0, std::memory_order_relaxed)),
          .slow_callbacks = slow_callbacks_.load(std::memory_order_relaxed),
          .busy = absl::Nanoseconds(busy_ns_.load(std::memory_order_relaxed))};
}

}  // namespace normd::net
