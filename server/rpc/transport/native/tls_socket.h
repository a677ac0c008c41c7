// A connection's bytes through TLS, the server's side. See byte_stream.h.
#ifndef NORMD_SERVER_RPC_TRANSPORT_NATIVE_TLS_SOCKET_H_
#define NORMD_SERVER_RPC_TRANSPORT_NATIVE_TLS_SOCKET_H_

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <vector>

#include "server/base/unique_fd.h"
#include "server/rpc/transport/native/byte_stream.h"

namespace normd::rpc::native {

class TlsSocket final : public ByteStream {
 public:
  // Takes ownership of `fd`, which does not block. With a null `context` every handshake fails.
  TlsSocket(int fd, const std::shared_ptr<SSL_CTX>& context);
  ~TlsSocket() override;

  int fd() const override { return fd_.get(); }
  IoState SetUp() override;
  std::string failure() const override { return failure_; }
  TlsPeerPtr peer() const override { return peer_; }
  IoResult Read(absl::Span<const iovec> parts) override;
  IoResult Write(absl::Span<const iovec> parts) override;
  void EndWriting() override;
  bool HasReceived() const override { return SSL_has_pending(ssl_.get()) == 1; }
  bool WantsToWrite() const override { return wants_to_write_; }

 private:
  struct Deleter {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  // What an operation of OpenSSL that returned `result` says.
  IoState StateOf(int result);

  const UniqueFd fd_;
  std::unique_ptr<SSL, Deleter> ssl_;
  TlsPeerPtr peer_;
  std::string failure_;
  bool wants_to_write_ = false;
};

}  // namespace normd::rpc::native

#endif  // NORMD_SERVER_RPC_TRANSPORT_NATIVE_TLS_SOCKET_H_
