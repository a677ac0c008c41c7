// How a Client checks who answers, and proves who calls: TLS, a client certificate, a bearer token.
//
//   normd::ClientOptions options;
//   options.security.ca_file = "/etc/normd/ca.crt";                            // TLS
//   options.security.certificate_file = "/etc/normd/tls.crt";                  // mTLS, where the server asks for it
//   options.security.key_file = "/etc/normd/tls.key";
//   options.security.token_file = "/var/run/secrets/tokens/normd";             // or a token instead of a certificate
//   const auto client = normd::Client::Connect("normd.example.org:8001", options);
//
// Connect reads all files once and names the file that is wrong. Later changes are picked up without a new Client: a
// token file is read again by the first call after it changed, and certificates within 10 seconds, for the connections
// that are made from then on. A file that cannot be read later leaves its last good content in use.
// A token travels over TLS and over Unix sockets alone, and is in no error, log or name.
// Plain values.
#ifndef NORMD_CLIENT_CPP_SECURITY_H_
#define NORMD_CLIENT_CPP_SECURITY_H_

#include <optional>
#include <string>

namespace normd::client {

// All files are PEM. The options of TLS are for TCP: Connect refuses them for a Unix socket, which needs no TLS,
// because only processes of this machine reach it, and the server asks the kernel for their user.
struct SecurityOptions {
  // True calls by TLS, false in plain text. Without it TLS is used if one of the four options below is set.
  std::optional<bool> tls;
  // The root certificates that the server's certificate must come from. Empty: those of the system.
  std::string ca_file;
  // The client's certificate, with the intermediate ones behind it, and its key without a passphrase. Both or none.
  std::string certificate_file;
  std::string key_file;
  // The name that the server's certificate must have, where it is not the host of the target: for trials and tunnels.
  std::string server_name;
  // Sent with every call as `authorization: Bearer TOKEN`, and at most one of the two.
  std::string token;
  std::string token_file;  // holds the token alone; blanks and line breaks around it do not count
};

// True if a Client of `target` with these options calls by TLS.
bool UsesTls(const SecurityOptions& security);

// True for "unix:/path" and gRPC's other names of Unix sockets.
bool IsUnixSocket(const std::string& target);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_SECURITY_H_
