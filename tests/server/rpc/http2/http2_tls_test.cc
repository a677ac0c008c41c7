// TLS of the native transport, with gRPC's client and a client that does what gRPC's cannot be made to do.
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/rpc/edge/http2.h"
#include "server/security/server_certificates.h"
#include "tests/server/rpc/http2/echo_fixture.h"
#include "tests/support/raw_tls.h"
#include "tests/support/temporary_file.h"
#include "tests/support/test_certificates.h"

namespace normd::rpc::http2 {
namespace {

class Http2TlsTest : public testing::Test {
 protected:
  Http2TlsTest() {
    WriteFile(paths_.client_ca, ca_.certificate());
    WriteCertificate();
    auto opened = ServerCertificates::Open(paths_, absl::Hours(1), &clock_, {});
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    certificates_ = *std::move(opened);
  }

  void WriteCertificate() {
    const TestCertificate pair = ca_.Issue();
    WriteFile(paths_.certificate, pair.certificate);
    WriteFile(paths_.key, pair.key);
  }

  std::unique_ptr<EchoServer> Serve(bool require_client_certificate) {
    return std::make_unique<EchoServer>(RpcOptions{.certificates = certificates_.get(),
                                                   .require_client_certificate = require_client_certificate,
                                                   .setup_timeout = absl::Seconds(1)});
  }

  std::shared_ptr<grpc::Channel> Connect(const EchoServer& server, const TestCertificate& pair = {}) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = ca_.certificate();
    options.pem_private_key = pair.key;
    options.pem_cert_chain = pair.certificate;
    return server.Connect(grpc::SslCredentials(options));
  }

  std::string NameOf(const EchoServer& server, const TestCertificateSpec& spec) {
    return Ask(Connect(server, ca_.Issue(spec)), {.method = "Peer", .body = "x"}).body;
  }

  const TestCa ca_{"Test CA"};
  const TemporaryFile folder_;
  const CertificatePaths paths_ = {.certificate = folder_.folder() + "/cert.pem",
                                   .key = folder_.folder() + "/key.pem",
                                   .client_ca = folder_.folder() + "/ca.pem"};
  SystemClock clock_;
  std::unique_ptr<ServerCertificates> certificates_;
};

TEST_F(Http2TlsTest, MessagesOfAllSizesComeBackUnchanged) {
  const auto server = Serve(false);
  const auto channel = Connect(*server);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{16384}, size_t{65536}, size_t{100000}, size_t{20} << 20}) {
    for (const char* method : {"Unary", "Stream"}) {
      const EchoReply reply = Ask(channel, {.method = method, .body = Pattern(size)});
      EXPECT_EQ(reply.code, 0) << method << " " << size << " " << reply.message;
      EXPECT_TRUE(reply.body == Pattern(size)) << method << " " << size << " " << reply.body.size();
    }
  }
}

TEST_F(Http2TlsTest, ThePeersNameIsItsFirstUriElseItsFirstDnsNameElseItsCommonName) {
  const auto server = Serve(true);
  EXPECT_EQ(NameOf(*server, {.alternative_names = "DNS:a.test,URI:spiffe://test/one,URI:spiffe://test/two"}),
            "encrypted uri:spiffe://test/one");
  EXPECT_EQ(NameOf(*server, {.alternative_names = "IP:127.0.0.1,DNS:a.test,DNS:b.test"}), "encrypted dns:a.test");
  EXPECT_EQ(NameOf(*server, {.alternative_names = "DNS:A.Test"}), "encrypted dns:a.test");
  EXPECT_EQ(NameOf(*server, {.common_name = "trainer", .alternative_names = ""}), "encrypted cn:trainer");
}

TEST_F(Http2TlsTest, ClientsNeedACertificateOfTheCaWhereItIsRequired) {
  const auto server = Serve(true);
  EXPECT_EQ(Ask(Connect(*server), {.method = "Unary", .body = "x", .deadline_ms = 2000}).code, 14);
  const TestCa other("Other CA");
  EXPECT_EQ(Ask(Connect(*server, other.Issue()), {.method = "Unary", .body = "x", .deadline_ms = 2000}).code, 14);
  EXPECT_EQ(Ask(Connect(*server, ca_.Issue()), {.method = "Unary", .body = "x"}).code, 0);
  EXPECT_EQ(server->counts().calls.load(), 1);
}

// Who cannot connect asks the operator, who looks into the log.
TEST_F(Http2TlsTest, ReportsWhyAHandshakeFailed) {
  Mutex mu;
  std::vector<std::string> reasons;
  RpcOptions options = {.certificates = certificates_.get()};
  options.observer.on_handshake_failed = [&](const std::string& /*peer*/, const std::string& why) {
    MutexLock lock(mu);
    reasons.push_back(why);
  };
  EchoServer server(options);
  const auto is_told = [&](const std::string& text) {
    for (const absl::Time end = absl::Now() + absl::Seconds(20); absl::Now() < end;) {
      absl::SleepFor(absl::Milliseconds(1));
      MutexLock lock(mu);
      if (std::any_of(reasons.begin(), reasons.end(),
                      [&](const std::string& reason) { return reason.find(text) != std::string::npos; })) {
        return true;
      }
    }
    return false;
  };
  const TestCa other("Other CA");
  EXPECT_EQ(Ask(Connect(server, other.Issue()), {.method = "Unary", .body = "x", .deadline_ms = 2000}).code, 14);
  EXPECT_TRUE(is_told("the client's certificate: "));
  EXPECT_EQ(Ask(Connect(server), {.method = "Unary", .body = "x", .deadline_ms = 2000}).code, 14);
  EXPECT_TRUE(is_told("peer did not return a certificate"));
  const TestCertificate long_name = ca_.Issue({.alternative_names = "URI:spiffe://test/" + std::string(300, 'y')});
  EXPECT_EQ(Ask(Connect(server, long_name), {.method = "Unary", .body = "x", .deadline_ms = 2000}).code, 14);
  EXPECT_TRUE(is_told("the client's certificate has a uri of 314 bytes; the limit is 255"));
  EXPECT_FALSE(RawTls(server.target(), {.protocol = "http/1.1"}).Handshake());
  EXPECT_TRUE(is_told("no application protocol"));
}

TEST_F(Http2TlsTest, WithoutTheRequirementACertificateIsStillVerified) {
  const auto server = Serve(false);
  EXPECT_EQ(Ask(Connect(*server), {.method = "Peer", .body = "x"}).body, "encrypted ");
  const TestCa other("Other CA");
  EXPECT_EQ(Ask(Connect(*server, other.Issue()), {.method = "Unary", .body = "x", .deadline_ms = 2000}).code, 14);
}

TEST_F(Http2TlsTest, ANewCertificateIsShownToNewConnections) {
  const auto server = Serve(false);
  RawTls before(server->target(), {});
  ASSERT_TRUE(before.Handshake());
  WriteCertificate();
  ASSERT_TRUE(certificates_->Reload().ok());
  RawTls after(server->target(), {});
  ASSERT_TRUE(after.Handshake());
  EXPECT_NE(before.ServerSerial(), after.ServerSerial());
}

TEST_F(Http2TlsTest, OldVersionsOtherProtocolsAndWeakCiphersAreRefused) {
  const auto server = Serve(false);
  EXPECT_TRUE(RawTls(server->target(), {.max_version = TLS1_2_VERSION}).Handshake());
  EXPECT_FALSE(RawTls(server->target(), {.max_version = TLS1_1_VERSION, .old_versions = true}).Handshake());
  EXPECT_FALSE(
      RawTls(server->target(), {.max_version = TLS1_2_VERSION, .ciphers = "ECDHE-ECDSA-AES128-SHA"}).Handshake());
  EXPECT_FALSE(RawTls(server->target(), {.protocol = "http/1.1"}).Handshake());
  RawTls without_protocol(server->target(), {.protocol = ""});
  without_protocol.Handshake();
  EXPECT_EQ(without_protocol.Receive(9), "");
  RawTls renegotiating(server->target(), {.max_version = TLS1_2_VERSION});
  ASSERT_TRUE(renegotiating.Handshake());
  EXPECT_NE(renegotiating.Renegotiate(), "");
  EXPECT_EQ(Ask(Connect(*server), {.method = "Unary", .body = "x"}).code, 0);
}

// RFC 8446, 6.1. Without it the client cannot tell this end from one that somebody on the way made.
TEST_F(Http2TlsTest, AConnectionThatWasDrainedEndsWithCloseNotify) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const auto server = Serve(false);
    RawTls client(server->target(), {.max_version = version});
    ASSERT_TRUE(client.Handshake());
    ASSERT_TRUE(client.Send(http2::kMagic));
    ASSERT_TRUE(client.Send(std::string("\0\0\0\4\0\0\0\0\0", http2::kFrameHeaderBytes)));
    ASSERT_NE(client.Receive(9), "");
    server->transport().Drain();
    while (!client.Receive(1024).empty()) {
    }
    EXPECT_TRUE(client.EndedByServer()) << version;
  }
}

// A client that has made the handshake and sent its half of HTTP/2's set-up.
bool Begin(RawTls& client) {
  return client.Handshake() && client.Send(http2::kMagic) &&
         client.Send(std::string("\0\0\0\4\0\0\0\0\0", http2::kFrameHeaderBytes)) && !client.Receive(9).empty();
}

TEST_F(Http2TlsTest, AFewNewKeysChangeNothing) {
  const auto server = Serve(false);
  RawTls client(server->target(), {});
  ASSERT_TRUE(Begin(client));
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(client.UpdateKeys());
  // A PING behind them is answered.
  ASSERT_TRUE(client.Send(std::string("\0\0\x8\6\0\0\0\0\0 and now", 17)));
  std::string received;
  while (received.find(" and now") == std::string::npos) {
    const std::string more = client.Receive(1024);
    ASSERT_FALSE(more.empty());
    received += more;
  }
  EXPECT_EQ(server->closed(RefusedFor::kFlood), 0);
}

// OpenSSL by itself reads on for as long as they come, and nobody else is served meanwhile.
TEST_F(Http2TlsTest, NewKeysWithoutEndEndTheConnection) {
  const auto server = Serve(false);
  RawTls client(server->target(), {});
  ASSERT_TRUE(Begin(client));
  for (int i = 0; i < 100000 && client.UpdateKeys(); ++i) {
  }
  EXPECT_TRUE(server->WaitForClosed(RefusedFor::kFlood, 1));
  EXPECT_EQ(Ask(Connect(*server), {.method = "Unary", .body = "x"}).code, 0);
}

TEST_F(Http2TlsTest, RecordsOfAByteWithoutEndEndTheConnection) {
  const auto server = Serve(false);
  RawTls client(server->target(), {});
  ASSERT_TRUE(Begin(client));
  std::string ping("\0\0\x8\6\1\0\0\0\0 ignored", 17);
  for (int i = 0; i < 100000 && client.Send(std::string(1, ping[static_cast<size_t>(i) % ping.size()])); ++i) {
  }
  EXPECT_TRUE(server->WaitForClosed(RefusedFor::kFlood, 1));
  EXPECT_EQ(Ask(Connect(*server), {.method = "Unary", .body = "x"}).code, 0);
}

TEST_F(Http2TlsTest, AHandshakeThatIsNotFinishedIsClosed) {
  const auto server = Serve(false);
  RawTls silent(server->target(), {});
  EXPECT_TRUE(server->WaitForClosed(RefusedFor::kSetup, 1));
  RawTls without_settings(server->target(), {});
  ASSERT_TRUE(without_settings.Handshake());
  EXPECT_TRUE(server->WaitForClosed(RefusedFor::kSetup, 2));
}

}  // namespace
}  // namespace normd::rpc::http2
