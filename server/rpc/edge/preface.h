// Judges the first bytes of a connection before anything is allocated for it: a transport goes on only with connections
// whose client has finished its half of HTTP/2's set-up or, where TLS is spoken, has sent the first message of TLS.
// In the path: called by the transports on the first bytes of each connection.
// Threads: pure functions.
#ifndef NORMD_SERVER_RPC_EDGE_PREFACE_H_
#define NORMD_SERVER_RPC_EDGE_PREFACE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "server/rpc/edge/connection_stats.h"

namespace normd::rpc {

enum class Preface : uint8_t {
  kIncomplete,  // may still become the protocol of this port
  kComplete,    // the protocol of this port
  kHttp1,       // a request line of an older HTTP
  kHttp2,       // HTTP/2 in plain text, where TLS is spoken
  kTls,         // TLS, where it is not spoken
  kForeign,     // anything else: another protocol, junk
};

// How many bytes of a connection are looked at.
inline constexpr size_t kPrefaceWindowBytes = 1024;

// How long a refused connection stays open, so that its peer reads the answer, and how many more bytes of the peer are
// read meanwhile.
inline constexpr absl::Duration kFarewellTime = absl::Seconds(1);
inline constexpr int64_t kMostDiscardedBytes = 64 << 10;

// Judges the bytes received so far. RFC 9113, 3.4 asks for 24 fixed bytes and then a SETTINGS frame. A frame that does
// not fit in the window is foreign, because real clients send only a few settings of 6 bytes each.
Preface JudgePreface(std::string_view head);

// Judges the bytes received so far where TLS is spoken: `head` is the first of `received` bytes, up to the window. A
// connection is complete with the first record (RFC 8446, 5.1), which must begin with a ClientHello.
Preface JudgeClientHello(std::string_view head, size_t received);

// How a connection ends on which something else is spoken: why, and with which answer. Without an answer it is closed.
struct Farewell {
  RefusedFor reason;
  std::string_view answer;
};
// `tls`: where TLS is spoken. REQUIRES: `spoken` is neither kIncomplete nor kComplete.
Farewell FarewellTo(Preface spoken, bool tls);

// The stream of the first call in the bytes received so far; nothing if there is none yet.
std::optional<uint32_t> FirstCall(std::string_view head);

// The answer to that call, with which the connection ends: UNAVAILABLE and the sentence `why`, and a GOAWAY. A GOAWAY
// alone would have gRPC's clients connect anew, without a pause and without a word, until their deadline.
std::string RefusedCall(uint32_t stream, std::string_view why);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_PREFACE_H_
