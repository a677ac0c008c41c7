// A connection's bytes without encryption. See byte_stream.h.
#ifndef NORMD_SERVER_NET_PLAIN_SOCKET_H_
#define NORMD_SERVER_NET_PLAIN_SOCKET_H_

#include <memory>
#include <utility>

#include "server/base/unique_fd.h"
#include "server/net/byte_stream.h"

namespace normd::net {

class PlainSocket final : public ByteStream {
 public:
  // `fd` does not block.
  explicit PlainSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const override { return fd_.get(); }
  IoState SetUp() override { return IoState::kOk; }
  TlsPeerPtr peer() const override { return peer_; }
  IoResult Read(absl::Span<const iovec> parts) override;
  IoResult Write(absl::Span<const iovec> parts) override;
  void EndWriting() override;
  bool HasReceived() const override { return false; }
  bool WantsToWrite() const override { return false; }

 private:
  const UniqueFd fd_;
  const TlsPeerPtr peer_ = std::make_shared<TlsPeer>();
};

}  // namespace normd::net

#endif  // NORMD_SERVER_NET_PLAIN_SOCKET_H_
