// A connection's bytes through TLS, the server's side. See byte_stream.h.
#ifndef NORMD_SERVER_NET_TLS_SOCKET_H_
#define NORMD_SERVER_NET_TLS_SOCKET_H_

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <vector>

#include "server/base/unique_fd.h"
#include "server/net/byte_stream.h"
#include "server/net/rate_guard.h"

namespace normd::net {

class TlsSocket final : public ByteStream {
 public:
  // `fd` does not block; `received` are the bytes that were read from it before. With a null `context` every handshake
  // fails.
  TlsSocket(UniqueFd fd, const std::shared_ptr<SSL_CTX>& context, std::string received = "");
  ~TlsSocket() override;

  int fd() const override { return fd_.get(); }
  IoState SetUp() override;
  std::string failure() const override { return failure_; }
  TlsPeerPtr peer() const override { return peer_; }
  IoResult Read(absl::Span<const iovec> parts) override;
  IoResult Write(absl::Span<const iovec> parts) override;
  void EndWriting() override;
  bool HasReceived() const override {
    return SSL_has_pending(ssl_.get()) == 1 || socket_.given < socket_.received.size();
  }
  bool WantsToWrite() const override { return wants_to_write_; }

  // OpenSSL's message callback, for handshake messages and alerts.
  static void OnMessage(int is_sent, int version, int content_type, const void* bytes, size_t size, SSL* ssl,
                        void* unused);

 private:
  struct Deleter {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  // The BIO's state of the socket.
  struct Socket {
    int fd = -1;
    std::string received = {};  // before the BIO was made; precedes the socket's own bytes
    size_t given = 0;           // of `received`
    bool is_drained = false;    // whether the last recv found nothing
  };

  static BIO* MakeBio(Socket* socket);
  static int SendBytes(BIO* bio, const char* data, size_t size, size_t* sent);
  static int ReceiveBytes(BIO* bio, char* data, size_t size, size_t* received);

  // What an operation of OpenSSL that returned `result` says.
  IoState StateOf(int result);
  // Counts a record, or a part of one, that gave `bytes` of data.
  void NoteRecord(size_t bytes);

  const UniqueFd fd_;
  Socket socket_;  // outlives ssl_, whose BIO points to it
  std::unique_ptr<SSL, Deleter> ssl_;
  TlsPeerPtr peer_;
  std::string failure_;
  bool wants_to_write_ = false;
  bool is_set_up_ = false;
  bool in_record_ = false;  // whether Read has given a part of a record
  bool flooded_ = false;
  RateGuard messages_;  // of TLS itself, after the set-up
  RateGuard small_records_;
};

}  // namespace normd::net

#endif  // NORMD_SERVER_NET_TLS_SOCKET_H_
