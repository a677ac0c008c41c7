// Judges the first bytes of a connection before gRPC allocates anything for it: gRPC gets only connections whose client
// has finished its half of HTTP/2's set-up.
// In the path: called by the accept loop on bytes that it has peeked at.
// Threads: pure functions.
#ifndef NORMD_SERVER_RPC_TRANSPORT_PREFACE_H_
#define NORMD_SERVER_RPC_TRANSPORT_PREFACE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace normd::rpc {

enum class Preface : uint8_t {
  kIncomplete,  // may still become HTTP/2
  kComplete,    // the preface and the first SETTINGS frame have arrived
  kHttp1,       // a request line of an older HTTP
  kForeign,     // anything else: TLS, another protocol, junk
};

// How many bytes of a connection are looked at.
inline constexpr size_t kPrefaceWindowBytes = 1024;

// Judges the bytes received so far. RFC 9113, 3.4 asks for 24 fixed bytes and then a SETTINGS frame. A frame that does
// not fit in the window is foreign, because real clients send only a few settings of 6 bytes each.
Preface JudgePreface(std::string_view head);

// The response that a client of an older HTTP gets before its connection is closed.
std::string_view Http1Answer();

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_PREFACE_H_
