// The table's rows of TLS records, against a whole normd. The records are made before they are measured: what the
// peer's half of the cipher costs is not the server's.
#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "tests/amplification/cost_meter.h"
#include "tests/amplification/normd_fixture.h"
#include "tests/amplification/row_fixture.h"
#include "tests/amplification/wire.h"
#include "tests/support/temporary_file.h"
#include "tests/support/test_certificates.h"

namespace normd {
namespace {

using namespace wire_bytes;  // NOLINT(google-build-using-namespace): the words of the table

constexpr int kRecords = 10'000;
constexpr std::string_view kLastPing = "the last";

// A client of TLS whose records are made in memory, and sent when they are asked for.
class TlsPeer {
 public:
  explicit TlsPeer(int port) : fd_(ConnectToPort(port)), context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free) {
    SSL_CTX_set_alpn_protos(context_.get(), reinterpret_cast<const unsigned char*>("\2h2"), 3);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(ssl_.get());
  }

  void Handshake() {
    while (SSL_do_handshake(ssl_.get()) != 1) {
      ASSERT_TRUE(SendWhole(fd_, TakeRecords()));
      if (!Receive()) return;
    }
    ASSERT_TRUE(SendWhole(fd_, TakeRecords()));
  }
  void Write(std::string_view bytes) { SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())); }
  void UpdateKey(int kind) {
    SSL_key_update(ssl_.get(), kind);
    SSL_do_handshake(ssl_.get());
  }
  // Bytes between the records.
  void WriteRaw(std::string_view bytes) {
    BIO_write(SSL_get_wbio(ssl_.get()), bytes.data(), static_cast<int>(bytes.size()));
  }
  // The records made since the last call.
  std::string TakeRecords() {
    char* data = nullptr;
    BIO* const out = SSL_get_wbio(ssl_.get());
    const long size = BIO_get_mem_data(out, &data);  // NOLINT(google-runtime-int): OpenSSL's own type
    std::string records(data, static_cast<size_t>(size));
    BIO_reset(out);
    return records;
  }
  // Sends the bytes and reads what comes meanwhile, until the server has answered the last PING, or ended the
  // connection.
  void Exchange(std::string_view bytes) {
    while (true) {
      const ssize_t sent = bytes.empty() ? 0 : send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
      if (sent < 0 && errno != EAGAIN) return;
      pollfd ready = {.fd = fd_.get(), .events = static_cast<short>(POLLIN | (bytes.empty() ? 0 : POLLOUT))};
      ASSERT_GT(poll(&ready, 1, 20'000), 0) << "the server neither answers nor ends the connection";
      if ((ready.revents & POLLIN) == 0) continue;
      if (!Receive() || Read().find(kLastPing) != std::string::npos) return;
    }
  }

 private:
  bool Receive() {
    char received[16 << 10];
    const ssize_t got = recv(fd_.get(), received, sizeof(received), 0);
    if (got > 0) BIO_write(SSL_get_rbio(ssl_.get()), received, static_cast<int>(got));
    return got > 0;
  }
  std::string Read() {
    std::string all;
    char bytes[16 << 10];
    for (int got = 0; (got = SSL_read(ssl_.get(), bytes, sizeof(bytes))) > 0;)
      all.append(bytes, static_cast<size_t>(got));
    return all;
  }

  const UniqueFd fd_;
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  struct Deleter {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  std::unique_ptr<SSL, Deleter> ssl_;
};

class AmplificationTlsTable : public testing::Test {
 protected:
  AmplificationTlsTable() {
    const TestCertificate pair = TestCa("servers").Issue();
    WriteFile(files_.folder() + "/server.pem", pair.certificate);
    WriteFile(files_.folder() + "/server.key", pair.key);
    normd_ = std::make_unique<WholeNormd>(std::vector<std::string>{
        "--tls_certificate=" + files_.folder() + "/server.pem", "--tls_key=" + files_.folder() + "/server.key"});
  }

  // `make` makes the records of the row.
  void Expect(const std::string& name, const std::function<void(TlsPeer&)>& make) {
    Units units = {.records = kRecords};
    const auto records_of = [&](TlsPeer& peer) {
      peer.Handshake();
      peer.Write(Preface());
      make(peer);
      peer.Write(Frame(kPing, 0, 0, kLastPing));
      std::string records = peer.TakeRecords();
      units.bytes = static_cast<double>(records.size());
      return records;
    };
    // Once unmeasured, for the size.
    TlsPeer first(normd_->tcp_port());
    records_of(first);
    ExpectWithinBound("TLS: " + name, units, [&] {
      TlsPeer peer(normd_->tcp_port());
      const std::string records = records_of(peer);
      const CostMeter meter;
      peer.Exchange(records);
      return meter.Read();
    });
  }

  const TemporaryFile files_;
  std::unique_ptr<WholeNormd> normd_;
};

TEST_F(AmplificationTlsTable, RecordsCostWhatTheyMay) {
  const std::string unknown = Frame(kUnknown, 0, 0, std::string(kRecords - 9, 'u'));
  Expect("records of one byte", [&](TlsPeer& peer) {
    for (const char byte : unknown) peer.Write(std::string_view(&byte, 1));
  });
  Expect("records of a PING each", [](TlsPeer& peer) {
    for (int i = 0; i < kRecords; ++i) peer.Write(Frame(kPing, 0, 0, "12345678"));
  });
  Expect("full records",
         [](TlsPeer& peer) { peer.Write(Repeated(Frame(kUnknown, 0, 0, std::string(16 << 10, 'u')), 64)); });
  Expect("changes of the cipher",
         [](TlsPeer& peer) { peer.WriteRaw(Repeated(std::string("\x14\x03\x03\0\1\1", 6), kRecords)); });
  Expect("records that nobody can decrypt", [](TlsPeer& peer) {
    peer.WriteRaw(Repeated(std::string("\x17\x03\x03\0\x20", 5) + std::string(32, 'x'), kRecords));
  });
}

TEST_F(AmplificationTlsTable, KeyUpdatesCostWhatTheyMay) {
  Expect("KeyUpdates", [](TlsPeer& peer) {
    for (int i = 0; i < kRecords; ++i) peer.UpdateKey(SSL_KEY_UPDATE_NOT_REQUESTED);
  });
  Expect("KeyUpdates that ask for one", [](TlsPeer& peer) {
    for (int i = 0; i < kRecords; ++i) peer.UpdateKey(SSL_KEY_UPDATE_REQUESTED);
  });
}

TEST_F(AmplificationTlsTable, HandshakesCostWhatTheyMay) {
  constexpr int kHandshakes = 20;
  // A ClientHello of 300 bytes and a Finished of 60 are all that the peer sends.
  ExpectWithinBound("TLS: handshakes", {.bytes = 400.0 * kHandshakes, .handshakes = kHandshakes}, [this] {
    const CostMeter meter;
    for (int i = 0; i < kHandshakes; ++i) TlsPeer(normd_->tcp_port()).Handshake();
    return meter.Read();
  });
  const std::string hello = [this] {
    TlsPeer peer(normd_->tcp_port());
    peer.Handshake();
    return std::string("\x16\x03\x01\x00\xFA", 5) + std::string(250, 'h');
  }();
  ExpectWithinBound("TLS: no ClientHello", {.bytes = 255.0 * kHandshakes, .handshakes = kHandshakes}, [this, &hello] {
    const CostMeter meter;
    for (int i = 0; i < kHandshakes; ++i) {
      const UniqueFd fd = ConnectToPort(normd_->tcp_port());
      SendWhole(fd, hello);
      char answer[1024];
      while (recv(fd.get(), answer, sizeof(answer), 0) > 0) {
      }
    }
    return meter.Read();
  });
}

}  // namespace
}  // namespace normd
