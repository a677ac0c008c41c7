// How busy one queue's thread is with callbacks, and how many calls its transport refuses.
// In the path: beside it; the thread notes each callback and each refusal. Threads: safe from any thread.
#ifndef NORMD_SERVER_RPC_TRANSPORT_QUEUE_LOAD_H_
#define NORMD_SERVER_RPC_TRANSPORT_QUEUE_LOAD_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "server/rpc/transport/queue_stats.h"

namespace normd::rpc {

// In a cache line of its own.
class alignas(64) QueueLoad {
 public:
  // Called by the queue's thread alone.
  void Note(absl::Duration callback);
  void CountRefusal(TransportRefusal reason) {
    refused_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  }
  // Counts an RST_STREAM that was sent, by its HTTP/2 error code.
  void CountReset(uint32_t error_code) {
    resets_[std::min<size_t>(error_code, kStreamResets - 1)].fetch_add(1, std::memory_order_relaxed);
  }
  // Counts `change` more connections at their limit of streams.
  void CountAtStreamLimit(int change) { at_stream_limit_.fetch_add(change, std::memory_order_relaxed); }
  // Adds this queue to `stats`, and forgets the longest callback.
  void TakeInto(QueueStats* stats);

 private:
  std::atomic<int64_t> longest_callback_ns_{0};
  std::atomic<int64_t> slow_callbacks_{0};
  std::atomic<int64_t> busy_ns_{0};
  std::array<std::atomic<int64_t>, kTransportRefusals> refused_{};
  std::array<std::atomic<int64_t>, kStreamResets> resets_{};
  std::atomic<int64_t> at_stream_limit_{0};
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_QUEUE_LOAD_H_
