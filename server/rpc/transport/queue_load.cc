#include "server/rpc/transport/queue_load.h"

#include <algorithm>

namespace normd::rpc {
namespace {

constexpr absl::Duration kSlowCallback = absl::Milliseconds(5);

}  // namespace

void QueueLoad::Note(absl::Duration callback) {
  const int64_t ns = absl::ToInt64Nanoseconds(callback);
  busy_ns_.fetch_add(ns, std::memory_order_relaxed);
  if (callback >= kSlowCallback) slow_callbacks_.fetch_add(1, std::memory_order_relaxed);
  int64_t longest = longest_callback_ns_.load(std::memory_order_relaxed);
  while (ns > longest && !longest_callback_ns_.compare_exchange_weak(longest, ns, std::memory_order_relaxed)) {
  }
}

void QueueLoad::TakeInto(QueueStats* stats) {
  ++stats->queues;
  const int64_t longest_ns = longest_callback_ns_.exchange(0, std::memory_order_relaxed);
  stats->longest_callback = std::max(stats->longest_callback, absl::Nanoseconds(longest_ns));
  stats->slow_callbacks += slow_callbacks_.load(std::memory_order_relaxed);
  stats->busy += absl::Nanoseconds(busy_ns_.load(std::memory_order_relaxed));
  for (size_t i = 0; i < kTransportRefusals; ++i) {
    stats->refused[i] += refused_[i].load(std::memory_order_relaxed);
  }
  for (size_t i = 0; i < kStreamResets; ++i) stats->resets[i] += resets_[i].load(std::memory_order_relaxed);
  stats->at_stream_limit += at_stream_limit_.load(std::memory_order_relaxed);
}

}  // namespace normd::rpc
