// Who may come in, and who is shown out: connections without end, without set-up, without manners.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/e2e/test_server.h"
#include "tests/support/raw_http2.h"

namespace normd::e2e {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kNormalize[] = "/normd.v1.Normalizer/Normalize";
constexpr char kNormalizeStream[] = "/normd.v1.Normalizer/NormalizeStream";

int64_t Closed(TestServer& server, RefusedFor reason) {
  return server.server().connections().refused[static_cast<size_t>(reason)];
}

// Tries until the server answers; the listener may need a moment to notice that connections have gone.
bool AnswersWithin(TestServer& server, seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < end) {
    const auto stub = v1::Normalizer::NewStub(server.NewChannel());
    grpc::ClientContext context;
    v1::NormalizeResponse response;
    if (stub->Normalize(&context, LayerNormRequest(), &response).ok()) return true;
    std::this_thread::sleep_for(milliseconds(50));
  }
  return false;
}

TEST(ConnectionsE2eTest, BoundsTheConnectionsOfOnePeerAndServesAgainWhenTheyHaveGone) {
  TestServer server({.max_connections = 8, .max_connections_per_peer = 4, .setup_timeout = absl::Milliseconds(100)});
  {
    std::vector<std::unique_ptr<RawHttp2>> many;
    for (int i = 0; i < 20; ++i) {
      many.push_back(std::make_unique<RawHttp2>(server.target()));
      many.back()->SendPreface();
    }
    int closed = 0;
    for (const auto& one : many) closed += one->WaitForClose(milliseconds(200)) ? 1 : 0;
    EXPECT_EQ(closed, 16);
    EXPECT_EQ(Closed(server, RefusedFor::kAddress), 16);
  }
  EXPECT_TRUE(AnswersWithin(server, seconds(20)));
}

// A peer that is not served learns why, in words that gRPC's clients show.
TEST(ConnectionsE2eTest, SaysWhichLimitIsFull) {
  std::string told;
  std::atomic<int> times{0};
  TestServer server({.max_connections = 8,
                     .max_connections_per_peer = 1,
                     .observer = {.on_connection_limit = [&](std::string_view limit, const std::string& peer) {
                       told = std::string(limit) + " of " + peer;
                       ++times;
                     }}});
  server.ExpectAlive();  // holds its channel
  for (int i = 0; i < 3; ++i) {
    const auto stub = v1::Normalizer::NewStub(server.NewChannel());
    grpc::ClientContext context;
    v1::NormalizeResponse response;
    const grpc::Status status = stub->Normalize(&context, LayerNormRequest(), &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_NE(status.error_message().find("--max_connections_per_peer, 1"), std::string::npos)
        << status.error_message();
  }
  EXPECT_EQ(times, 1) << "once a minute";
  EXPECT_EQ(told, "--max_connections_per_peer, 1 of 127.0.0.1");
}

// The first bytes of an answer to a ClientHello, which a client of TLS finds to be none.
TEST(ConnectionsE2eTest, AnswersTlsWithHttp2) {
  TestServer server;
  RawHttp2 peer(server.target());
  peer.SendBytes(std::string("\x16\x03\x01\x02\x00\x01\x00", 7));
  const auto frame = peer.Receive(milliseconds(5000));
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->type, RawHttp2::kSettings);
  EXPECT_TRUE(peer.WaitForClose(seconds(5)));
  EXPECT_EQ(Closed(server, RefusedFor::kTls), 1);
}

// An upload that nobody reads must not turn the close into a reset, which would destroy the answer.
TEST(ConnectionsE2eTest, WhoUploadsByHttp1ReadsTheAnswer) {
  TestServer server;
  RawHttp2 peer(server.target());
  peer.SendBytes("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n");
  for (int i = 0; i < 3; ++i) peer.SendBytes(std::string(100'000, 'x'));
  std::this_thread::sleep_for(milliseconds(100));  // the server has read what it will read
  EXPECT_TRUE(peer.WaitForBytes("HTTP/1.1 426", seconds(5)));
}

// Running out of descriptors must not end the listener: gRPC's own never accepts again.
TEST(ConnectionsE2eTest, SurvivesTheEndOfDescriptors) {
  TestServer server;
  // Twice: when the second answer has come, nothing of the first call is left to be destroyed. What is destroyed for
  // the first time while there are no descriptors is an invalid object to UndefinedBehaviorSanitizer, which looks at
  // memory through a pipe.
  server.ExpectAlive();
  server.ExpectAlive();
  std::vector<int> taken;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 300;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  // One is left, for the client's end.
  for (int fd = dup(0); fd >= 0; fd = dup(0)) taken.push_back(fd);
  ASSERT_FALSE(taken.empty());
  close(taken.back());
  taken.pop_back();
  {
    RawHttp2 last(server.target());
    EXPECT_TRUE(last.connected());
    EXPECT_TRUE(last.WaitForClose(seconds(10))) << "the peer is kept waiting";
  }
  EXPECT_GE(Closed(server, RefusedFor::kDescriptors), 1);
  EXPECT_FALSE(server.server().Serves());
  for (const int fd : taken) close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(AnswersWithin(server, seconds(20)));
  EXPECT_TRUE(Eventually([&] { return server.server().Serves(); }));
}

TEST(ConnectionsE2eTest, AServerWhoseSocketFileIsGoneDoesNotServe) {
  const std::string path = testing::TempDir() + "/normd-gone-" + std::to_string(getpid()) + ".sock";
  TestServer server({.listeners = {"unix:" + path}});
  EXPECT_TRUE(server.server().Serves());
  ASSERT_EQ(std::rename(path.c_str(), (path + ".old").c_str()), 0);
  EXPECT_FALSE(server.server().Serves());
  std::ofstream(path) << "something else";
  EXPECT_FALSE(server.server().Serves());
  ASSERT_EQ(std::rename((path + ".old").c_str(), path.c_str()), 0);
  EXPECT_TRUE(server.server().Serves());
}

TEST(ConnectionsE2eTest, ClosesWhoeverDoesNotFinishTheSetUp) {
  TestServer server({.setup_timeout = absl::Milliseconds(200)});
  RawHttp2 silent(server.target());
  RawHttp2 half(server.target());
  half.SendBytes("PRI * HTTP/2.0\r\n\r\nSM\r\n");
  EXPECT_TRUE(silent.WaitForClose(seconds(10)));
  EXPECT_TRUE(half.WaitForClose(seconds(10)));
  EXPECT_EQ(Closed(server, RefusedFor::kSetup), 2);
  server.ExpectAlive();
}

// Probes of load balancers do nothing else; they are not late.
TEST(ConnectionsE2eTest, APeerThatLeavesBeforeTheSetUpIsNotCountedAsLate) {
  TestServer server;
  const auto open = [&server] { return server.server().connections().open; };
  {
    RawHttp2 probe(server.target());
    RawHttp2 half(server.target());
    half.SendBytes("PRI * HTTP/2.0\r\n");
    ASSERT_TRUE(Eventually([&] { return open() == 2; }));
  }
  EXPECT_TRUE(Eventually([&] { return open() == 0; }));
  EXPECT_EQ(Closed(server, RefusedFor::kSetup), 0);
}

// What keeps TCP out leaves the Unix socket open.
TEST(ConnectionsE2eTest, IdleConnectionsOverTcpLeaveTheUnixSocketOpen) {
  const TemporaryFolder folder;
  const std::string socket = "unix:" + folder.path() + "/s";
  TestServer server({.listeners = {"127.0.0.1:0", socket}, .max_connections = 64, .max_connections_per_peer = 64});
  std::vector<std::unique_ptr<RawHttp2>> idle;
  for (int i = 0; i < 80; ++i) {
    idle.push_back(std::make_unique<RawHttp2>(server.target()));
    idle.back()->SendPreface();
  }
  ASSERT_TRUE(idle.back()->WaitForClose(seconds(10))) << "not full";
  const auto stub = v1::Normalizer::NewStub(grpc::CreateChannel(socket, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::NormalizeResponse response;
  const grpc::Status status = stub->Normalize(&context, LayerNormRequest(), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST(ConnectionsE2eTest, TellsAnOlderHttpWhereItIs) {
  TestServer server;
  RawHttp2 old(server.target());
  old.SendBytes("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(old.WaitForClose(seconds(10)));
  EXPECT_EQ(Closed(server, RefusedFor::kForeign), 1);
  server.ExpectAlive();
}

// gRPC counts a peer's streams only once the peer has acknowledged the limit.
TEST(ConnectionsE2eTest, RefusesStreamsOverTheLimitOfAPeerThatAcknowledgesNothing) {
  TestServer server({.max_concurrent_streams = 4});
  RawHttp2 peer(server.target());
  ASSERT_TRUE(peer.SendPreface());
  for (uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(peer.SendHeaders(2 * i + 1, kNormalizeStream));
  EXPECT_TRUE(peer.WaitForEnd(19, seconds(20)));
  // The native transport refuses the stream as HTTP/2 does (REFUSED_STREAM), before there is a call to be answered.
  if (TestedTransport() == TransportKind::kGrpc) {
    EXPECT_TRUE(peer.LastHeadersContain(19, "calls_of_connection"));
  }
  server.ExpectAlive();
}

// The client opens its next call when the answer to one has come, which may be before the server is done with that one.
TEST(ConnectionsE2eTest, NeverRefusesAClientThatKeepsToTheLimit) {
  constexpr int kThreads = 8;
  constexpr int kCallsPerThread = 400;
  TestServer server({.max_concurrent_streams = 2});
  const auto stub = v1::Normalizer::NewStub(server.NewChannel());
  const v1::NormalizeRequest request = RmsNormRequest(std::vector<float>(16'384, 1.0F));
  std::atomic<int> refused{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < kThreads; ++i) {
    callers.emplace_back([&] {
      for (int call = 0; call < kCallsPerThread; ++call) {
        grpc::ClientContext context;
        v1::NormalizeResponse response;
        if (!stub->Normalize(&context, request, &response).ok()) ++refused;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(refused, 0);
}

TEST(ConnectionsE2eTest, ClosesAConnectionThatOpensAndTakesBackCallsInAFlood) {
  TestServer server({.max_cancels_per_second = 1000});
  RawHttp2 peer(server.target());
  ASSERT_TRUE(peer.SendPreface());
  uint32_t stream = 1;
  for (; stream < 200'000 && !peer.closed(); stream += 2) {
    if (!peer.SendHeaders(stream, kNormalize) || !peer.SendReset(stream)) break;
    if (stream % 1001 == 0) server.ExpectAlive();
  }
  EXPECT_TRUE(peer.WaitForClose(seconds(20))) << stream;
  EXPECT_GE(Closed(server, RefusedFor::kFlood), 1);
  server.ExpectAlive();
}

// Such a caller is wrong, but it is told so, and takes nothing back.
TEST(ConnectionsE2eTest, CallsThatTheServerRefusesAreNoFlood) {
  TestServer server({.max_message_bytes = 4 << 10});
  const auto stub = v1::Normalizer::NewStub(server.NewChannel());
  const v1::NormalizeRequest request = RmsNormRequest(std::vector<float>(2'000, 1.0F));
  for (int call = 0; call < 1'500; ++call) {
    grpc::ClientContext context;
    v1::NormalizeResponse response;
    const grpc::Status status = stub->Normalize(&context, request, &response);
    ASSERT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << call << ": " << status.error_message();
  }
  EXPECT_EQ(Closed(server, RefusedFor::kFlood), 0);
}

// Every connection of a Unix socket has its own name, so that one has its own limits.
TEST(ConnectionsE2eTest, ServesUnixSocketsAndIPv6) {
  const TemporaryFolder folder;
  TestServer server({.listeners = {"unix:" + folder.path() + "/s", "[::1]:0"}});
  server.ExpectAlive();
  const auto channel = grpc::CreateChannel("ipv6:[::1]:" + std::to_string(server.server().ports()[1]),
                                           grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  v1::NormalizeResponse response;
  const grpc::Status status = v1::Normalizer::NewStub(channel)->Normalize(&context, LayerNormRequest(), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(server.server().connections().open, 2);
}

}  // namespace
}  // namespace normd::e2e
