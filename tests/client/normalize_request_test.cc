#include "client/normctl/normalize_request.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "client/cli/tensor_file.h"

namespace normd::client {
namespace {

class NormalizeRequest : public testing::Test {
 protected:
  NormalizeRequest() {
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("normalize_request_test.") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    x_ = folder_ / "x.npy";
    EXPECT_TRUE(SaveTensor(x_, Tensor::F32({1, 2}, {3, 4}), false).ok());
  }
  ~NormalizeRequest() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<NormalizeInput> Build(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {x_, "-o", "y.npy"});
    CommandSpec spec;
    spec.max_operands = 1;
    spec.flags = NormalizeFlags("");
    const absl::StatusOr<ParsedArgs> args = ParseArgs(spec, arguments);
    return args.ok() ? BuildNormalizeInput(*args) : args.status();
  }

 private:
  std::filesystem::path folder_;
  std::string x_;
};

TEST_F(NormalizeRequest, CarriesWhatIsSaidOfTheSession) {
  const auto input = Build({"--session", "bn", "--max-staleness", "1.5s", "--expected-version", "7", "--step-client",
                            "a", "--step-sequence", "9"});
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_EQ(input->request.max_staleness().seconds(), 1);
  EXPECT_EQ(input->request.max_staleness().nanos(), 500000000);
  EXPECT_EQ(input->request.expected_version(), 7u);
  EXPECT_EQ(input->request.step().client_id(), "a");
  EXPECT_EQ(input->request.step().sequence(), 9u);
  const auto plain = Build({"--session", "bn"});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_FALSE(plain->request.has_max_staleness());
  EXPECT_FALSE(plain->request.has_step());
  EXPECT_EQ(Build({"--session", "bn", "--max-staleness", "inf"})->request.max_staleness().seconds(), 315576000000);
}

TEST_F(NormalizeRequest, RefusesWhatMakesNoSense) {
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{"--max-staleness", "1s"},  // there is no session to be stale
                                             {"--session", "bn", "--max-staleness", "soon"},
                                             {"--session", "bn", "--max-staleness", "-1s"},
                                             {"--session", "bn", "--expected-version", "-1"},
                                             {"--session", "bn", "--step-client", "a", "--step-sequence", "-1"},
                                             {"--session", "bn", "--step-sequence", "1"}}) {
    EXPECT_TRUE(IsUsageError(Build(arguments).status())) << testing::PrintToString(arguments);
  }
}

}  // namespace
}  // namespace normd::client
