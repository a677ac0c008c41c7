#include "server/rpc/grpc/grpc_tls_peer.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/rpc/grpc/tls_credentials.h"
#include "tests/support/test_certificates.h"

namespace normd::rpc {
namespace {

// A gRPC server that hands out calls as they arrive and answers none.
class TlsPeerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "normd-tls-peer-" + std::to_string(getpid());
    const CertificatePaths paths = {
        .certificate = folder_ + ".pem", .key = folder_ + ".key", .client_ca = folder_ + "-ca.pem"};
    const TestCertificate pair = ca_.Issue();
    WriteFile(paths.certificate, pair.certificate);
    WriteFile(paths.key, pair.key);
    WriteFile(paths.client_ca, ca_.certificate());
    auto opened = ServerCertificates::Open(paths, absl::Hours(1), &clock_, {});
    for (const std::string* path : {&paths.certificate, &paths.key, &paths.client_ca}) unlink(path->c_str());
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    certificates_ = *std::move(opened);
    grpc::ServerBuilder builder;
    credentials_ = std::make_shared<TlsCredentials>(certificates_.get(), false);
    builder.AddListeningPort("127.0.0.1:0", credentials_, &tls_port_);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &plain_port_);
    builder.RegisterAsyncGenericService(&service_);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void TearDown() override {
    client_queue_.Shutdown();
    server_->Shutdown(std::chrono::system_clock::now());
    queue_->Shutdown();
    void* tag = nullptr;
    bool ok = false;
    for (grpc::CompletionQueue* queue : {&client_queue_, static_cast<grpc::CompletionQueue*>(queue_.get())}) {
      while (queue->Next(&tag, &ok)) {
      }
    }
  }

  struct ServerCall {
    grpc::GenericServerContext context;
    grpc::GenericServerAsyncReaderWriter stream{&context};
  };
  struct ClientCall {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
  };

  std::shared_ptr<grpc::Channel> Connect(const TestCertificate& pair, bool tls = true) const {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = ca_.certificate();
    options.pem_private_key = pair.key;
    options.pem_cert_chain = pair.certificate;
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(tls ? tls_port_ : plain_port_),
                                     tls ? grpc::SslCredentials(options) : grpc::InsecureChannelCredentials(),
                                     arguments);
  }
  // Starts a call and waits until the server has it.
  grpc_call* Arrive(const std::shared_ptr<grpc::Channel>& channel) {
    server_calls_.push_back(std::make_unique<ServerCall>());
    ServerCall& call = *server_calls_.back();
    service_.RequestCall(&call.context, &call.stream, queue_.get(), queue_.get(), this);
    client_calls_.push_back(std::make_unique<ClientCall>());
    ClientCall& client = *client_calls_.back();
    client.stream = grpc::GenericStub(channel).PrepareCall(&client.context, "/a/b", &client_queue_);
    client.stream->StartCall(nullptr);
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue_->Next(&tag, &ok) && ok);
    return call.context.c_call();
  }
  net::TlsPeerPtr PeerOf(const std::shared_ptr<grpc::Channel>& channel) {
    TlsPeerMemory memory;
    return FindTlsPeer(Arrive(channel), memory);
  }
  std::string NameOf(const TestCertificateSpec& spec) { return PeerOf(Connect(ca_.Issue(spec)))->certificate_name; }

  const TestCa ca_{"Test CA"};
  std::string folder_;
  SystemClock clock_;
  std::unique_ptr<ServerCertificates> certificates_;
  std::shared_ptr<TlsCredentials> credentials_;
  grpc::AsyncGenericService service_;
  grpc::CompletionQueue client_queue_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  int tls_port_ = 0;
  int plain_port_ = 0;
  std::vector<std::unique_ptr<ServerCall>> server_calls_;
  std::vector<std::unique_ptr<ClientCall>> client_calls_;
};

TEST_F(TlsPeerTest, ThePeersNameIsItsFirstUriElseItsFirstDnsNameElseItsCommonName) {
  EXPECT_EQ(NameOf({.alternative_names = "DNS:a.test,URI:spiffe://test/one,URI:spiffe://test/two"}),
            "uri:spiffe://test/one");
  EXPECT_EQ(NameOf({.alternative_names = "IP:127.0.0.1,DNS:a.test,DNS:b.test"}), "dns:a.test");
  EXPECT_EQ(NameOf({.common_name = "trainer", .alternative_names = "IP:127.0.0.1"}), "cn:trainer");
  EXPECT_EQ(NameOf({.common_name = "trainer", .alternative_names = ""}), "cn:trainer");
}

TEST_F(TlsPeerTest, ACallerWithoutACertificateHasNoName) {
  const net::TlsPeerPtr peer = PeerOf(Connect({}));
  EXPECT_TRUE(peer->is_encrypted);
  EXPECT_EQ(peer->certificate_name, "");
}

TEST_F(TlsPeerTest, APlainCallIsNotEncrypted) {
  const net::TlsPeerPtr peer = PeerOf(Connect({}, /*tls=*/false));
  EXPECT_FALSE(peer->is_encrypted);
  EXPECT_EQ(peer->certificate_name, "");
}

// The peers of two connections in one cache, as when the address of one is reused by the other while calls of the first
// are still coming.
TEST_F(TlsPeerTest, AMemoryNeverGivesTheNameOfAnotherConnection) {
  const auto one = Connect(ca_.Issue({.common_name = "one", .alternative_names = ""}));
  const auto two = Connect(ca_.Issue({.common_name = "two", .alternative_names = ""}));
  const auto plain = Connect({}, /*tls=*/false);
  TlsPeerMemory memory;
  const net::TlsPeerPtr first = FindTlsPeer(Arrive(one), memory);
  EXPECT_EQ(first->certificate_name, "cn:one");
  EXPECT_EQ(FindTlsPeer(Arrive(one), memory), first) << "it is remembered";
  EXPECT_EQ(FindTlsPeer(Arrive(two), memory)->certificate_name, "cn:two");
  EXPECT_FALSE(FindTlsPeer(Arrive(plain), memory)->is_encrypted);
  EXPECT_EQ(FindTlsPeer(Arrive(one), memory)->certificate_name, "cn:one");
}

}  // namespace
}  // namespace normd::rpc
