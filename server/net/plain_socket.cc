#include "server/net/plain_socket.h"

#include <sys/socket.h>

#include <cerrno>

namespace normd::net {
namespace {

IoResult Failure() {
  const bool blocked = errno == EAGAIN || errno == EWOULDBLOCK;
  return {.state = blocked ? IoState::kBlocked : IoState::kEnded};
}

}  // namespace

IoResult PlainSocket::Read(absl::Span<const iovec> parts) {
  while (true) {
    const ssize_t got = readv(fd_.get(), parts.data(), static_cast<int>(parts.size()));
    if (got > 0) return {.bytes = static_cast<size_t>(got)};
    if (got == 0) return {.state = IoState::kEnded};
    if (errno != EINTR) return Failure();
  }
}

IoResult PlainSocket::Write(absl::Span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  while (true) {
    const ssize_t sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (sent >= 0) return {.bytes = static_cast<size_t>(sent)};
    if (errno != EINTR) return Failure();
  }
}

void PlainSocket::EndWriting() { shutdown(fd_.get(), SHUT_WR); }

}  // namespace normd::net
