// The first message of a TLS client, and how a server's answer to it looks. That is enough to see whether a listener
// serves, and needs no client certificate, which a server asks for only after its answer.
// In the path: beside it; the listener probe sends the hello. Pure functions, safe from any thread.
#ifndef NORMD_SERVER_SECURITY_CLIENT_HELLO_H_
#define NORMD_SERVER_SECURITY_CLIENT_HELLO_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace normd {

// A ClientHello in its record, which offers HTTP/2; a new one at each call. Empty if OpenSSL has no memory for it.
std::string MakeClientHello();

// The bytes of an answer that IsServerHello needs.
inline constexpr size_t kServerHelloHeadBytes = 6;

// Whether an answer begins with a ServerHello. REQUIRES: `head` has at least kServerHelloHeadBytes.
bool IsServerHello(std::string_view head);

}  // namespace normd

#endif  // NORMD_SERVER_SECURITY_CLIENT_HELLO_H_
