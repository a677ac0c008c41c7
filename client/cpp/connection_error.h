// What a call's error says where no normd answered it: gRPC's own texts ("failed to connect to all addresses; last
// error: UNKNOWN: ...") in one sentence with the way out. In the path: RunUnary and streams pass their final status
// through ExplainConnection; normctl and normload say the same in the words of their flags, and ask the server why.
// Pure functions, but for the environment, which names the proxy.
#ifndef NORMD_CLIENT_CPP_CONNECTION_ERROR_H_
#define NORMD_CLIENT_CPP_CONNECTION_ERROR_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/cpp/security.h"
#include "proto/wire/http_proxy.h"

namespace normd::client {

// Who was called, and how.
struct Callee {
  std::string target;
  bool tls = false;
  std::optional<wire::HttpProxy> proxy;
};

Callee MakeCallee(const std::string& target, const SecurityOptions& security);

enum class ConnectionTrouble {
  kNone,         // a normd answered, or the error is none of a connection
  kUnreachable,  // no connection was made; `cause` says why
  kClosed,       // a connection was made, and closed before the call was answered
  kToldToGo,     // the server ended the connection with a text, which is `cause`
  kHttp1,        // an HTTP/1 server listens there
  kNotGrpc,      // an HTTP/2 server listens there, or a proxy; `cause` is what it answered
  kOtherServer,  // a gRPC server listens there that does not know normd's methods
};

struct ConnectionFinding {
  ConnectionTrouble trouble = ConnectionTrouble::kNone;
  std::string cause;
};

// Reads gRPC's text, also out of a status that ExplainConnection has changed.
ConnectionFinding FindTrouble(const absl::Status& status);

// The sentence of kToldToGo, kHttp1, kNotGrpc and kOtherServer, which needs no options; else empty.
std::string TroubleText(const ConnectionFinding& finding, absl::string_view target);

// What to do where the system lets this user not connect to a Unix socket; empty for other causes.
std::string SocketAccessText(absl::string_view cause);

// " http_proxy sends calls to example:8001 through proxy:3128; unset it, ..."
std::string ProxyText(const wire::HttpProxy& proxy, absl::string_view target);

// `status` with such a sentence for its message, or as it is.
absl::Status ExplainConnection(const absl::Status& status, const Callee& callee);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_CONNECTION_ERROR_H_
