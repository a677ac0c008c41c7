// Sockets on loopback that speak HTTP badly or not at all, so that the admin listener does not judge itself.
#ifndef NORMD_TESTS_SERVER_ADMIN_HTTP_CLIENT_H_
#define NORMD_TESTS_SERVER_ADMIN_HTTP_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <string>
#include <string_view>

#include "server/base/unique_fd.h"

namespace normd {

// A socket that gives up waiting after `seconds`, so that a test cannot hang.
inline UniqueFd TcpSocket(int seconds = 30) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience = {.tv_sec = seconds, .tv_usec = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  return fd;
}

inline bool ConnectTo(const UniqueFd& fd, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

inline bool SendAll(const UniqueFd& fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

// Everything until the server's end.
inline std::string ReadAll(const UniqueFd& fd) {
  std::string reply;
  char buffer[4096];
  for (ssize_t n = 0; (n = recv(fd.get(), buffer, sizeof(buffer), 0)) > 0;) reply.append(buffer, n);
  return reply;
}

inline UniqueFd Connected(int port) {
  UniqueFd fd = TcpSocket();
  if (!ConnectTo(fd, port)) fd.Close();
  return fd;
}

inline std::string Exchange(int port, std::string_view request) {
  const UniqueFd fd = Connected(port);
  return fd.valid() && SendAll(fd, request) ? ReadAll(fd) : "";
}

inline std::string Get(int port, const std::string& path) {
  return Exchange(port, "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

}  // namespace normd

#endif  // NORMD_TESTS_SERVER_ADMIN_HTTP_CLIENT_H_
