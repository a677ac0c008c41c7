// Fixtures of the tests of TLS and tokens: certificates as deploy/make-certificates.sh makes them, and a server of
// generated services that notes which token each call brings.
#ifndef NORMD_TESTS_CLIENT_TLS_SERVER_H_
#define NORMD_TESTS_CLIENT_TLS_SERVER_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_interceptor.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "normd/v1/normalizer.grpc.pb.h"
#include "normd/v1/sessions.grpc.pb.h"
#include "normd/v1/shared_memory.grpc.pb.h"

namespace normd {

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteText(const std::string& path, absl::string_view text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

inline void RunShell(const std::string& command) {
  // NOLINTNEXTLINE(cert-env33-c,concurrency-mt-unsafe): the openssl program is what users run, too.
  EXPECT_EQ(system(command.c_str()), 0) << command;
}

// A temporary folder with certificates: CA, server, client and token, and the same of another CA in other/.
class Certificates {
 public:
  Certificates() {
    char name[] = "/tmp/normd-test-XXXXXX";
    EXPECT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    Make(folder_);
    Make(folder_ + "/other");
    // A server certificate that has expired: no option of the script makes one.
    RunShell(absl::StrCat("cd ", folder_,
                          " && printf 'subjectAltName=IP:127.0.0.1' >extensions && openssl req -new -key ",
                          "server.key -subj /CN=expired | openssl x509 -req -CA ca.crt -CAkey ca.key -set_serial 7 ",
                          "-days -1 -extfile extensions -out expired.crt 2>log"));
  }
  ~Certificates() { std::filesystem::remove_all(folder_); }
  Certificates(const Certificates&) = delete;
  Certificates& operator=(const Certificates&) = delete;

  std::string Path(absl::string_view name) const { return absl::StrCat(folder_, "/", name); }
  std::string Text(absl::string_view name) const { return ReadText(Path(name)); }

 private:
  static void Make(const std::string& folder) {
    RunShell(absl::StrCat(NORMD_SOURCE_DIR, "/deploy/make-certificates.sh ", folder, " >/dev/null"));
  }

  std::string folder_;
};

// The credentials of a server with a certificate of `certificates`; with `client_ca` it asks for client certificates.
inline std::shared_ptr<grpc::ServerCredentials> TlsOf(const Certificates& certificates,
                                                      absl::string_view certificate = "server.crt",
                                                      bool client_ca = false) {
  grpc::SslServerCredentialsOptions options(client_ca ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                                      : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  options.pem_key_cert_pairs.push_back({certificates.Text("server.key"), certificates.Text(certificate)});
  if (client_ca) options.pem_root_certs = certificates.Text("ca.crt");
  return grpc::SslServerCredentials(options);
}

// The `authorization` of calls, by method. Thread-safe.
class SeenTokens {
 public:
  void Add(const std::string& method, const std::string& token) {
    const std::lock_guard<std::mutex> lock(mu_);
    tokens_[method].push_back(token);
  }
  std::map<std::string, std::vector<std::string>> Take() {
    const std::lock_guard<std::mutex> lock(mu_);
    return std::exchange(tokens_, {});
  }

 private:
  std::mutex mu_;
  std::map<std::string, std::vector<std::string>> tokens_;
};

class TokenInterceptor : public grpc::experimental::Interceptor {
 public:
  TokenInterceptor(SeenTokens* seen, std::string method) : seen_(seen), method_(std::move(method)) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Point::POST_RECV_INITIAL_METADATA)) {
      const auto* const metadata = methods->GetRecvInitialMetadata();
      const auto [begin, end] = metadata->equal_range("authorization");
      for (auto it = begin; it != end; ++it) seen_->Add(method_, {it->second.data(), it->second.size()});
      if (begin == end) seen_->Add(method_, "");
    }
    methods->Proceed();
  }

 private:
  SeenTokens* const seen_;
  const std::string method_;
};

class TokenInterceptorFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit TokenInterceptorFactory(SeenTokens* seen) : seen_(seen) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    return new TokenInterceptor(seen_, info->method());
  }

 private:
  SeenTokens* const seen_;
};

// Answers Normalize and health; every other method is UNIMPLEMENTED, once its token is noted.
class TokenServer : private v1::Normalizer::Service, private grpc::health::v1::Health::Service {
 public:
  // At a free port of 127.0.0.1 or, if `address` is given, there.
  explicit TokenServer(const std::shared_ptr<grpc::ServerCredentials>& credentials,
                       const std::string& address = "127.0.0.1:0") {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, credentials, &port_);
    builder.RegisterService(static_cast<v1::Normalizer::Service*>(this));
    builder.RegisterService(static_cast<grpc::health::v1::Health::Service*>(this));
    builder.RegisterService(&sessions_);
    builder.RegisterService(&shared_memory_);
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
    factories.push_back(std::make_unique<TokenInterceptorFactory>(&seen_));
    builder.experimental().SetInterceptorCreators(std::move(factories));
    server_ = builder.BuildAndStart();
  }
  ~TokenServer() override { server_->Shutdown(std::chrono::system_clock::now()); }
  TokenServer(const TokenServer&) = delete;
  TokenServer& operator=(const TokenServer&) = delete;

  std::string target() const { return absl::StrCat("127.0.0.1:", port_); }
  SeenTokens& seen() { return seen_; }

  // The answer to Normalize number `call`, from 1. Set it before the first call.
  std::function<grpc::Status(int call)> answer = [](int) { return grpc::Status::OK; };

 private:
  grpc::Status Normalize(grpc::ServerContext*, const v1::NormalizeRequest*, v1::NormalizeResponse*) override {
    return answer(++calls_);
  }
  grpc::Status Check(grpc::ServerContext*, const grpc::health::v1::HealthCheckRequest*,
                     grpc::health::v1::HealthCheckResponse* response) override {
    response->set_status(grpc::health::v1::HealthCheckResponse::SERVING);
    return grpc::Status::OK;
  }

  v1::Sessions::Service sessions_;
  v1::SharedMemory::Service shared_memory_;
  std::atomic<int> calls_{0};
  SeenTokens seen_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace normd

#endif  // NORMD_TESTS_CLIENT_TLS_SERVER_H_
