#include "server/admin/http_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/config.h"
#include "tests/server/admin/http_client.h"

namespace normd {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr size_t kLargePageBytes = 2 << 20;  // more than the sockets of both sides hold where one reads nothing

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<HttpPage> pages;
    pages.push_back({"/quick", [] { return HttpResponse{.body = "quick"}; }});
    pages.push_back({"/large", [] { return HttpResponse{.body = std::string(kLargePageBytes, 'x')}; }});
    pages.push_back({"/slow",
                     [this] {
                       ++slow_pages_;
                       may_end_.wait();
                       return HttpResponse{.body = "slow"};
                     },
                     /*slow=*/true});
    auto server = HttpServer::Start("127.0.0.1", 0, std::move(pages), {"normd"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  void TearDown() override { LetSlowPagesEnd(); }

  void LetSlowPagesEnd() {
    if (!let_end_) end_.set_value();
    let_end_ = true;
  }

  std::vector<UniqueFd> Connect(int count) {
    std::vector<UniqueFd> connections;
    for (int i = 0; i < count; ++i) {
      connections.push_back(Connected(server_->port()));
      EXPECT_TRUE(connections.back().valid()) << i;
    }
    return connections;
  }

  void ExpectAnswers() {
    for (int i = 0; i < 5; ++i) EXPECT_THAT(Get(server_->port(), "/quick"), EndsWith("\r\n\r\nquick"));
  }

  std::promise<void> end_;
  std::shared_future<void> may_end_ = end_.get_future().share();
  bool let_end_ = false;
  std::atomic<int> slow_pages_{0};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersBesideSilentConnections) {
  const std::vector<UniqueFd> silent = Connect(300);
  ExpectAnswers();
}

TEST_F(HttpServerTest, AnswersBesideConnectionsThatDripAndEndsThem) {
  const std::vector<UniqueFd> dripping = Connect(8);
  std::atomic<bool> stop{false};
  std::thread dripper([&dripping, &stop] {
    const std::string request = "GET /quick HTTP/1.1\r\nX: " + std::string(8000, 'x');
    for (size_t i = 0; i < request.size() && !stop; ++i) {
      for (const UniqueFd& fd : dripping) SendAll(fd, request.substr(i, 1));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  ExpectAnswers();
  for (const UniqueFd& fd : dripping) EXPECT_EQ(ReadAll(fd), "") << "ended without an answer while it drips";
  EXPECT_FALSE(stop.exchange(true));
  dripper.join();
}

TEST_F(HttpServerTest, AnswersBesideCallersThatDoNotRead) {
  std::vector<UniqueFd> greedy;
  for (int i = 0; i < 70; ++i) {
    greedy.push_back(TcpSocket());
    const int least = 1;
    setsockopt(greedy.back().get(), SOL_SOCKET, SO_RCVBUF, &least, sizeof(least));
    ASSERT_TRUE(ConnectTo(greedy.back(), server_->port()));
    SendAll(greedy.back(), "GET /large HTTP/1.1\r\n\r\n");
  }
  ExpectAnswers();
}

TEST_F(HttpServerTest, AnswersQuickPagesWhileASlowOneIsMade) {
  const UniqueFd waiting = Connected(server_->port());
  SendAll(waiting, "GET /slow HTTP/1.1\r\n\r\n");
  while (slow_pages_ == 0) std::this_thread::yield();
  ExpectAnswers();
  LetSlowPagesEnd();
  EXPECT_THAT(ReadAll(waiting), EndsWith("\r\n\r\nslow"));
}

TEST_F(HttpServerTest, QueuesNoMoreSlowPagesThanConnections) {
  std::vector<UniqueFd> waiting;
  for (int i = 0; i < 200; ++i) {
    waiting.push_back(Connected(server_->port()));
    SendAll(waiting.back(), "GET /slow HTTP/1.1\r\n\r\n");
  }
  ExpectAnswers();
  EXPECT_THAT(Get(server_->port(), "/slow"), StartsWith("HTTP/1.1 503"));
  LetSlowPagesEnd();
  server_.reset();
  EXPECT_LE(slow_pages_, 65);
}

TEST_F(HttpServerTest, SendsALargePageWhole) {
  const std::string reply = Get(server_->port(), "/large");
  EXPECT_THAT(reply.substr(0, 200), HasSubstr("Content-Length: " + std::to_string(kLargePageBytes)));
  EXPECT_EQ(reply.size() - reply.find("\r\n\r\n") - 4, kLargePageBytes);
}

TEST_F(HttpServerTest, AnswersTheHeadAlone) {
  EXPECT_THAT(Exchange(server_->port(), "HEAD /quick HTTP/1.1\r\n\r\n"), EndsWith("Connection: close\r\n\r\n"));
}

// A page of evil.example, whose name now resolves to 127.0.0.1, asks for what the listener tells.
TEST_F(HttpServerTest, RefusesAPageOfAnotherSite) {
  const auto ask = [this](const std::string& host) {
    return Exchange(server_->port(), "GET /quick HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  };
  EXPECT_THAT(ask("evil.example:8002"), StartsWith("HTTP/1.1 421 Misdirected Request\r\n"));
  EXPECT_THAT(ask("evil.example:8002"),
              EndsWith("\r\n\r\n421 Misdirected Request: Host is \"evil.example:8002\", which is no address, not "
                       "localhost and no name of --admin_hosts\n"));
  EXPECT_THAT(ask("\x1b[2J" + std::string(4000, 'x')), HasSubstr("Host is \"\\x1b[2Jxxx"));
  EXPECT_LT(ask(std::string(4000, 'x')).size(), 400U);
  for (const char* host : {"127.0.0.1:1", "[::1]", "localhost", "normd", "NORMD:8002"}) {
    EXPECT_THAT(ask(host), EndsWith("\r\n\r\nquick")) << host;
  }
  EXPECT_THAT(Exchange(server_->port(), "GET /quick HTTP/1.0\r\n\r\n"), EndsWith("\r\n\r\nquick"));
}

TEST_F(HttpServerTest, RefusesJunkAndGoesOn) {
  EXPECT_THAT(Exchange(server_->port(), "\x16\x03\x01\x02junk"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Exchange(server_->port(), std::string(1 << 20, 'A')), testing::AnyOf("", StartsWith("HTTP/1.1 400")));
  std::string many = "GET /quick HTTP/1.1\r\n";
  for (int i = 0; i < 100000; ++i) many += "a: b\r\n";
  EXPECT_THAT(Exchange(server_->port(), many), testing::AnyOf("", StartsWith("HTTP/1.1 431")));
  EXPECT_THAT(Exchange(server_->port(), "GET /none HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404"));
  ExpectAnswers();
}

TEST_F(HttpServerTest, AnswersWhereTheProcessHasNoDescriptorLeft) {
#ifdef ABSL_HAVE_ADDRESS_SANITIZER
  GTEST_SKIP() << "UndefinedBehaviorSanitizer looks at objects through pipes, for which no descriptor is left";
#endif
  const UniqueFd caller = TcpSocket();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = std::min<rlim_t>(before.rlim_cur, 256);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<UniqueFd> all;
  do {
    all.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  } while (all.back().valid());
  EXPECT_TRUE(ConnectTo(caller, server_->port()));
  SendAll(caller, "GET /quick HTTP/1.1\r\n\r\n");
  EXPECT_THAT(ReadAll(caller), EndsWith("\r\n\r\nquick"));
  all.clear();
  setrlimit(RLIMIT_NOFILE, &before);
  ExpectAnswers();
}

TEST_F(HttpServerTest, EndsAtOnceWithConnectionsOfEveryKind) {
  const std::vector<UniqueFd> silent = Connect(3);
  const UniqueFd waiting = Connected(server_->port());
  SendAll(waiting, "GET /slow HTTP/1.1\r\n\r\n");
  while (slow_pages_ == 0) std::this_thread::yield();
  LetSlowPagesEnd();
  server_.reset();
  for (const UniqueFd& fd : silent) EXPECT_EQ(ReadAll(fd), "");
}

}  // namespace
}  // namespace normd
