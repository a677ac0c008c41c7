// The server as a whole: listeners, limits, garbage, cancellation, many callers, drain.
#include <grpcpp/generic/generic_stub.h>
#include <sys/stat.h>

#include <atomic>
#include <set>
#include <thread>

#include "absl/time/clock.h"
#include "google/protobuf/descriptor.h"
#include "tests/e2e/test_server.h"
#include "tests/support/random.h"

namespace normd::e2e {
namespace {

// One call of any method with any bytes, as a stream of one message.
grpc::Status CallWithBytes(TestServer& server, const std::string& method, const std::string& bytes) {
  grpc::GenericStub stub(server.channel());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  grpc::CompletionQueue queue;
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(&call);
  next();
  grpc::Slice slice(bytes.data(), bytes.size());
  call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), &call);
  next();
  grpc::ByteBuffer reply;
  while (call->Read(&reply, &call), next()) {
  }
  grpc::Status status;
  call->Finish(&status, &call);
  next();
  queue.Shutdown();
  while (next()) {
  }
  return status;
}

std::vector<std::string> AllMethodPaths() {
  std::vector<std::string> paths;
  for (const char* name : {"normd.v1.Normalizer", "normd.v1.Sessions", "normd.v1.SharedMemory"}) {
    const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    for (int i = 0; service != nullptr && i < service->method_count(); ++i) {
      paths.push_back(std::string("/") + name + "/" + service->method(i)->name());
    }
  }
  return paths;
}

// An engine for servers that are not to start.
class IdleEngine {
 public:
  Engine* get() { return &engine_; }
  Resources* resources() { return &resources_; }

 private:
  SystemClock clock_;
  MemoryStore store_{SessionLimits(), &clock_};
  GatedBackend backend_;
  DeviceScheduler scheduler_{&backend_};
  Resources resources_;
  Engine engine_{&scheduler_, &store_, &resources_};
};

TEST(ServerTest, EveryMethodOfTheContractIsServed) {
  TestServer server;
  ASSERT_EQ(AllMethodPaths().size(), 17u);
  for (const std::string& path : AllMethodPaths()) {
    EXPECT_NE(CallWithBytes(server, path, "").error_code(), grpc::StatusCode::UNIMPLEMENTED) << path;
  }
}

TEST(ServerTest, AnUnknownMethodIsUnimplementedByName) {
  TestServer server;
  const grpc::Status status = CallWithBytes(server, "/normd.v1.Normalizer/Denormalize", "");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  const std::string speaks = " is not served here; this server speaks ";
  EXPECT_EQ(status.error_message().find("method normd.v1.Normalizer/Denormalize" + speaks), 0u)
      << status.error_message();
  EXPECT_NE(status.error_message().find("normd.v1.Sessions", speaks.size()), std::string::npos);
  const grpc::Status other = CallWithBytes(server, "/inference.GRPCInferenceService/ServerLive", "x");
  EXPECT_EQ(other.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(other.error_message().find("method inference.GRPCInferenceService/ServerLive" + speaks), 0u);
  server.ExpectAlive();
}

TEST(ServerTest, SurvivesGarbageOnEveryMethod) {
  TestServer server;
  Random random(TestSeed() + 1);
  for (const std::string& path : AllMethodPaths()) {
    for (int i = 0; i < 40; ++i) {
      // Half noise, half a request with a few bytes changed, which gets further.
      std::string bytes =
          i % 2 == 0 ? std::string(static_cast<size_t>(random.Below(200)), 0) : LayerNormRequest(2).SerializeAsString();
      for (char& byte : bytes) {
        if (i % 2 == 0 || random.Below(20) == 0) byte = static_cast<char>(random.Bits());
      }
      const grpc::Status status = CallWithBytes(server, path, bytes);
      EXPECT_NE(status.error_code(), grpc::StatusCode::INTERNAL) << path << ": " << status.error_message();
      EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << path << ": " << status.error_message();
      EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << path;
    }
  }
  server.ExpectAlive();
}

// Two bytes each on the wire, an object each in memory: 16 MiB would be gigabytes.
TEST(ServerTest, AMessageOfTooManyFieldsIsRefusedUnparsed) {
  TestServer server;
  std::string items;
  for (int i = 0; i < 8 << 20; ++i) items += std::string("\x0a\0", 2);
  const grpc::Status batch = CallWithBytes(server, "/normd.v1.Normalizer/BatchNormalize", items);
  EXPECT_EQ(batch.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(batch), "TOO_MANY_ELEMENTS");
  v1::NormalizeRequest extents = LayerNormRequest();
  extents.mutable_x()->mutable_shape()->Resize(1 << 20, 1);
  v1::NormalizeResponse response;
  EXPECT_EQ(ReasonOf(server.Normalize(extents, &response)), "TOO_MANY_ELEMENTS");
  EXPECT_TRUE(server.Normalize(RmsNormRequest(std::vector<float>(1 << 20, 1.0F)), &response).ok())
      << "tensor bytes are not counted";
}

TEST(ServerTest, AMessageOverTheLimitIsResourceExhausted) {
  TestServer server({.max_message_bytes = 64 << 10});
  v1::NormalizeResponse response;
  const grpc::Status status = server.Normalize(RmsNormRequest(std::vector<float>(1 << 20, 1.0F)), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_TRUE(server.Normalize(RmsNormRequest(std::vector<float>(15 << 10, 1.0F)), &response).ok());
  server.ExpectAlive();
}

// The transport tells the caller; who reads the metrics is told the same.
TEST(ServerTest, AMessageOverTheLimitIsReportedAsWhatItsCallerWasTold) {
  if (TestedTransport() == TransportKind::kGrpc)
    GTEST_SKIP() << "gRPC does not tell the server why a message is missing";
  Mutex mu;
  std::vector<absl::StatusCode> codes;
  RpcOptions options;
  options.max_message_bytes = 64 << 10;
  options.observer.on_request_done = [&](const RequestRecord& record) {
    MutexLock lock(mu);
    codes.push_back(record.code);
  };
  TestServer server(std::move(options));
  v1::NormalizeResponse response;
  const grpc::Status status = server.Normalize(RmsNormRequest(std::vector<float>(1 << 20, 1.0F)), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Eventually([&] {
    MutexLock lock(mu);
    return !codes.empty();
  }));
  MutexLock lock(mu);
  EXPECT_EQ(codes.at(0), absl::StatusCode::kResourceExhausted) << absl::StatusCodeToString(codes.at(0));
}

TEST(ServerTest, RefusesWithARetryDelayWhenTooManyBytesAreInFlight) {
  TestServer server({.max_message_bytes = 64 << 10, .max_in_flight_bytes = 192 << 10});
  server.backend().Close();
  const v1::NormalizeRequest large = RmsNormRequest(std::vector<float>(15 << 10, 1.0F));
  grpc::Status first;
  std::thread caller([&] {
    v1::NormalizeResponse response;
    first = server.Normalize(large, &response);
  });
  server.backend().WaitForSubmitted(1);
  v1::NormalizeResponse response;
  const grpc::Status second = server.Normalize(large, &response);
  EXPECT_EQ(second.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto retry = Detail<google::rpc::RetryInfo>(DetailsOf(second));
  ASSERT_TRUE(retry.has_value());
  EXPECT_GT(retry->retry_delay().nanos(), 0);
  grpc::health::v1::HealthCheckResponse health;
  grpc::ClientContext context;
  EXPECT_TRUE(server.health().Check(&context, {}, &health).ok()) << "health is exempt";
  server.backend().Open();
  caller.join();
  EXPECT_TRUE(first.ok()) << first.error_message();
  EXPECT_TRUE(server.Normalize(large, &response).ok()) << "the budget comes back";
}

TEST(ServerTest, RefusesCompressedRequests) {
  TestServer server;
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::NormalizeResponse response;
  const grpc::Status status =
      server.normalizer().Normalize(&context, RmsNormRequest(std::vector<float>(4096, 1.0F)), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  server.ExpectAlive();
}

TEST(ServerTest, ServesOnAUnixSocket) {
  const TemporaryFolder folder;
  TestServer server({.listeners = {"unix:" + folder.path() + "/normd.sock"}});
  struct stat info = {};
  ASSERT_EQ(stat((folder.path() + "/normd.sock").c_str(), &info), 0);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  server.ExpectAlive();
}

TEST(ServerTest, ListensOnSeveralAddresses) {
  const TemporaryFolder folder;
  TestServer server({.listeners = {"127.0.0.1:0", "unix:" + folder.path() + "/s", "127.0.0.1:0"}});
  ASSERT_EQ(server.server().ports().size(), 3u);
  EXPECT_NE(server.server().ports()[0], server.server().ports()[2]);
  server.ExpectAlive();
}

TEST(ServerTest, APortThatIsTakenIsAnErrorThatNamesIt) {
  TestServer server;
  IdleEngine engine;
  const std::string address = server.target();
  const auto second = RpcServer::Start({.listeners = {address}}, engine.get(), engine.resources());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(second.status().message()).find(address), std::string::npos) << second.status().ToString();
}

TEST(ServerTest, OptionsOutOfRangeAreRefusedByName) {
  IdleEngine engine;
  const auto started =
      RpcServer::Start({.listeners = {"127.0.0.1:0"}, .max_concurrent_streams = -1}, engine.get(), engine.resources());
  ASSERT_FALSE(started.ok());
  EXPECT_NE(std::string(started.status().message()).find("max_concurrent_streams"), std::string::npos);
  EXPECT_FALSE(RpcServer::Start({}, engine.get(), engine.resources()).ok());
}

TEST(ServerTest, ACancelledCallEndsAndIsForgotten) {
  TestServer server;
  server.backend().Close();
  grpc::ClientContext context;
  grpc::Status status;
  std::thread caller([&] {
    v1::NormalizeResponse response;
    status = server.normalizer().Normalize(&context, LayerNormRequest(), &response);
  });
  server.backend().WaitForSubmitted(1);
  context.TryCancel();
  caller.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  server.backend().Open();
  server.ExpectAlive();
}

TEST(ServerTest, ADeadlineIsKeptWhileTheBackendWorks) {
  TestServer server;
  server.backend().Close();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  v1::NormalizeResponse response;
  const grpc::Status status = server.normalizer().Normalize(&context, LayerNormRequest(), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  server.backend().Open();
  server.ExpectAlive();
}

TEST(ServerTest, ADrainFinishesCallsInFlightAndRefusesNewOnes) {
  TestServer server;
  server.backend().Close();
  grpc::Status status;
  v1::NormalizeResponse response;
  std::thread caller([&] { status = server.Normalize(LayerNormRequest(), &response); });
  server.backend().WaitForSubmitted(1);
  std::atomic<bool> ended{false};
  std::thread drain([&] {
    server.server().Shutdown(absl::Seconds(60));
    ended = true;
  });
  // The server goes away for new callers while the old call still waits.
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    const auto stub = v1::Normalizer::NewStub(server.NewChannel());
    v1::DescribeResponse described;
    if (!stub->Describe(&context, v1::DescribeRequest(), &described).ok()) break;
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_FALSE(ended);
  server.backend().Open();
  caller.join();
  drain.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.outputs_size(), 1);
}

TEST(ServerTest, ADrainCancelsWhatTakesTooLongAndWaitsForTheBackend) {
  TestServer server;
  server.backend().Close();
  grpc::Status status;
  std::thread caller([&] {
    v1::NormalizeResponse response;
    status = server.Normalize(LayerNormRequest(), &response);
  });
  server.backend().WaitForSubmitted(1);
  std::thread opener([&] {
    caller.join();  // cancelled, while the backend still has the call
    server.backend().Open();
  });
  server.server().Shutdown(absl::Milliseconds(100));
  opener.join();
  EXPECT_FALSE(status.ok());
}

TEST(ServerTest, TellsTheObserverAboutEveryRequest) {
  Mutex mu;
  std::vector<RequestRecord> records;
  std::atomic<int64_t> held{-1};
  RpcOptions options;
  options.observer.on_request_done = [&](const RequestRecord& record) {
    MutexLock lock(mu);
    records.push_back(record);
  };
  options.observer.on_bytes_in_flight = [&](int64_t bytes) { held = bytes; };
  {
    TestServer server(std::move(options));
    v1::NormalizeResponse response;
    ASSERT_TRUE(server.Normalize(LayerNormRequest(3), &response).ok());
    v1::NormalizeRequest bad = LayerNormRequest();
    bad.clear_x();
    EXPECT_FALSE(server.Normalize(bad, &response).ok());
    CallWithBytes(server, "/normd.v1.Normalizer/Nothing", "");
  }
  EXPECT_EQ(held, 0);
  MutexLock lock(mu);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].norm_method, "layer_norm");
  EXPECT_EQ(records[0].code, absl::StatusCode::kOk);
  EXPECT_EQ(records[0].rows, 3);
  EXPECT_GT(records[0].request_bytes, 48);
  EXPECT_GT(records[0].response_bytes, 48);
  EXPECT_GT(records[0].total, absl::ZeroDuration());
  EXPECT_GE(records[0].total, records[0].decode + records[0].compute);
  EXPECT_EQ(records[1].code, absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(records[2].code, absl::StatusCode::kUnimplemented);
}

// Callers of everything at once: what TSan looks at.
TEST(ServerTest, ManyCallersMixAllMethods) {
  TestServer server;
  v1::CreateSessionRequest create;
  create.set_session_id("bn");
  create.mutable_session()->mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
  create.mutable_session()->set_num_channels(4);
  v1::Session session;
  grpc::ClientContext create_context;
  ASSERT_TRUE(server.sessions().CreateSession(&create_context, create, &session).ok());

  constexpr int kCallers = 6;
  constexpr int kRounds = 15;
  std::atomic<int> failures{0};
  const auto expect_ok = [&failures](const grpc::Status& status) {
    if (!status.ok()) failures += 1;
  };
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      const auto channel = server.NewChannel();
      const auto normalizer = v1::Normalizer::NewStub(channel);
      const auto sessions = v1::Sessions::NewStub(channel);
      for (int round = 0; round < kRounds; ++round) {
        v1::NormalizeResponse response;
        grpc::ClientContext unary;
        expect_ok(normalizer->Normalize(&unary, LayerNormRequest(1 + round), &response));
        // Large enough to leave the queue's thread.
        grpc::ClientContext large;
        expect_ok(normalizer->Normalize(&large, RmsNormRequest(std::vector<float>(100'000, 2.0F)), &response));
        v1::NormalizeRequest step = LayerNormRequest(2);
        step.set_session("sessions/bn");
        step.set_mode(v1::MODE_TRAINING);
        step.mutable_step()->set_client_id("caller-" + std::to_string(caller));
        step.mutable_step()->set_sequence(static_cast<uint64_t>(round) + 1);
        grpc::ClientContext training;
        expect_ok(normalizer->Normalize(&training, step, &response));
        v1::BatchNormalizeRequest batch;
        for (int i = 0; i < 5; ++i) *batch.add_items() = LayerNormRequest(1 + i);
        v1::BatchNormalizeResponse batch_response;
        grpc::ClientContext batched;
        expect_ok(normalizer->BatchNormalize(&batched, batch, &batch_response));
        grpc::ClientContext streaming;
        const auto stream = normalizer->NormalizeStream(&streaming);
        for (uint64_t i = 1; i <= 5; ++i) {
          v1::StreamRequest item;
          item.set_sequence(i);
          *item.mutable_call() = i == 3 ? v1::NormalizeRequest() : LayerNormRequest(1);
          stream->Write(item);
        }
        stream->WritesDone();
        v1::StreamResponse item;
        for (uint64_t i = 1; stream->Read(&item); ++i) {
          if (item.sequence() != i || item.has_error() != (i == 3)) failures += 1;
        }
        expect_ok(stream->Finish());
        v1::GetSessionRequest get;
        get.set_name("sessions/bn");
        grpc::ClientContext getting;
        v1::Session got;
        expect_ok(sessions->GetSession(&getting, get, &got));
        server.server().SetServing(round % 2 == 0);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failures, 0);
  v1::GetSessionRequest get;
  get.set_name("sessions/bn");
  grpc::ClientContext context;
  ASSERT_TRUE(server.sessions().GetSession(&context, get, &session).ok());
  EXPECT_EQ(session.version(), static_cast<uint64_t>(kCallers * kRounds)) << "every step counted once";
}

}  // namespace
}  // namespace normd::e2e
