// A TLS client that does what gRPC's own cannot be made to do: stop half-way, renegotiate, offer old versions and no
// protocol. It checks no certificate; it tells which one it was shown. Thread-compatible. The connection ends with the
// object.
#ifndef NORMD_TESTS_SUPPORT_RAW_TLS_H_
#define NORMD_TESTS_SUPPORT_RAW_TLS_H_

#include <string>
#include <string_view>

#include "tests/support/test_certificates.h"

typedef struct ssl_st SSL;

namespace normd {

class RawTls {
 public:
  struct Options {
    int max_version = 0;               // as TLS1_2_VERSION; 0: the newest
    bool old_versions = false;         // TLS 1.0 and 1.1 are offered, and ciphers of any strength
    std::string ciphers = {};          // of TLS 1.2, as OpenSSL writes them; empty: the default
    std::string protocol = "h2";       // of ALPN; empty: none is offered
    TestCertificate certificate = {};  // empty: none
  };

  // Connects to "127.0.0.1:PORT" and sends nothing.
  RawTls(const std::string& target, const Options& options);
  ~RawTls();
  RawTls(const RawTls&) = delete;
  RawTls& operator=(const RawTls&) = delete;

  // Whether the handshake succeeds from this side. (A TLS 1.3 server may refuse the client's certificate after that.)
  bool Handshake();
  // The serial number of the server's certificate. REQUIRES: Handshake returned true.
  std::string ServerSerial() const;
  // REQUIRES: Handshake returned true.
  bool Send(std::string_view bytes);
  // What comes next, at most `size` bytes; "" when the connection has ended, or nothing comes for 10 s.
  std::string Receive(size_t size);
  // Whether the server has said that nothing more comes (close_notify), so that this end cannot be one that somebody on
  // the way made. REQUIRES: Receive has returned "".
  bool EndedByServer() const;
  // Changes this side's keys (TLS 1.3), with nothing else to send. Whether that could be sent.
  bool UpdateKeys();
  // Asks for a new handshake (TLS 1.2). Returns OpenSSL's reason why there is none; "" when the server agreed.
  std::string Renegotiate();

 private:
  int fd_ = -1;
  SSL* ssl_ = nullptr;
};

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_RAW_TLS_H_
