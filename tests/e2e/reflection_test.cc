// gRPC server reflection on the wire, in both of its versions; which descriptors are found is tested without a server.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/descriptor_database.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include "absl/time/clock.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "tests/e2e/test_server.h"

namespace normd::e2e {
namespace {

using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;
using ::testing::ElementsAre;

// One ServerReflectionInfo of a version, message by message; v1alpha's bytes are those of v1.
class ReflectionCall {
 public:
  ReflectionCall(TestServer& server, const std::string& version) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const std::string path = "/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo";
    call_ = grpc::GenericStub(server.channel()).PrepareCall(&context_, path, &queue_);
    call_->StartCall(this);
    Next();
  }
  ~ReflectionCall() {
    context_.TryCancel();
    queue_.Shutdown();
    while (Next()) {
    }
  }

  bool SendBytes(const std::string& bytes) {
    const grpc::Slice slice(bytes.data(), bytes.size());
    call_->Write(grpc::ByteBuffer(&slice, 1), this);
    return Next();
  }
  bool Send(const ServerReflectionRequest& request) { return SendBytes(request.SerializeAsString()); }

  // Nothing at the end.
  std::optional<ServerReflectionResponse> Receive() {
    grpc::ByteBuffer bytes;
    call_->Read(&bytes, this);
    if (!Next()) return std::nullopt;
    ServerReflectionResponse response;
    grpc::ProtoBufferReader reader(&bytes);
    EXPECT_TRUE(response.ParseFromZeroCopyStream(&reader));
    return response;
  }
  ServerReflectionResponse Ask(const ServerReflectionRequest& request) {
    EXPECT_TRUE(Send(request));
    return Receive().value_or(ServerReflectionResponse());
  }

  void HalfClose() {
    call_->WritesDone(this);
    Next();
  }
  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, this);
    Next();
    return status;
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

ServerReflectionRequest ListServices() {
  ServerReflectionRequest request;
  request.set_list_services("");
  return request;
}

ServerReflectionRequest FileOf(const std::string& symbol) {
  ServerReflectionRequest request;
  request.set_file_containing_symbol(symbol);
  return request;
}

std::vector<std::string> ServicesIn(const ServerReflectionResponse& response) {
  std::vector<std::string> names;
  for (const auto& service : response.list_services_response().service()) names.push_back(service.name());
  return names;
}

class ReflectionTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Versions, ReflectionTest, ::testing::Values("v1", "v1alpha"),
                         [](const auto& version) { return std::string(version.param); });

TEST_P(ReflectionTest, ListsTheServicesThatAreServed) {
  TestServer server;
  ReflectionCall call(server, GetParam());
  EXPECT_THAT(ServicesIn(call.Ask(ListServices())),
              ElementsAre("grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                          "grpc.reflection.v1alpha.ServerReflection", "normd.v1.Normalizer", "normd.v1.Sessions",
                          "normd.v1.SharedMemory"));
  call.HalfClose();
  EXPECT_FALSE(call.Receive().has_value());
  EXPECT_TRUE(call.Finish().ok());
}

// What a tool does that knows nothing: every service's file with its imports makes a whole pool.
TEST_P(ReflectionTest, EveryServiceIsDescribedCompletely) {
  TestServer server;
  ReflectionCall call(server, GetParam());
  const std::vector<std::string> services = ServicesIn(call.Ask(ListServices()));
  ASSERT_EQ(services.size(), 6u);
  for (const std::string& service : services) {
    const ServerReflectionResponse response = call.Ask(FileOf(service));
    google::protobuf::SimpleDescriptorDatabase files;
    for (const std::string& bytes : response.file_descriptor_response().file_descriptor_proto()) {
      google::protobuf::FileDescriptorProto file;
      ASSERT_TRUE(file.ParseFromString(bytes));
      ASSERT_TRUE(files.Add(file)) << file.name() << " came twice";
    }
    google::protobuf::DescriptorPool pool(&files);
    ASSERT_NE(pool.FindServiceByName(service), nullptr) << service;
    EXPECT_GT(pool.FindServiceByName(service)->method_count(), 0) << service;
  }
}

TEST_P(ReflectionTest, AnUnknownNameIsAReplyAndTheStreamGoesOn) {
  TestServer server;
  ReflectionCall call(server, GetParam());
  ServerReflectionRequest file;
  file.set_file_by_filename("nowhere.proto");
  for (const ServerReflectionRequest& request : {FileOf("normd.v1.Denormalizer"), file}) {
    const ServerReflectionResponse response = call.Ask(request);
    EXPECT_EQ(response.error_response().error_code(), grpc::NOT_FOUND) << response.ShortDebugString();
    EXPECT_EQ(response.original_request().SerializeAsString(), request.SerializeAsString());
  }
  EXPECT_EQ(call.Ask(ServerReflectionRequest()).error_response().error_code(), grpc::INVALID_ARGUMENT)
      << "a request of no kind";
  EXPECT_EQ(ServicesIn(call.Ask(ListServices())).size(), 6u);
}

TEST_P(ReflectionTest, ManyRequestsOfOneStreamAreAnsweredInOrder) {
  TestServer server;
  ReflectionCall call(server, GetParam());
  for (int round = 0; round < 20; ++round) {
    // So many at once that they are read while replies are written, and so few that neither side waits for the other.
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(call.Send(FileOf("none." + std::to_string(i))));
    for (int i = 0; i < 50; ++i) {
      const std::optional<ServerReflectionResponse> response = call.Receive();
      ASSERT_TRUE(response.has_value());
      EXPECT_EQ(response->original_request().file_containing_symbol(), "none." + std::to_string(i));
    }
  }
  call.HalfClose();
  EXPECT_TRUE(call.Finish().ok());
}

TEST_P(ReflectionTest, RequestsBeforeAHalfCloseAreAllAnswered) {
  TestServer server;
  ReflectionCall call(server, GetParam());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(call.Send(FileOf("normd.v1.Normalizer")));
  call.HalfClose();
  for (int i = 0; i < 10; ++i) {
    const std::optional<ServerReflectionResponse> response = call.Receive();
    ASSERT_TRUE(response.has_value());
    EXPECT_GT(response->file_descriptor_response().file_descriptor_proto_size(), 3);
  }
  EXPECT_FALSE(call.Receive().has_value());
  EXPECT_TRUE(call.Finish().ok());
}

TEST_P(ReflectionTest, GarbageAndAnOversizeMessageEndTheStreamWithAnError) {
  TestServer server;
  const std::string long_name = FileOf(std::string(2000, 'x')).SerializeAsString();
  for (const std::string& bytes :
       {std::string("\xff\xff\xff"), std::string("\x22\x7f short"), long_name, std::string(4 << 20, '\x22')}) {
    ReflectionCall call(server, GetParam());
    ASSERT_TRUE(call.SendBytes(bytes));
    EXPECT_FALSE(call.Receive().has_value());
    const grpc::Status status = call.Finish();
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT) << bytes.size() << " bytes: " << status.error_message();
    EXPECT_EQ(ReasonOf(status) == "MESSAGE_TOO_LARGE", bytes.size() > 1024) << status.error_message();
  }
  server.ExpectAlive();
}

TEST_P(ReflectionTest, AnIdleStreamDoesNotHoldUpAShutdown) {
  TestServer server;
  ReflectionCall call(server, GetParam());
  EXPECT_EQ(ServicesIn(call.Ask(ListServices())).size(), 6u);
  const absl::Time begin = absl::Now();
  server.server().Shutdown(absl::Seconds(60));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
  EXPECT_FALSE(call.Receive().has_value());
  EXPECT_EQ(call.Finish().error_code(), grpc::UNAVAILABLE);
}

TEST_P(ReflectionTest, RepliesAreBytesInFlightUntilTheyAreWritten) {
  std::atomic<int64_t> held{0}, most_held{0};
  RpcOptions options;
  options.observer.on_bytes_in_flight = [&](int64_t bytes) {
    held = bytes;
    most_held = std::max(most_held.load(), bytes);
  };
  TestServer server(std::move(options));
  ReflectionCall call(server, GetParam());
  const ServerReflectionResponse response = call.Ask(FileOf("normd.v1.Normalizer"));
  EXPECT_EQ(most_held, static_cast<int64_t>(response.ByteSizeLong()));
  EXPECT_TRUE(Eventually([&held] { return held == 0; }));
}

TEST_P(ReflectionTest, IsUnimplementedWhereItIsOff) {
  TestServer server({.reflection = false});
  ReflectionCall call(server, GetParam());
  call.Send(ListServices());
  EXPECT_FALSE(call.Receive().has_value());
  EXPECT_EQ(call.Finish().error_code(), grpc::UNIMPLEMENTED);
  server.ExpectAlive();
}

}  // namespace
}  // namespace normd::e2e
