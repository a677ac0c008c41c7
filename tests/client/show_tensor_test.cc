#include "client/cli/show_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "absl/strings/str_split.h"

namespace normd::client {
namespace {

Tensor Counting(std::vector<int64_t> shape) {
  const auto count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::F32(std::move(shape), values);
}

TEST(ShowTensor, AlignsColumnsUnderTheirNames) {
  const Tensor y = Tensor::F32({2, 2}, {-1.3416407f, 10, 0.5f, 1});
  EXPECT_EQ(ShowTensor(y, {}, 80), "-1.3416407  10\n       0.5   1\n");
  EXPECT_EQ(ShowTensor(y, {"first", "b"}, 80), "     first   b\n-1.3416407  10\n       0.5   1\n");
  EXPECT_EQ(ShowTensor(Tensor::F64({3}, {1, 2, 1.0 / 3}), {}, 80), "1  2  0.33333333\n");
}

TEST(ShowTensor, LeavesTheMiddleOfLargeTensorsOut) {
  const std::string text = ShowTensor(Counting({200, 8}), {}, 80);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines[0], "   0     1     2  ...     5     6     7");
  EXPECT_EQ(lines[3], " ...   ...   ...  ...   ...   ...   ...");
  EXPECT_EQ(lines[6], "1592  1593  1594  ...  1597  1598  1599");
}

TEST(ShowTensor, LeavesColumnsOutThatDoNotFit) {
  for (const int width : {20, 40, 60}) {
    const std::string text = ShowTensor(Counting({2, 100}), {}, width);
    for (const absl::string_view line : absl::StrSplit(text, '\n')) EXPECT_LE(line.size(), static_cast<size_t>(width));
    EXPECT_THAT(text, testing::HasSubstr("..."));
    EXPECT_THAT(text, testing::HasSubstr("199"));
  }
  EXPECT_THAT(ShowTensor(Counting({1, 100}), {}, 1), testing::EndsWith("99\n")) << "at least the first and the last";
}

TEST(ShowTensor, NamesTheMatricesOfHigherRanks) {
  EXPECT_EQ(ShowTensor(Counting({2, 1, 2}), {}, 80), "[0]\n0  1\n[1]\n2  3\n");
  const std::string large = ShowTensor(Counting({50, 2, 30}), {}, 80);
  EXPECT_THAT(large, testing::HasSubstr("[2]\n"));
  EXPECT_THAT(large, testing::HasSubstr("\n...\n[47]\n"));
  EXPECT_THAT(large, testing::Not(testing::HasSubstr("[3]\n")));
}

TEST(ShowTensor, ShowsNothingOfNothing) {
  EXPECT_EQ(ShowTensor(Tensor::F32({0, 4}, {}), {}, 80), "");
  EXPECT_EQ(TensorAsLines(Tensor::F32({0, 4}, {}), {}), "");
}

TEST(TensorAsLines, IsWhole) {
  EXPECT_EQ(TensorAsLines(Counting({2, 2}), {"a", "b"}), "a,b\n0,1\n2,3\n");
  EXPECT_EQ(TensorAsLines(Counting({2, 1, 1, 2}), {}), "# [0, 0]\n0,1\n# [1, 0]\n2,3\n");
  const std::string large = TensorAsLines(Counting({100, 100}), {});
  EXPECT_EQ(std::count(large.begin(), large.end(), '\n'), 100);
}

}  // namespace
}  // namespace normd::client
