// Finding a server on this machine, and its Unix socket, over which tensors can be shared instead of sent.
//
//   const char* folder = std::getenv("XDG_RUNTIME_DIR");
//   const std::string target =
//       normd::client::FindUnixSocket(folder == nullptr ? "" : folder).value_or("127.0.0.1:8001");
//   const auto client = normd::Client::Connect(target, {.shared_memory = true});
//
// Threads: the functions are safe from any thread.
#ifndef NORMD_CLIENT_CPP_LOCAL_SERVER_H_
#define NORMD_CLIENT_CPP_LOCAL_SERVER_H_

#include <optional>
#include <string>

namespace normd {

struct ClientOptions;

namespace client {

// True for Unix sockets and loopback addresses.
bool IsLocal(const std::string& target);

// The Unix socket, as "unix:/path", of a server that this user runs with the default --listen: normd.sock in
// `runtime_folder` (the value of $XDG_RUNTIME_DIR, or ""), else in /tmp/normd-<uid>. nullopt unless the socket and its
// folder belong to this user and a process accepts connections there.
std::optional<std::string> FindUnixSocket(const std::string& runtime_folder);

// The Unix socket, as "unix:/path", of the server at `target`, if `target` is a loopback address and is called in plain
// text (ClientOptions::prefer_unix_socket says why). The server names the
// socket in Describe, and the socket counts only if the process behind it proves to be the same. Asks for at most a
// second. nullopt in all other cases.
std::optional<std::string> FindUnixSocketOf(const std::string& target, const ClientOptions& options);

}  // namespace client
}  // namespace normd

#endif  // NORMD_CLIENT_CPP_LOCAL_SERVER_H_
