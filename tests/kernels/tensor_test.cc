#include "kernels/tensor.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/errors.h"

namespace normd {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::string RefusedField(const std::vector<int64_t>& shape) {
  const absl::StatusOr<int64_t> count = CheckedElementCount(shape, "residual.tensor");
  EXPECT_EQ(count.status().code(), absl::StatusCode::kInvalidArgument);
  const std::optional<ErrorDetail> detail = GetErrorDetail(count.status());
  return detail.has_value() ? detail->field + " " + detail->reason : "";
}

TEST(DType, HasANameAndASize) {
  EXPECT_EQ(Name(DType::kF32), "f32");
  EXPECT_EQ(Name(DType::kF16), "f16");
  EXPECT_EQ(Name(DType::kBF16), "bf16");
  EXPECT_EQ(Name(DType::kF64), "f64");
  EXPECT_EQ(SizeOf(DType::kF32), 4);
  EXPECT_EQ(SizeOf(DType::kF16), 2);
  EXPECT_EQ(SizeOf(DType::kBF16), 2);
  EXPECT_EQ(SizeOf(DType::kF64), 8);
  EXPECT_EQ(SizeOf(static_cast<DType>(0)), 0);
}

TEST(CheckedElementCount, MultipliesTheDimensions) {
  EXPECT_EQ(*CheckedElementCount({}, "x"), 1);
  EXPECT_EQ(*CheckedElementCount({7}, "x"), 7);
  EXPECT_EQ(*CheckedElementCount({2, 3, 5}, "x"), 30);
  EXPECT_EQ(*CheckedElementCount({2, 0, 5}, "x"), 0);
  EXPECT_EQ(*CheckedElementCount({1, 1, 1, 1, 1, 1, 1, 9}, "x"), 9);
}

TEST(CheckedElementCount, AcceptsWhatFitsInInt64AsF64) {
  EXPECT_EQ(*CheckedElementCount({(int64_t{1} << 60) - 1}, "x"), (int64_t{1} << 60) - 1);
  EXPECT_EQ(*CheckedElementCount({int64_t{1} << 30, (int64_t{1} << 30) - 1}, "x"),
            (int64_t{1} << 60) - (int64_t{1} << 30));
  EXPECT_EQ(*CheckedElementCount({kMax / 8, 0}, "x"), 0);
}

TEST(CheckedElementCount, RefusesOverflow) {
  EXPECT_EQ(RefusedField({int64_t{1} << 60}), "residual.tensor.shape SHAPE_OVERFLOW");
  EXPECT_EQ(RefusedField({kMax}), "residual.tensor.shape SHAPE_OVERFLOW");
  EXPECT_EQ(RefusedField({kMax, kMax}), "residual.tensor.shape SHAPE_OVERFLOW");
  EXPECT_EQ(RefusedField({int64_t{1} << 30, int64_t{1} << 30}), "residual.tensor.shape SHAPE_OVERFLOW");
  EXPECT_EQ(RefusedField(std::vector<int64_t>(8, int64_t{1} << 32)), "residual.tensor.shape SHAPE_OVERFLOW");
}

TEST(CheckedElementCount, RefusesOverflowBesideAZero) {
  EXPECT_EQ(RefusedField({0, kMax, kMax}), "residual.tensor.shape SHAPE_OVERFLOW");
  EXPECT_EQ(RefusedField({kMax, 0, kMax}), "residual.tensor.shape SHAPE_OVERFLOW");
  EXPECT_EQ(RefusedField({kMax, kMax, 0}), "residual.tensor.shape SHAPE_OVERFLOW");
}

TEST(CheckedElementCount, RefusesNegativeDimensionsNamingTheFirst) {
  EXPECT_EQ(RefusedField({2, -1, -2}), "residual.tensor.shape[1] NEGATIVE_DIMENSION");
  EXPECT_EQ(RefusedField({kMax, kMax, std::numeric_limits<int64_t>::min()}),
            "residual.tensor.shape[2] NEGATIVE_DIMENSION");
  EXPECT_EQ(RefusedField({0, -1}), "residual.tensor.shape[1] NEGATIVE_DIMENSION");
}

TEST(CheckedElementCount, RefusesMoreThanEightDimensions) {
  EXPECT_TRUE(CheckedElementCount(std::vector<int64_t>(8, 1), "x").ok());
  EXPECT_EQ(RefusedField(std::vector<int64_t>(9, 1)), "residual.tensor.shape RANK_OUT_OF_RANGE");
  EXPECT_EQ(RefusedField(std::vector<int64_t>(100000, -1)), "residual.tensor.shape RANK_OUT_OF_RANGE");
}

TEST(ElementCount, MultipliesTheDimensions) {
  EXPECT_EQ(ElementCount({}), 1);
  EXPECT_EQ(ElementCount({2, 3, 5}), 30);
  EXPECT_EQ(ElementCount({2, 0, 5}), 0);
}

TEST(ShapeText, ListsTheExtentsButNotTooMany) {
  EXPECT_EQ(ShapeText({}), "[]");
  EXPECT_EQ(ShapeText({2, -3, 5}), "[2,-3,5]");
  EXPECT_EQ(ShapeText(std::vector<int64_t>(16, 1)), "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]");
  EXPECT_EQ(ShapeText(std::vector<int64_t>(100000, 1)), "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,...]");
}

TEST(TensorView, IsPresentWhenItHasData) {
  TensorView view;
  EXPECT_FALSE(view.present());
  view.data = "";
  EXPECT_TRUE(view.present());
}

}  // namespace
}  // namespace normd
