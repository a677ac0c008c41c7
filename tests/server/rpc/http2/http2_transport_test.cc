#include "server/rpc/http2/http2_transport.h"

#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/strings.h"
#include "tests/server/rpc/http2/echo_fixture.h"
#include "tests/support/raw_http2.h"

namespace normd::rpc::http2 {
namespace {

TEST(Http2TransportTest, MessagesOfAllSizesComeBackUnchanged) {
  EchoServer server;
  const auto channel = server.Connect();
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1000}, size_t{16379}, size_t{16384}, size_t{65530},
                            size_t{65531}, size_t{65536}, size_t{100000}, size_t{1} << 20, (size_t{3} << 20) + 7}) {
    for (const char* method : {"Unary", "Worker", "Stream"}) {
      const EchoReply reply = Ask(channel, {.method = method, .body = Pattern(size)});
      EXPECT_EQ(reply.code, 0) << method << " " << size << " " << reply.message;
      EXPECT_TRUE(reply.body == Pattern(size)) << method << " " << size << " " << reply.body.size();
    }
  }
}

TEST(Http2TransportTest, TheLargestMessageComesBack) {
  EchoServer server;
  const EchoReply reply = Ask(server.Connect(), {.method = "Unary", .body = Pattern(size_t{64} << 20)});
  EXPECT_EQ(reply.code, 0) << reply.message;
  EXPECT_TRUE(reply.body == Pattern(size_t{64} << 20));
}

TEST(Http2TransportTest, AMessageOverTheLimitIsRefusedAtItsPrefix) {
  EchoServer server({.max_message_bytes = 100000});
  const auto channel = server.Connect();
  const EchoReply reply = Ask(channel, {.method = "Unary", .body = Pattern(100001)});
  EXPECT_EQ(reply.code, 8);
  EXPECT_EQ(reply.message,
            "message_bytes would be 100001, over the limit of 100000 (set by --max_message_bytes of the server)");
  EXPECT_FALSE(reply.details.empty());
  EXPECT_EQ(Ask(channel, {.method = "Unary", .body = Pattern(100000)}).code, 0);
}

TEST(Http2TransportTest, ReadSizeTellsTheSizeBeforeTheMessageIsRead) {
  EchoServer server;
  const auto channel = server.Connect();
  EXPECT_EQ(Ask(channel, {.method = "Size", .body = ""}).body, "0 0") << "an empty message is one of a known size";
  EXPECT_EQ(Ask(channel, {.method = "Size", .body = Pattern(10)}).body, "10 10");
  EXPECT_EQ(Ask(channel, {.method = "Size", .body = Pattern(5 << 20)}).body, "5242880 5242880");
}

TEST(Http2TransportTest, ErrorsArriveWithTheirMessageDetailsAndTrailers) {
  EchoServer server;
  const EchoReply reply = Ask(server.Connect(), {.method = "Fail", .body = "x"});
  EXPECT_EQ(reply.code, 5);
  EXPECT_EQ(reply.message, "100 % of \xC3\xA4ll\n");
  EXPECT_EQ(reply.details, ToRpcStatus(absl::NotFoundError(reply.message)).details_bin);
  EXPECT_EQ(reply.trailers.find("x-why")->second, "asked");
}

TEST(Http2TransportTest, MetadataIsShownInOrderAndBinaryValuesAreDecoded) {
  EchoServer server;
  const EchoReply reply =
      Ask(server.Connect(), {.method = "Fields",
                             .body = "x",
                             .metadata = {{"a-key", "one"}, {"a-key", "two"}, {"b-bin", std::string("\0\xFE", 2)}}});
  EXPECT_EQ(reply.code, 0);
  EXPECT_NE(reply.body.find("a-key=one\n"), std::string::npos) << reply.body;
  EXPECT_NE(reply.body.find("a-key=two\n"), std::string::npos) << reply.body;
  EXPECT_NE(reply.body.find(std::string("b-bin=\0\xFE\n", 9)), std::string::npos) << reply.body;
  EXPECT_EQ(reply.body.find("grpc-timeout"), std::string::npos) << reply.body;
  EXPECT_EQ(reply.trailers.find("x-trailer")->second, "a value");
}

TEST(Http2TransportTest, MetadataOverTheLimitIsRefused) {
  EchoServer server({.max_metadata_bytes = 8000});
  const auto channel = server.Connect();
  const EchoReply reply =
      Ask(channel, {.method = "Unary", .body = "x", .metadata = {{"a-key", std::string(8000, 'x')}}});
  EXPECT_EQ(reply.code, 8) << reply.message;
  EXPECT_NE(reply.message.find("metadata_bytes"), std::string::npos) << reply.message;
  EXPECT_EQ(Ask(channel, {.method = "Unary", .body = "x"}).code, 0);
  EXPECT_EQ(server.counts().calls.load(), 1);
}

TEST(Http2TransportTest, ADeadlineEndsACallOnBothSides) {
  EchoServer server;
  const auto channel = server.Connect();
  EXPECT_EQ(Ask(channel, {.method = "Hang", .body = "x", .deadline_ms = 100}).code, 4);
  EXPECT_TRUE(EchoServer::WaitFor(server.counts().cancelled, 1));
  EXPECT_EQ(Ask(channel, {.method = "Idle", .body = Pattern(1 << 20), .deadline_ms = 100}).code, 4);
  EXPECT_TRUE(EchoServer::WaitFor(server.counts().cancelled, 2));
  EXPECT_EQ(Ask(channel, {.method = "Unary", .body = "x"}).code, 0);
}

TEST(Http2TransportTest, TheServerMayCancelACall) {
  EchoServer server;
  EXPECT_EQ(Ask(server.Connect(), {.method = "Cancel", .body = "x"}).code, 1);
  EXPECT_TRUE(EchoServer::WaitFor(server.counts().cancelled, 1));
}

TEST(Http2TransportTest, ACallTellsOnceThatItIsOver) {
  EchoServer server;
  const auto channel = server.Connect();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Ask(channel, {.method = "Unary", .body = "x"}).code, 0);
  EXPECT_TRUE(EchoServer::WaitFor(server.counts().over, 20));
  EXPECT_EQ(server.counts().over.load(), 20);
  EXPECT_EQ(server.counts().cancelled.load(), 0);
}

// Takes the next event of a queue on a thread of its own, because gRPC's client does nothing while nobody asks its
// queue.
class Poller {
 public:
  explicit Poller(grpc::CompletionQueue* queue)
      : thread_([queue] {
          void* tag = nullptr;
          bool ok = false;
          queue->Next(&tag, &ok);
        }) {}
  ~Poller() { Wait(); }
  void Wait() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::thread thread_;
};

// One call of `ManyAtOnce`.
struct Pending {
  grpc::ClientContext context;
  grpc::ByteBuffer answer;
  grpc::Status status;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> call;
};

void ManyAtOnce(const EchoServer& server, const char* method, int count, size_t size) {
  const auto channel = server.Connect();
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::Slice slice(Pattern(size));
  const grpc::ByteBuffer body(&slice, 1);
  std::vector<std::unique_ptr<Pending>> pending;
  for (int i = 0; i < count; ++i) {
    auto one = std::make_unique<Pending>();
    one->context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    one->call = stub.PrepareUnaryCall(&one->context, Concat("/echo.Echo/", method), body, &queue);
    one->call->StartCall();
    one->call->Finish(&one->answer, &one->status, one.get());
    pending.push_back(std::move(one));
  }
  void* tag = nullptr;
  bool ok = false;
  for (int i = 0; i < count; ++i) ASSERT_TRUE(queue.Next(&tag, &ok));
  for (const auto& one : pending) {
    ASSERT_TRUE(one->status.ok()) << one->status.error_message();
    ASSERT_EQ(one->answer.Length(), size);
  }
}

TEST(Http2TransportTest, TwoThousandCallsAreInFlightOnOneConnection) {
  EchoServer server({.max_concurrent_streams = 4000});
  ManyAtOnce(server, "Unary", 2000, 1000);
  ManyAtOnce(server, "Worker", 2000, 1000);
}

TEST(Http2TransportTest, ClientsWaitWhereStreamsAreFew) {
  EchoServer server({.queues = 2, .max_concurrent_streams = 4});
  ManyAtOnce(server, "Unary", 200, 200000);
}

TEST(Http2TransportTest, AStreamEchoesManyMessagesInTurnAndAtOnce) {
  EchoServer server;
  const auto channel = server.Connect();
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  auto stream = stub.PrepareCall(&context, "/echo.Echo/Stream", &queue);
  void* tag = nullptr;
  bool ok = false;
  stream->StartCall(nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  const std::vector<size_t> sizes = {0, 5, 70000, 1, 0, 300000, 64, 65531, 65536, 1 << 20, 3};
  for (int round = 0; round < 20; ++round) {
    for (const size_t size : sizes) {
      grpc::Slice slice(Pattern(size));
      stream->Write(grpc::ByteBuffer(&slice, 1), nullptr);
      ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
      grpc::ByteBuffer answer;
      stream->Read(&answer, nullptr);
      ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
      ASSERT_EQ(answer.Length(), size);
    }
  }
  // Ten thousand small messages are written before the first is read.
  for (int i = 0; i < 10000; ++i) {
    grpc::Slice slice(Concat(i));
    stream->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  }
  stream->WritesDone(nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  for (int i = 0; i < 10000; ++i) {
    grpc::ByteBuffer answer;
    stream->Read(&answer, nullptr);
    ASSERT_TRUE(queue.Next(&tag, &ok) && ok) << i;
    ASSERT_EQ(answer.Length(), Concat(i).size()) << i;
  }
  grpc::Status status;
  stream->Finish(&status, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(context.GetServerTrailingMetadata().find("x-end")->second, "yes");
}

// A unary call that the server has and does not answer. Its end is awaited before it goes away.
class UnansweredCall {
 public:
  UnansweredCall(EchoServer& server, const std::string& path) : stub_(server.Connect()) {
    const grpc::Slice slice("x");
    call_ = stub_.PrepareUnaryCall(&context_, path, grpc::ByteBuffer(&slice, 1), &queue_);
    call_->StartCall();
    call_->Finish(&answer_, &status_, nullptr);
    poller_.emplace(&queue_);
    EXPECT_TRUE(EchoServer::WaitFor(server.counts().calls, 1));
  }
  grpc::ClientContext& context() { return context_; }
  const grpc::Status& WaitForEnd() {
    poller_->Wait();
    return status_;
  }

 private:
  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer answer_;
  grpc::Status status_;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> call_;
  std::optional<Poller> poller_;
};

TEST(Http2TransportTest, ACancelledCallIsOverAtOnce) {
  EchoServer server;
  UnansweredCall call(server, "/echo.Echo/Hang");
  call.context().TryCancel();
  EXPECT_EQ(call.WaitForEnd().error_code(), 1);
  EXPECT_TRUE(EchoServer::WaitFor(server.counts().cancelled, 1));
}

TEST(Http2TransportTest, AnEndedConnectionEndsItsCalls) {
  EchoServer server;
  {
    UnansweredCall call(server, "/echo.Echo/Idle");
    server.transport().Shutdown();
    const grpc::Status& status = call.WaitForEnd();
    EXPECT_EQ(status.error_code(), 14) << status.error_message();
  }
  EXPECT_TRUE(EchoServer::WaitFor(server.counts().cancelled, 1));
}

TEST(Http2TransportTest, AStreamWhosePeerLeavesInItsMiddleEnds) {
  EchoServer server;
  {
    // This peer writes many messages and lets none of their echoes through.
    RawHttp2 peer(server.target());
    peer.SendPreface(/*initial_window=*/16);
    peer.SendHeaders(1, "/echo.Echo/Stream");
    std::string messages;
    for (int i = 0; i < 5000; ++i) messages += std::string("\0\0\0\0\1x", 6);
    EXPECT_GT(peer.SendData(1, messages, std::chrono::milliseconds(100)), 0U);
    EXPECT_TRUE(EchoServer::WaitFor(server.counts().calls, 1));
  }
  EXPECT_TRUE(EchoServer::WaitFor(server.counts().cancelled, 1));
  EXPECT_TRUE(EchoServer::WaitFor(server.counts().destroyed, 1));
}

TEST(Http2TransportTest, StatsTellOfCallbacks) {
  EchoServer server({.queues = 2});
  EXPECT_EQ(Ask(server.Connect(), {.method = "Unary", .body = "x"}).code, 0);
  const QueueStats stats = server.transport().TakeStats();
  EXPECT_EQ(stats.queues, 2);
  EXPECT_GT(stats.busy, absl::ZeroDuration());
  EXPECT_GT(stats.longest_callback, absl::ZeroDuration());
}

}  // namespace
}  // namespace normd::rpc::http2
