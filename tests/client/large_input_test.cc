// What the header of a large file says is checked before the file is read, against a small server that tells its
// limits.
#include "client/normctl/large_input.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "client/cli/tensor_file.h"
#include "client/normctl/commands.h"
#include "normd/v1/normalizer.grpc.pb.h"

namespace normd::client {
namespace {

class LimitsServer : public v1::Normalizer::Service {
 public:
  v1::DescribeResponse description;
  int normalized = 0;

  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*, v1::DescribeResponse* response) override {
    *response = description;
    return grpc::Status::OK;
  }
  grpc::Status Normalize(grpc::ServerContext*, const v1::NormalizeRequest*, v1::NormalizeResponse*) override {
    ++normalized;
    return {grpc::StatusCode::UNIMPLEMENTED, "normalized"};
  }
};

class LargeInput : public testing::Test {
 protected:
  LargeInput() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    path_ = std::filesystem::temp_directory_path() / absl::StrCat("large_input_test.", port_, ".npy");
    // A sparse file whose data, if it were looked at, would be found to be cut off.
    NpyArray array;
    array.shape = {int64_t{1} << 20, 1 << 10};
    EXPECT_TRUE(WriteFile(path_, NpyHeader(array)).ok());
    std::filesystem::resize_file(path_, 65 << 20);
    service_.description.mutable_limits()->set_max_message_bytes(1 << 20);
    service_.description.mutable_limits()->set_max_tensor_bytes(int64_t{1} << 30);
  }
  ~LargeInput() override {
    server_->Shutdown(std::chrono::system_clock::now());
    std::filesystem::remove(path_);
  }

  std::string ErrorOf(std::vector<std::string> words) {
    words.insert(words.begin() + 1, path_);
    words.push_back(absl::StrCat("--server=127.0.0.1:", port_));
    std::ostringstream out, err;
    EXPECT_NE(RunNormctl(words, {out, err, 80, false}), kExitOk);
    return err.str();
  }

  LimitsServer service_;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::string path_;
};

TEST_F(LargeInput, IsRefusedByItsHeader) {
  const std::string error = ErrorOf({"batch-norm", "--training", "--layout=channels-last"});
  EXPECT_THAT(error, testing::HasSubstr("x has 4294967296 bytes by the header of the file, which was not read further; "
                                        "the server takes 1073741824 of one tensor in chunks"));
  EXPECT_THAT(error, testing::HasSubstr("--max_in_flight_bytes="));
  EXPECT_THAT(ErrorOf({"batch-norm", "--training", "--layout=channels-last", "--dtype=f16"}),
              testing::HasSubstr("x has 2147483648 bytes"));
  EXPECT_EQ(service_.normalized, 0);
}

TEST_F(LargeInput, IsReadWhereItMayGo) {
  const char* kRead = "the shape needs 4294967296 bytes of data";
  // In parts, in chunks, or in shared memory.
  EXPECT_THAT(ErrorOf({"layer-norm"}), testing::HasSubstr(kRead));
  service_.description.mutable_limits()->set_max_tensor_bytes(int64_t{4} << 30);
  EXPECT_THAT(ErrorOf({"batch-norm", "--training", "--layout=channels-last"}), testing::HasSubstr(kRead));
  service_.description.mutable_limits()->set_max_tensor_bytes(1 << 20);
  service_.description.mutable_limits()->set_max_region_bytes(int64_t{8} << 30);
  service_.description.set_unix_socket("/nonexistent/normd.sock");
  EXPECT_THAT(ErrorOf({"batch-norm", "--training", "--layout=channels-last"}), testing::HasSubstr(kRead));
}

}  // namespace
}  // namespace normd::client
