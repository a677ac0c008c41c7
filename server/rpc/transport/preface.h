// The first bytes of a connection, judged before anything is built for it: only a client that has finished its half of
// HTTP/2's set-up gets a transport. In the path: the accept loop, on bytes that it looked at without taking them.
// Pure functions.
#ifndef NORMD_SERVER_RPC_TRANSPORT_PREFACE_H_
#define NORMD_SERVER_RPC_TRANSPORT_PREFACE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace normd::rpc {

enum class Preface : uint8_t {
  kIncomplete,  // so far it may become HTTP/2
  kComplete,    // the preface and the first SETTINGS frame are there
  kHttp1,       // a request line of an older HTTP
  kForeign,     // anything else: TLS, another protocol, junk
};

// As many bytes of a connection as are looked at.
inline constexpr size_t kPrefaceWindowBytes = 1024;

// RFC 9113, 3.4: 24 fixed bytes, then a SETTINGS frame. One that does not fit in the window is foreign: real clients
// send a handful of settings of 6 bytes each.
Preface JudgePreface(std::string_view head);

// What a caller of an older HTTP is told before its connection is closed.
std::string_view Http1Answer();

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_PREFACE_H_
