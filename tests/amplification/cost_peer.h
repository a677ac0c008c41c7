// What one peer of the native transport costs. The connection is real: a socket, the loop with its thread, nghttp2, the
// streams and their callbacks; the service is that of tests/fuzz/native_peer.h. The table and the fuzzer of cost
// measure with it. Threads: one peer at a time, on the thread that is the peer.
#ifndef NORMD_TESTS_AMPLIFICATION_COST_PEER_H_
#define NORMD_TESTS_AMPLIFICATION_COST_PEER_H_

#include <string>
#include <string_view>
#include <vector>

#include "tests/amplification/cost_meter.h"
#include "tests/fuzz/native_peer.h"

namespace normd {

// Of a connection that is sent `before`, which is not measured, and then `pieces`, each when the one before it has been
// taken.
inline Cost CostOfPeer(std::string_view before, const std::vector<std::string>& pieces) {
  // The transport's own limits, but for the size of a message, whose memory admission bounds in a whole server. Never
  // destroyed, like the process.
  static auto* const service = new rpc::http2::NativeService({.max_message_bytes = 64 << 10}, /*reply_bytes=*/4'000);
  rpc::http2::NativePeer peer(*service);
  const auto send = [&peer](std::string_view bytes) {
    peer.Send(bytes);
    // What is sent may be answered, and the answer has callbacks.
    for (int i = 0; i < 2; ++i) {
      peer.Settle();
      peer.Receive();
    }
  };
  if (!before.empty()) send(before);
  const CostMeter meter;
  for (const std::string& piece : pieces) send(piece);
  return meter.Read();
}

}  // namespace normd

#endif  // NORMD_TESTS_AMPLIFICATION_COST_PEER_H_
