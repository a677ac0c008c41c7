// The first message of a TLS client, for tests that send it in pieces or where TLS is not spoken.
#ifndef NORMD_TESTS_SUPPORT_CLIENT_HELLO_H_
#define NORMD_TESTS_SUPPORT_CLIENT_HELLO_H_

#include <string>

namespace normd {

// A ClientHello in its record, which offers HTTP/2; a new one at each call.
std::string MakeClientHello();

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_CLIENT_HELLO_H_
