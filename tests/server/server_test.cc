#include "server/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "tests/support/test_certificates.h"

namespace normd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// "" when nobody answers.
std::string HttpGet(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string reply;
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
    char buffer[4096];
    for (ssize_t n = 0; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;) reply.append(buffer, n);
  }
  close(fd);
  return reply;
}

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/normd-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    unlink((folder_ + "/ports").c_str());
    rmdir((folder_ + "/run").c_str());
    rmdir(folder_.c_str());
  }

  absl::StatusOr<std::unique_ptr<Server>> Start(std::vector<std::string> args) {
    args.push_back("--port_file=" + folder_ + "/ports");
    args.push_back("--session_store=memory");
    const absl::StatusOr<Config> config = ParseConfig(args, {});
    if (!config.ok()) return config.status();
    return Server::Start(*config, &log_);
  }

  // The port in "admin=127.0.0.1:PORT".
  static int PortOf(const std::string& listener) { return std::atoi(listener.substr(listener.rfind(':') + 1).c_str()); }

  std::string SocketPath() const { return folder_ + "/run/normd.sock"; }

  std::string folder_;
  std::ostringstream out_;
  SystemClock clock_;
  Log log_{{.out = &out_}, &clock_};
};

TEST_F(ServerTest, ServesOnAllListenersAndSaysWhere) {
  const auto server = Start({"--listen=127.0.0.1:0,unix:" + SocketPath(), "--admin_listen=127.0.0.1:0"});
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_THAT((*server)->listeners(), SizeIs(3));
  EXPECT_THAT((*server)->listeners()[0], StartsWith("admin=127.0.0.1:"));
  EXPECT_THAT((*server)->listeners()[1], StartsWith("grpc=127.0.0.1:"));
  EXPECT_GT(PortOf((*server)->listeners()[1]), 0);
  EXPECT_EQ((*server)->listeners()[2], "grpc=unix:" + SocketPath());
  EXPECT_EQ(access(SocketPath().c_str(), F_OK), 0);

  const int admin = PortOf((*server)->listeners()[0]);
  EXPECT_THAT(HttpGet(admin, "/readyz"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(HttpGet(admin, "/metrics"), HasSubstr("normd_sessions 0"));
  EXPECT_THAT(HttpGet(admin, "/"), HasSubstr((*server)->listeners()[1]));
  for (const std::string& listener : (*server)->listeners()) {
    EXPECT_THAT(Contents(folder_ + "/ports"), HasSubstr(listener + "\n"));
    EXPECT_THAT(out_.str(), HasSubstr("listening " + listener + "\n"));
  }
  EXPECT_THAT(out_.str(), HasSubstr("numerics="));
  EXPECT_THAT(out_.str(), HasSubstr("device name=cpu usable=yes"));
  EXPECT_THAT(out_.str(), HasSubstr("durability=\"memory: survives nothing"));
}

TEST_F(ServerTest, AScrapeShowsFiguresOfConnectionsAndTheProcess) {
  const auto server = Start({"--listen=127.0.0.1:0", "--admin_listen=127.0.0.1:0"});
  ASSERT_TRUE(server.ok()) << server.status();
  HttpGet(PortOf((*server)->listeners()[1]), "/");  // which is not HTTP/2
  const std::string closed = "normd_connections_closed_total{reason=\"foreign\"} 1\n";
  std::string text;
  for (int i = 0; i < 200 && text.find(closed) == std::string::npos; ++i) {
    text = HttpGet(PortOf((*server)->listeners()[0]), "/metrics");
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_THAT(text, HasSubstr(closed));
  EXPECT_THAT(text, HasSubstr("\nprocess_threads "));
  EXPECT_THAT(text, Not(HasSubstr("\nprocess_threads 0\n")));
}

TEST_F(ServerTest, DrainsNotReadyFirstAndLeavesNothingBehind) {
  auto server =
      Start({"--listen=127.0.0.1:0,unix:" + SocketPath(), "--admin_listen=127.0.0.1:0", "--drain_settle=300ms"});
  ASSERT_TRUE(server.ok()) << server.status();
  const int admin = PortOf((*server)->listeners()[0]);
  std::thread drain([&server] { (*server)->Drain(); });
  std::string ready;
  for (int i = 0; i < 200 && ready.find(" 503 ") == std::string::npos; ++i) {
    ready = HttpGet(admin, "/readyz");
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_THAT(ready, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(ready, HasSubstr("draining"));
  drain.join();
  EXPECT_THAT(HttpGet(admin, "/healthz"), StartsWith("HTTP/1.1 200")) << "alive to the end";
  server->reset();
  EXPECT_EQ(HttpGet(admin, "/healthz"), "");
  EXPECT_NE(access(SocketPath().c_str(), F_OK), 0) << "the socket file is removed";
}

TEST_F(ServerTest, ReloadsReloadableOptionsAndReportsTheOthers) {
  const std::vector<std::string> args = {"--listen=127.0.0.1:0", "--admin_listen=", "--session_store=memory"};
  const auto server = Start(args);
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<std::string> changed = args;
  changed.insert(changed.end(), {"--max_sessions=7", "--drain_timeout=1m", "--queues=3",
                                 "--session_store=postgres://me:secret@host/db"});
  (*server)->Reload(*ParseConfig(changed, {}));
  EXPECT_EQ((*server)->config().max_sessions, 7);
  EXPECT_EQ((*server)->config().drain_timeout, absl::Minutes(1));
  EXPECT_EQ((*server)->config().queues, 0) << "as it was at the start";
  EXPECT_EQ((*server)->config().session_store, "memory");
  EXPECT_THAT(out_.str(), HasSubstr("INFO option changed name=max_sessions from=100000 to=7\n"));
  EXPECT_THAT(out_.str(), HasSubstr("INFO option changed name=drain_timeout from=30s to=1m\n"));
  EXPECT_THAT(out_.str(), HasSubstr("WARN a changed option needs a restart name=queues from=0 to=3\n"));
  EXPECT_THAT(out_.str(), HasSubstr("name=session_store from=memory to=\"postgres://(not shown)\"\n"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("secret")));
}

TEST_F(ServerTest, SaysWhichPortIsTaken) {
  const auto first = Start({"--listen=127.0.0.1:0", "--admin_listen=127.0.0.1:0"});
  ASSERT_TRUE(first.ok()) << first.status();
  const int admin = PortOf((*first)->listeners()[0]);
  const int grpc = PortOf((*first)->listeners()[1]);
  const std::string grpc_taken = "127.0.0.1:" + std::to_string(grpc);
  const absl::Status second = Start({"--listen=" + grpc_taken, "--admin_listen="}).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.message()), HasSubstr(grpc_taken));
  const std::string admin_taken = "127.0.0.1:" + std::to_string(admin);
  const absl::Status third = Start({"--listen=127.0.0.1:0", "--admin_listen=" + admin_taken}).status();
  EXPECT_EQ(third.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(third.message()), HasSubstr(admin_taken));
}

TEST_F(ServerTest, DoesNotTakeTheSocketOfALiveServer) {
  const auto first = Start({"--listen=unix:" + SocketPath(), "--admin_listen="});
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = Start({"--listen=unix:" + SocketPath(), "--admin_listen="}).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(access(SocketPath().c_str(), F_OK), 0) << "and the first keeps it";
}

TEST_F(ServerTest, EndsWhenThePortFileCannotBeWritten) {
  const absl::StatusOr<Config> config = ParseConfig(
      {{"--listen=127.0.0.1:0", "--admin_listen=", "--session_store=memory", "--port_file=" + folder_ + "/none/ports"}},
      {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(std::string(Server::Start(*config, &log_).status().message()), HasSubstr("--port_file"));
}

TEST_F(ServerTest, ServesTlsAndReloadsItsCertificatesOnRequest) {
  const TestCa ca("Test CA");
  const std::string certificate = folder_ + "/server.pem", key = folder_ + "/server.key";
  const auto write = [&] {
    const TestCertificate pair = ca.Issue();
    WriteFile(certificate, pair.certificate);
    WriteFile(key, pair.key);
  };
  write();
  const std::vector<std::string> options = {"--listen=127.0.0.1:0", "--admin_listen=127.0.0.1:0",
                                            "--tls_certificate=" + certificate, "--tls_key=" + key};
  {
    const auto server = Start(options);
    ASSERT_TRUE(server.ok()) << server.status().message();
    const int admin = PortOf((*server)->listeners()[0]);
    write();
    (*server)->ReloadFiles();
    const std::string metrics = HttpGet(admin, "/metrics");
    EXPECT_THAT(metrics, HasSubstr("\nnormd_tls_reloads_total 1\n"));
    EXPECT_THAT(metrics, Not(HasSubstr("\nnormd_tls_certificate_expiry_timestamp_seconds 0\n")));
    unlink(key.c_str());
    (*server)->ReloadFiles();
    EXPECT_THAT(HttpGet(admin, "/metrics"), HasSubstr("\nnormd_tls_reload_failures_total 1\n"));
    EXPECT_THAT(out_.str(), HasSubstr("new certificates cannot be used"));
  }
  EXPECT_THAT(std::string(Start(options).status().message()), HasSubstr("--tls_key is " + key));
  unlink(certificate.c_str());
}

}  // namespace
}  // namespace normd
