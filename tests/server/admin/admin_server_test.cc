#include "server/admin/admin_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "tests/server/admin/http_client.h"
#include "tests/server/admin/metric_series.h"

namespace normd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class AdminServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    AdminPages pages;
    pages.metrics = [] { return std::string("normd_up 1\n"); };
    pages.state = [this] { return state_.load(); };
    pages.peek = [] {
      return MetricReading(
          {{.name = "normd_requests_total", .metric = {CounterSeries({{"code", "OK"}, {"method", "A/One"}}, 7)}}});
    };
    pages.status = [] { return StatusFacts{.facts = {{"version", "<1&2>"}}, .devices = {}, .limits = {}}; };
    auto server = AdminServer::Start("127.0.0.1", 0, pages);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::atomic<ServingState> state_ = ServingState::kServing;
  std::unique_ptr<AdminServer> server_;
};

TEST_F(AdminServerTest, ServesMetrics) {
  const std::string reply = Get(server_->port(), "/metrics");
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(reply, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(reply, HasSubstr("\r\n\r\nnormd_up 1\n"));
}

TEST_F(AdminServerTest, IsReadyOnlyWhileServingAndAliveAlways) {
  EXPECT_THAT(Get(server_->port(), "/readyz"), StartsWith("HTTP/1.1 200"));
  state_ = ServingState::kDraining;
  const std::string draining = Get(server_->port(), "/readyz");
  EXPECT_THAT(draining, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(draining, HasSubstr("draining"));
  state_ = ServingState::kStarting;
  EXPECT_THAT(Get(server_->port(), "/readyz"), HasSubstr("starting"));
  EXPECT_THAT(Get(server_->port(), "/healthz"), StartsWith("HTTP/1.1 200"));
}

TEST_F(AdminServerTest, ShowsAStatusPageWithEverythingEscaped) {
  const std::string reply = Get(server_->port(), "/");
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(reply, HasSubstr("text/html"));
  EXPECT_THAT(reply, HasSubstr("&lt;1&amp;2&gt;"));
  EXPECT_THAT(reply, Not(HasSubstr("<1&2>")));
  EXPECT_THAT(reply, HasSubstr("A/<wbr>One"));
  EXPECT_THAT(reply, HasSubstr("class=\"serving\">serving</span>"));
}

TEST_F(AdminServerTest, ShowsTheSameStatusAsText) {
  const std::string reply = Get(server_->port(), "/statusz");
  EXPECT_THAT(reply, HasSubstr("text/plain"));
  EXPECT_THAT(reply, HasSubstr("<1&2>"));
  EXPECT_THAT(reply, HasSubstr("A/One"));
  EXPECT_THAT(reply, Not(HasSubstr("Content-Security-Policy")));
}

TEST_F(AdminServerTest, LetsNothingRunInTheStatusPageButItsOwnScript) {
  const auto nonce_of = [](const std::string& reply) {
    const std::string begin = "script-src 'nonce-";
    const size_t at = reply.find(begin) + begin.size();
    return reply.substr(at, reply.find('\'', at) - at);
  };
  const std::string reply = Get(server_->port(), "/");
  const std::string nonce = nonce_of(reply);
  EXPECT_EQ(nonce.size(), 32u);
  EXPECT_THAT(reply, HasSubstr("Content-Security-Policy: default-src 'none'; connect-src 'self';"));
  EXPECT_THAT(reply, HasSubstr("<script nonce=\"" + nonce + "\">"));
  EXPECT_THAT(reply, HasSubstr("<style nonce=\"" + nonce + "\">"));
  for (const char* part : {"{{", " style=", " onclick=", " onload=", "src=\"", "url(", "@import"}) {
    EXPECT_THAT(reply, Not(HasSubstr(part)));
  }
  EXPECT_NE(nonce_of(Get(server_->port(), "/")), nonce);
}

TEST_F(AdminServerTest, AnswersNothingElse) {
  EXPECT_THAT(Get(server_->port(), "/metrics/more"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get(server_->port(), "/../etc/passwd"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Exchange(server_->port(), "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"),
              StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Get(server_->port(), "/healthz"), StartsWith("HTTP/1.1 200")) << "and goes on";
}

TEST_F(AdminServerTest, DoesNotShareAPortInSilence) {
  const auto second = AdminServer::Start("127.0.0.1", server_->port(), AdminPages());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("127.0.0.1:" + std::to_string(server_->port())));
}

TEST_F(AdminServerTest, EndsAtOnceAndFreesItsPort) {
  const int port = server_->port();
  server_.reset();
  EXPECT_EQ(Get(port, "/healthz"), "");
  EXPECT_TRUE(AdminServer::Start("127.0.0.1", port, AdminPages()).ok());
}

}  // namespace
}  // namespace normd
