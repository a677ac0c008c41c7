// TLS and mTLS over real sockets: who gets in, what stays outside, and certificates that change under live connections.
#include <grpcpp/security/credentials.h>
#include <openssl/ssl.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/rpc/services/method_names.h"
#include "server/security/access_control.h"
#include "server/security/server_certificates.h"
#include "tests/e2e/test_server.h"
#include "tests/support/client_hello.h"
#include "tests/support/raw_http2.h"
#include "tests/support/raw_tls.h"
#include "tests/support/test_certificates.h"

namespace normd::e2e {
namespace {

using std::chrono::seconds;

constexpr int kRound = 3;  // calls that show that a connection serves

// A server with TLS and its files, of which each test has its own.
class TlsTest : public ::testing::Test {
 protected:
  // REQUIRES: once a test. `client_ca`: clients must show a certificate of `clients_`, unless the option is off.
  void Serve(bool client_ca = false, RpcOptions options = {}) {
    WritePair(server_pair_);
    paths_.certificate = folder_.path() + "/server.pem";
    paths_.key = folder_.path() + "/server.key";
    if (client_ca) {
      paths_.client_ca = folder_.path() + "/clients.pem";
      WriteFile(paths_.client_ca, clients_.certificate());
    }
    auto opened = ServerCertificates::Open(paths_, absl::Hours(1), &clock_, {});
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    certificates_ = *std::move(opened);
    options.certificates = certificates_.get();
    server_ = std::make_unique<TestServer>(std::move(options));
  }
  void WritePair(const TestCertificate& pair) {
    WriteFile(folder_.path() + "/server.pem", pair.certificate);
    WriteFile(folder_.path() + "/server.key", pair.key);
  }

  // A channel with a connection of its own; with an empty `pair` the client shows no certificate.
  std::shared_ptr<grpc::Channel> Channel(const TestCertificate& pair = {}) const {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = servers_.certificate();
    options.pem_private_key = pair.key;
    options.pem_cert_chain = pair.certificate;
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(server_->target(), grpc::SslCredentials(options), arguments);
  }
  static grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel,
                           const v1::NormalizeRequest& request = LayerNormRequest()) {
    grpc::ClientContext context;
    v1::NormalizeResponse response;
    return v1::Normalizer::NewStub(channel)->Normalize(&context, request, &response);
  }
  static void ExpectServed(const std::shared_ptr<grpc::Channel>& channel) {
    for (int i = 0; i < kRound; ++i) {
      const grpc::Status status = Call(channel);
      EXPECT_TRUE(status.ok()) << status.error_message();
    }
  }
  static void ExpectNoConnection(const std::shared_ptr<grpc::Channel>& channel) {
    EXPECT_EQ(Call(channel).error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  int64_t Closed(RefusedFor reason) const {
    return server_->server().connections().refused[static_cast<size_t>(reason)];
  }
  std::string ServerSerial() const {
    RawTls client(server_->target(), {});
    return client.Handshake() ? client.ServerSerial() : "no handshake";
  }

  const TestCa servers_{"Servers' CA"};
  const TestCa clients_{"Clients' CA"};
  const TestCertificate server_pair_ = servers_.Issue();
  const TemporaryFolder folder_;
  CertificatePaths paths_;
  SystemClock clock_;
  std::unique_ptr<ServerCertificates> certificates_;
  std::unique_ptr<TestServer> server_;  // ends before the certificates that it borrows
};

TEST_F(TlsTest, ServesUnaryCallsAndStreams) {
  Serve();
  const auto channel = Channel();
  ExpectServed(channel);
  grpc::ClientContext context;
  const auto stream = v1::Normalizer::NewStub(channel)->NormalizeStream(&context);
  for (int i = 0; i < kRound; ++i) {
    v1::StreamRequest request;
    *request.mutable_call() = LayerNormRequest();
    ASSERT_TRUE(stream->Write(request));
    v1::StreamResponse response;
    ASSERT_TRUE(stream->Read(&response));
  }
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(TlsTest, RequestsAreReportedAsComeOverTls) {
  std::atomic<int> over_tls{0};
  RpcOptions options;
  options.observer.on_request_done = [&over_tls](const RequestRecord& record) {
    if (record.origin.transport == Transport::kTls) ++over_tls;
  };
  Serve(/*client_ca=*/false, std::move(options));
  ExpectServed(Channel());
  EXPECT_EQ(over_tls, kRound);
}

TEST_F(TlsTest, AnyClientIsServedWhereNoClientCaIsGiven) {
  Serve();
  ExpectServed(Channel(clients_.Issue()));
}

TEST_F(TlsTest, OnlyCertificatesOfTheClientCaGetIn) {
  Serve(/*client_ca=*/true);
  ExpectServed(Channel(clients_.Issue({.alternative_names = "URI:spiffe://test/trainer"})));
  ExpectNoConnection(Channel());
  ExpectNoConnection(Channel(servers_.Issue()));
  ExpectNoConnection(Channel(clients_.Issue({.valid_until_seconds = -60})));
  ExpectNoConnection(Channel(clients_.Issue({.valid_from_seconds = 3600})));
  ExpectNoConnection(Channel(clients_.Issue({.key_usage = "serverAuth"})));
  ExpectServed(Channel(clients_.Issue()));
}

TEST_F(TlsTest, AnOptionalClientCertificateMayBeMissingAndNotWrong) {
  Serve(/*client_ca=*/true, {.require_client_certificate = false});
  ExpectServed(Channel());
  ExpectServed(Channel(clients_.Issue()));
  ExpectNoConnection(Channel(servers_.Issue()));
}

TEST_F(TlsTest, ConnectionsThatEndBeforeACallAreCounted) {
  Serve(/*client_ca=*/true);
  ExpectServed(Channel(clients_.Issue()));
  { RawTls(server_->target(), {}).Handshake(); }
  EXPECT_TRUE(Eventually([&] { return server_->server().connections().without_call == 1; }));
}

TEST_F(TlsTest, ANewCertificateIsForNewConnectionsAndTheOldOnesGoOn) {
  Serve();
  const auto old = Channel();
  ExpectServed(old);
  RawTls raw(server_->target(), {});
  ASSERT_TRUE(raw.Handshake());
  const std::string first = raw.ServerSerial();
  EXPECT_EQ(ServerSerial(), first);
  WritePair(servers_.Issue());
  ASSERT_TRUE(certificates_->Reload().ok());
  const std::string second = ServerSerial();
  EXPECT_NE(second, first);
  EXPECT_EQ(ServerSerial(), second);
  EXPECT_GE(server_->server().connections().open, 2);
  ExpectServed(old);
  EXPECT_EQ(raw.ServerSerial(), first);
  ExpectServed(Channel());
}

TEST_F(TlsTest, ABadPairLeavesTheLastGoodOne) {
  Serve();
  const std::string first = ServerSerial();
  WriteFile(paths_.key, servers_.Issue().key);
  EXPECT_FALSE(certificates_->Reload().ok());
  EXPECT_EQ(ServerSerial(), first);
  ExpectServed(Channel());
}

TEST_F(TlsTest, ANewClientCaIsForNewConnections) {
  Serve(/*client_ca=*/true);
  const auto old = Channel(clients_.Issue());
  ExpectServed(old);
  const TestCa others("Other clients' CA");
  WriteFile(paths_.client_ca, others.certificate());
  ASSERT_TRUE(certificates_->Reload().ok());
  ExpectServed(Channel(others.Issue()));
  ExpectNoConnection(Channel(clients_.Issue()));
  ExpectServed(old);
}

TEST_F(TlsTest, HalfDoneHandshakesAreEndedAndOthersServedMeanwhile) {
  Serve(/*client_ca=*/false, {.setup_timeout = absl::Seconds(1)});
  const std::string hello = MakeClientHello();
  std::vector<std::unique_ptr<RawHttp2>> peers;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{5}, hello.size() - 1, hello.size()}) {
    peers.push_back(std::make_unique<RawHttp2>(server_->target()));
    peers.back()->SendBytes(hello.substr(0, size));
  }
  ExpectServed(Channel());
  // A byte now and then does not prolong the time.
  RawHttp2 dripping(server_->target());
  bool open = true;
  for (size_t i = 0; i + 1 < hello.size() && open; ++i) {
    open = dripping.SendBytes(hello.substr(i, 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_FALSE(open);
  for (const auto& peer : peers) EXPECT_TRUE(peer->WaitForClose(seconds(10)));
  // gRPC ends the one whose hello was whole, and tells nobody.
  EXPECT_EQ(Closed(RefusedFor::kSetup), TestedTransport() == TransportKind::kNative ? 6 : 5);
  EXPECT_TRUE(Eventually([&] { return server_->server().connections().without_call == 1; }));
  ExpectServed(Channel());
}

// Handshakes that are done and then silence: HTTP/2's set-up is bounded, too.
TEST_F(TlsTest, AHandshakeWithoutHttp2IsEnded) {
  Serve(/*client_ca=*/false, {.setup_timeout = absl::Seconds(1)});
  RawTls client(server_->target(), {});
  ASSERT_TRUE(client.Handshake());
  while (!client.Receive(1024).empty()) {
  }
  EXPECT_TRUE(Eventually([&] { return server_->server().connections().open == 0; }));
}

TEST_F(TlsTest, PlainTextIsTurnedAway) {
  Serve();
  RawHttp2 http2(server_->target());
  http2.SendPreface();
  EXPECT_TRUE(http2.WaitForClose(seconds(10)));
  RawHttp2 http1(server_->target());
  http1.SendBytes("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(http1.WaitForClose(seconds(10)));
  EXPECT_EQ(Closed(RefusedFor::kPlaintext), 2);
  RawHttp2 junk(server_->target());
  junk.SendBytes("hello");
  EXPECT_TRUE(junk.WaitForClose(seconds(10)));
  EXPECT_EQ(Closed(RefusedFor::kForeign), 1);
  ExpectServed(Channel());
}

TEST_F(TlsTest, TlsIsTurnedAwayWhereItIsNotSpoken) {
  TestServer plain;
  RawHttp2 peer(plain.target());
  peer.SendBytes(MakeClientHello());
  EXPECT_TRUE(peer.WaitForClose(seconds(10)));
  EXPECT_EQ(plain.server().connections().refused[static_cast<size_t>(RefusedFor::kTls)], 1);
  plain.ExpectAlive();
}

TEST_F(TlsTest, OldVersionsWeakCiphersAndOtherProtocolsGetNoConnection) {
  Serve();
  EXPECT_TRUE(RawTls(server_->target(), {.max_version = TLS1_2_VERSION}).Handshake());
  EXPECT_FALSE(RawTls(server_->target(), {.max_version = TLS1_1_VERSION, .old_versions = true}).Handshake());
  // Suites without authenticated encryption, or without forward secrecy.
  for (const char* const cipher : {"ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA", "AES128-GCM-SHA256"}) {
    EXPECT_FALSE(RawTls(server_->target(), {.max_version = TLS1_2_VERSION, .ciphers = cipher}).Handshake()) << cipher;
  }
  for (const char* const protocol : {"", "http/1.1"}) {
    RawTls client(server_->target(), {.protocol = protocol});
    EXPECT_TRUE(!client.Handshake() || client.Receive(1).empty()) << protocol;
  }
  ExpectServed(Channel());
}

TEST_F(TlsTest, RenegotiationsAreRefusedAndOthersServedMeanwhile) {
  Serve();
  std::atomic<bool> ending{false};
  std::thread caller([&] {
    const std::shared_ptr<grpc::Channel> channel = Channel();
    while (!ending) ExpectServed(channel);
  });
  const auto renegotiate = [this] {
    RawTls client(server_->target(), {.max_version = TLS1_2_VERSION});
    ASSERT_TRUE(client.Handshake());
    ASSERT_TRUE(client.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string("\0\0\0\4\0\0\0\0\0", 9)));
    ASSERT_FALSE(client.Receive(9).empty());
    EXPECT_NE(client.Renegotiate(), "");
  };
  for (int i = 0; i < 20; ++i) renegotiate();
  ending = true;
  caller.join();
  ExpectServed(Channel());
}

TEST_F(TlsTest, HandshakesUnderWayCountAsConnections) {
  Serve(/*client_ca=*/false, {.max_connections = 4, .max_connections_per_peer = 3});
  const std::string hello = MakeClientHello();
  {
    std::vector<std::unique_ptr<RawHttp2>> peers;
    for (int i = 0; i < 3; ++i) {
      peers.push_back(std::make_unique<RawHttp2>(server_->target()));
      peers.back()->SendBytes(i == 0 ? hello.substr(0, 10) : hello);
    }
    ASSERT_TRUE(Eventually([&] { return server_->server().connections().open == 3; }));
    RawHttp2 one_more(server_->target());
    EXPECT_TRUE(one_more.WaitForClose(seconds(10)));
    EXPECT_EQ(Closed(RefusedFor::kAddress), 1);
  }
  EXPECT_TRUE(Eventually([&] { return Call(Channel()).ok(); }));
}

TEST_F(TlsTest, ADrainFinishesTheCallsInFlight) {
  Serve();
  const auto channel = Channel();
  ExpectServed(channel);
  server_->backend().Close();
  const int before = server_->backend().submitted();
  grpc::Status status;
  std::thread caller([&] { status = Call(channel); });
  server_->backend().WaitForSubmitted(before + 1);
  std::thread drain([&] { server_->server().Shutdown(absl::Seconds(60)); });
  RawHttp2 late(server_->target());
  server_->backend().Open();
  caller.join();
  drain.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
  ExpectNoConnection(Channel());
}

TEST_F(TlsTest, LargeMessagesComeThroughWhole) {
  Serve();
  const auto channel = Channel();
  std::vector<float> values(4 << 20);  // 16 MiB
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000) - 500;
  const v1::NormalizeRequest request = RmsNormRequest(values);
  for (int i = 0; i < kRound; ++i) {
    grpc::ClientContext context;
    v1::NormalizeResponse response;
    const grpc::Status status = v1::Normalizer::NewStub(channel)->Normalize(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    const std::vector<float> normed = Values<float>(response.outputs(0).tensor());
    ASSERT_EQ(normed.size(), values.size());
    // One factor for all: every value keeps its ratio to the first.
    EXPECT_NEAR(normed[values.size() - 1] / normed[0], values[values.size() - 1] / values[0], 1e-5);
    EXPECT_NEAR(normed[1234567] / normed[0], values[1234567] / values[0], 1e-5);
  }
}

TEST_F(TlsTest, ThePolicyKnowsCallersByTheirCertificates) {
  const std::string policy = folder_.path() + "/policy";
  WriteFile(policy, "[[allow]]\nidentities = [\"uri:spiffe://test/trainer\"]\nmethods = [\"*\"]\n");
  const auto access = AccessControl::Open(
      {.policy_file = policy, .asks_certificates = true, .methods = rpc::AllMethodPaths()}, &clock_);
  ASSERT_TRUE(access.ok()) << access.status().message();
  RpcOptions options;
  options.access = access->get();
  options.require_client_certificate = false;
  Serve(/*client_ca=*/true, std::move(options));
  ExpectServed(Channel(clients_.Issue({.alternative_names = "URI:spiffe://test/trainer"})));
  const auto other = Channel(clients_.Issue({.alternative_names = "URI:spiffe://test/other"}));
  EXPECT_EQ(Call(other).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Call(Channel()).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  server_.reset();  // before `access`
}

TEST_F(TlsTest, AUnixSocketStaysPlain) {
  const std::string path = "unix:" + folder_.path() + "/normd.sock";
  Serve(/*client_ca=*/true, {.listeners = {path, "127.0.0.1:0"}});
  server_->ExpectAlive();
}

}  // namespace
}  // namespace normd::e2e
