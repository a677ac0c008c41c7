#include "server/rpc/services/reflection.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/support/status.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"

namespace normd::rpc {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptorProto;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// top.proto imports left.proto and right.proto, which both import base.proto; right.proto extends base's message.
class ReflectionTest : public ::testing::Test {
 protected:
  ReflectionTest() {
    FileDescriptorProto base = File("base.proto", {});
    google::protobuf::DescriptorProto& message = *base.add_message_type();
    message.set_name("Open");
    google::protobuf::DescriptorProto::ExtensionRange& range = *message.add_extension_range();
    range.set_start(100);
    range.set_end(200);
    Build(base);
    Build(File("left.proto", {"base.proto"}));
    FileDescriptorProto right = File("right.proto", {"base.proto"});
    for (const int number : {120, 150}) {
      google::protobuf::FieldDescriptorProto& extension = *right.add_extension();
      extension.set_name("extension_" + std::to_string(number));
      extension.set_number(number);
      extension.set_type(google::protobuf::FieldDescriptorProto::TYPE_INT32);
      extension.set_label(google::protobuf::FieldDescriptorProto::LABEL_OPTIONAL);
      extension.set_extendee(".test.Open");
    }
    Build(right);
    Build(File("top.proto", {"left.proto", "right.proto"}));
  }

  static FileDescriptorProto File(const std::string& name, const std::vector<std::string>& imports) {
    FileDescriptorProto file;
    file.set_name(name);
    file.set_package("test");
    for (const std::string& import : imports) file.add_dependency(import);
    return file;
  }

  void Build(const FileDescriptorProto& file) { ASSERT_NE(pool_.BuildFile(file), nullptr) << file.name(); }

  ServerReflectionResponse Ask(const ServerReflectionRequest& request) const {
    return ReplyToReflection(request, pool_, {"b.Second", "a.First"});
  }

  static std::vector<std::string> FilesIn(const ServerReflectionResponse& response) {
    std::vector<std::string> names;
    for (const std::string& bytes : response.file_descriptor_response().file_descriptor_proto()) {
      FileDescriptorProto file;
      EXPECT_TRUE(file.ParseFromString(bytes));
      names.push_back(file.name());
    }
    return names;
  }

  static void ExpectError(const ServerReflectionResponse& response, grpc::StatusCode code, const std::string& field) {
    EXPECT_EQ(response.message_response_case(), ServerReflectionResponse::kErrorResponse);
    EXPECT_EQ(response.error_response().error_code(), code);
    EXPECT_THAT(response.error_response().error_message(), HasSubstr(field));
  }

  DescriptorPool pool_;
};

TEST_F(ReflectionTest, AFileComesFirstAndThenAllThatItImportsOnce) {
  ServerReflectionRequest request;
  request.set_file_by_filename("top.proto");
  EXPECT_THAT(FilesIn(Ask(request)), ElementsAre("top.proto", "left.proto", "base.proto", "right.proto"));
}

TEST_F(ReflectionTest, AFileIsFoundByASymbolInIt) {
  ServerReflectionRequest request;
  for (const char* symbol : {"test.extension_120", "test.extension_150"}) {
    request.set_file_containing_symbol(symbol);
    EXPECT_THAT(FilesIn(Ask(request)), ElementsAre("right.proto", "base.proto")) << symbol;
  }
}

TEST_F(ReflectionTest, AFileIsFoundByAnExtensionInIt) {
  ServerReflectionRequest request;
  request.mutable_file_containing_extension()->set_containing_type("test.Open");
  request.mutable_file_containing_extension()->set_extension_number(150);
  EXPECT_THAT(FilesIn(Ask(request)), ElementsAre("right.proto", "base.proto"));
}

TEST_F(ReflectionTest, ExtensionsAreListedByTheirNumbers) {
  ServerReflectionRequest request;
  request.set_all_extension_numbers_of_type("test.Open");
  const ServerReflectionResponse response = Ask(request);
  EXPECT_EQ(response.all_extension_numbers_response().base_type_name(), "test.Open");
  EXPECT_THAT(response.all_extension_numbers_response().extension_number(), UnorderedElementsAre(120, 150));
}

TEST_F(ReflectionTest, AMessageWithoutExtensionsHasAnEmptyListOfThem) {
  ServerReflectionRequest request;
  request.set_all_extension_numbers_of_type("google.protobuf.FileOptions");
  const ServerReflectionResponse response = ReplyToReflection(request, *DescriptorPool::generated_pool(), {});
  ASSERT_TRUE(response.has_all_extension_numbers_response());
  EXPECT_THAT(response.all_extension_numbers_response().extension_number(), IsEmpty());
}

TEST_F(ReflectionTest, ServicesAreThoseThatWereGiven) {
  ServerReflectionRequest request;
  request.set_list_services("");
  const ServerReflectionResponse response = Ask(request);
  ASSERT_EQ(response.list_services_response().service_size(), 2);
  EXPECT_EQ(response.list_services_response().service(0).name(), "a.First");
  EXPECT_EQ(response.list_services_response().service(1).name(), "b.Second");
}

TEST_F(ReflectionTest, TheRequestAndItsHostComeBackWithTheReply) {
  ServerReflectionRequest request;
  request.set_host("some.host");
  request.set_file_by_filename("base.proto");
  const ServerReflectionResponse response = Ask(request);
  EXPECT_EQ(response.valid_host(), "some.host");
  EXPECT_EQ(response.original_request().SerializeAsString(), request.SerializeAsString());
}

TEST_F(ReflectionTest, ANameOutsideThePoolIsNotFound) {
  ServerReflectionRequest request;
  request.set_file_by_filename("none.proto");
  ExpectError(Ask(request), grpc::NOT_FOUND, "file_by_filename is \"none.proto\", which this server does not know");
  request.set_file_containing_symbol("test.Closed");
  ExpectError(Ask(request), grpc::NOT_FOUND,
              "file_containing_symbol is \"test.Closed\", which this server does not know");
  request.set_all_extension_numbers_of_type("test.Closed");
  ExpectError(Ask(request), grpc::NOT_FOUND,
              "all_extension_numbers_of_type is \"test.Closed\", which this server does not know");
  request.mutable_file_containing_extension()->set_containing_type("test.Closed");
  ExpectError(Ask(request), grpc::NOT_FOUND, "containing_type is \"test.Closed\", which this server does not know");
  request.mutable_file_containing_extension()->set_containing_type("test.Open");
  request.mutable_file_containing_extension()->set_extension_number(121);
  ExpectError(Ask(request), grpc::NOT_FOUND, "extension_number is \"121\", which this server does not know");
}

TEST_F(ReflectionTest, ARequestOfNoKindIsAnInvalidArgument) {
  ExpectError(Ask(ServerReflectionRequest()), grpc::INVALID_ARGUMENT, "message_request");
}

// One parser serves both versions, which is right only as long as they differ in nothing but their package.
TEST(ReflectionProtocol, BothVersionsHaveTheSameMessages) {
  FileDescriptorProto v1, v1alpha;
  ServerReflectionRequest::descriptor()->file()->CopyTo(&v1);
  grpc::reflection::v1alpha::ServerReflectionRequest::descriptor()->file()->CopyTo(&v1alpha);
  EXPECT_GT(v1.message_type_size(), 5);
  const auto without_version = [](const std::string& text) {
    return absl::StrReplaceAll(
        text,
        {{"reflection.v1alpha", "reflection"}, {"reflection.v1", "reflection"}, {"/v1alpha/", "/"}, {"/v1/", "/"}});
  };
  EXPECT_EQ(without_version(v1.DebugString()), without_version(v1alpha.DebugString()));
}

}  // namespace
}  // namespace normd::rpc
