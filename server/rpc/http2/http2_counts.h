// What the native transport refuses and resets, of all its connections, for metrics.
// In the path: beside it; connections and streams count. Threads: safe from any thread.
#ifndef NORMD_SERVER_RPC_HTTP2_HTTP2_COUNTS_H_
#define NORMD_SERVER_RPC_HTTP2_HTTP2_COUNTS_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "server/rpc/edge/queue_stats.h"

namespace normd::rpc::http2 {

class Http2Counts {
 public:
  void CountRefusal(TransportRefusal reason) {
    refused_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  }
  // Counts an RST_STREAM that was sent, by its HTTP/2 error code.
  void CountReset(uint32_t error_code) {
    resets_[std::min<size_t>(error_code, kStreamResets - 1)].fetch_add(1, std::memory_order_relaxed);
  }
  // Counts `change` more connections at their limit of streams.
  void CountAtStreamLimit(int change) { at_stream_limit_.fetch_add(change, std::memory_order_relaxed); }

  void CopyTo(QueueStats* stats) const {
    for (size_t i = 0; i < kTransportRefusals; ++i) stats->refused[i] = refused_[i].load(std::memory_order_relaxed);
    for (size_t i = 0; i < kStreamResets; ++i) stats->resets[i] = resets_[i].load(std::memory_order_relaxed);
    stats->at_stream_limit = at_stream_limit_.load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<int64_t>, kTransportRefusals> refused_{};
  std::array<std::atomic<int64_t>, kStreamResets> resets_{};
  std::atomic<int64_t> at_stream_limit_{0};
};

}  // namespace normd::rpc::http2

#endif  // NORMD_SERVER_RPC_HTTP2_HTTP2_COUNTS_H_
