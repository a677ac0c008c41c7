#include "kernels/base/errors.h"

#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace normd {
namespace {

struct Example {
  absl::Status status;
  std::string message, field, value, limit, reason;
};

TEST(Errors, EachNamesFieldValueAndLimitInTextAndAsDetail) {
  const Example examples[] = {
      {EpsError("spec.layer_norm.eps", -1e-5), "spec.layer_norm.eps is -1e-05; it must be finite and at least 0",
       "spec.layer_norm.eps", "-1e-05", "finite and at least 0", "EPS_OUT_OF_RANGE"},
      {MomentumError("m", std::numeric_limits<double>::quiet_NaN()), "m is nan; it must be between 0 and 1", "m", "nan",
       "between 0 and 1", "MOMENTUM_OUT_OF_RANGE"},
      {OutOfRangeError("f", "9", "1 to 8", KernelReason("K_OUT_OF_RANGE")), "f is 9; it must be 1 to 8", "f", "9",
       "1 to 8", "K_OUT_OF_RANGE"},
      {AmountError("f", "9 axes", "at most 8 axes", KernelReason("K_OUT_OF_RANGE")),
       "f has 9 axes; it must have at most 8 axes", "f", "9 axes", "at most 8 axes", "K_OUT_OF_RANGE"},
      {FormError("f", "bn", "sessions/{id}", KernelReason("K_OUT_OF_RANGE")), "f is \"bn\"; write sessions/{id}", "f",
       "bn", "sessions/{id}", "K_OUT_OF_RANGE"},
      {FormError("f", "", "sessions/{id}", KernelReason("K_OUT_OF_RANGE")), "f is empty; write sessions/{id}", "f", "",
       "sessions/{id}", "K_OUT_OF_RANGE"},
      {ParameterLengthError("bias", 1, 8), "bias has 1 value; it must have 8", "bias", "1", "8", "PARAMETER_LENGTH"},
      {ParameterLengthError("parameters.weight", 4, 8), "parameters.weight has 4 values; it must have 8",
       "parameters.weight", "4", "8", "PARAMETER_LENGTH"},
      {ShapeMismatchError("residual.tensor.shape", "[2]", "[3]"), "residual.tensor has shape [2]; it must have [3]",
       "residual.tensor.shape", "[2]", "[3]", "SHAPE_MISMATCH"},
      {ByteCountError("x.data", 12, 32, "f32", "[2,4]"), "x.data has 12 bytes; dtype f32 and shape [2,4] make 32",
       "x.data", "12", "32", "BYTE_COUNT"},
      {ByteCountError("x.shared.size_bytes", 1, 32, "f32", "[2,4]"),
       "x.shared has 1 byte; dtype f32 and shape [2,4] make 32", "x.shared.size_bytes", "1", "32", "BYTE_COUNT"},
      {ByteCountError("mask", 7, 8, "", "[2,4]"), "mask has 7 bytes; shape [2,4] makes 8", "mask", "7", "8",
       "BYTE_COUNT"},
      {RankError("x.shape", 9, 1, 8), "x has rank 9; the rank must be between 1 and 8", "x.shape", "9",
       "between 1 and 8", "RANK_OUT_OF_RANGE"},
      {DimensionError("x.shape[2]", -3), "x.shape[2] is -3; it must be at least 0", "x.shape[2]", "-3", "at least 0",
       "NEGATIVE_DIMENSION"},
      {ShapeOverflowError("x.shape", "[9,9]"),
       "x has shape [9,9]; it must have a product of its non-zero dimensions below 2^60", "x.shape", "[9,9]",
       "a product of its non-zero dimensions below 2^60", "SHAPE_OVERFLOW"},
      {DTypeError("x.dtype", "DTYPE_UNSPECIFIED"), "x.dtype is DTYPE_UNSPECIFIED; it must be f32, f16, bf16 or f64",
       "x.dtype", "DTYPE_UNSPECIFIED", "f32, f16, bf16 or f64", "UNSUPPORTED_DTYPE"},
      {MissingError("spec", "one of the methods"), "spec is missing; give one of the methods", "spec", "",
       "one of the methods", "MISSING_FIELD"},
      {NotAllowedError("parameters", "a session has its own"),
       "parameters is given, but a session has its own; leave it out", "parameters", "", "absent", "NOT_ALLOWED"},
      {ExclusiveError("spec.p_rms_norm.k", "p"), "spec.p_rms_norm.k and p are both given; give one of them",
       "spec.p_rms_norm.k", "", "absent", "NOT_ALLOWED"},
  };
  for (const Example& example : examples) {
    EXPECT_EQ(example.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(example.status.message(), example.message);
    const std::optional<ErrorDetail> detail = GetErrorDetail(example.status);
    ASSERT_TRUE(detail.has_value()) << example.message;
    EXPECT_EQ(detail->field, example.field);
    EXPECT_EQ(detail->value, example.value);
    EXPECT_EQ(detail->limit, example.limit);
    EXPECT_EQ(detail->reason, example.reason);
  }
}

constexpr ErrorReason kNotInvalidArgument = KernelReason("CUDA_NOT_AVAILABLE");

TEST(MakeError, TakesTheCodeOfTheReason) {
  const absl::Status status = MakeError(kNotInvalidArgument, {"x", "9 bytes", "at most 8"}, "has 9 bytes, too many");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "x has 9 bytes, too many");
}

TEST(GetErrorDetail, ReturnsAnyBytesAsTheyWere) {
  const FieldViolation violation = {"labels[\"3:a\"]", std::string("a\0:b\n", 5), ""};
  const std::optional<ErrorDetail> back = GetErrorDetail(MakeError(kNotInvalidArgument, violation, "is odd"));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->field, violation.field);
  EXPECT_EQ(back->value, violation.value);
  EXPECT_EQ(back->limit, violation.limit);
  EXPECT_EQ(back->reason, kNotInvalidArgument.name());
}

TEST(GetErrorDetail, IsNothingForStatusesFromElsewhere) {
  EXPECT_FALSE(GetErrorDetail(absl::OkStatus()).has_value());
  EXPECT_FALSE(GetErrorDetail(absl::InvalidArgumentError("x: bad")).has_value());
  for (const char* broken :
       {"", "5", "5:abc", "x:abc", "1:a1:b1:c", "-1:a1:b1:c1:d", "1:a1:b1:c5:d", "99999999999999999999:a"}) {
    absl::Status status = absl::InvalidArgumentError("x");
    status.SetPayload("normd.ErrorDetail", absl::Cord(broken));
    EXPECT_FALSE(GetErrorDetail(status).has_value()) << broken;
  }
}

TEST(PrefixField, PutsThePrefixBeforeThePathInTextAndDetail) {
  const absl::Status status = PrefixField(EpsError("layer_norm.eps", -1), "spec");
  EXPECT_EQ(status.message(), "spec.layer_norm.eps is -1; it must be finite and at least 0");
  EXPECT_EQ(GetErrorDetail(status)->field, "spec.layer_norm.eps");
  EXPECT_EQ(GetErrorDetail(status)->value, "-1");
  const absl::Status item = PrefixField(status, "items[3]");
  EXPECT_EQ(item.message(), "items[3].spec.layer_norm.eps is -1; it must be finite and at least 0");
  EXPECT_EQ(GetErrorDetail(item)->field, "items[3].spec.layer_norm.eps");
}

TEST(PrefixField, PutsThePrefixBeforeATensorWhoseFieldIsMeant) {
  const absl::Status status = PrefixField(RankError("x.shape", 0, 1, 8), "items[3]");
  EXPECT_EQ(status.message(), "items[3].x has rank 0; the rank must be between 1 and 8");
  EXPECT_EQ(GetErrorDetail(status)->field, "items[3].x.shape");
}

TEST(PrefixField, JoinsWithOnePoint) {
  const auto prefixed = [](std::string_view field, std::string_view prefix) {
    return GetErrorDetail(PrefixField(DTypeError(field, "int8"), prefix))->field;
  };
  EXPECT_EQ(prefixed("x", "items[3]."), "items[3].x");
  EXPECT_EQ(prefixed("x", ""), "x");
  EXPECT_EQ(prefixed("", "x"), "x");
  EXPECT_EQ(prefixed("[2]", "items"), "items[2]");
}

TEST(PrefixField, KeepsCodeAndOtherPayloads) {
  absl::Status status = MakeError(kNotInvalidArgument, {"x", "9", "8"}, "is too big");
  status.SetPayload("other", absl::Cord("kept"));
  const absl::Status prefixed = PrefixField(status, "request");
  EXPECT_EQ(prefixed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(prefixed.GetPayload("other"), absl::Cord("kept"));
}

TEST(PrefixField, LeavesOtherStatusesAlone) {
  EXPECT_TRUE(PrefixField(absl::OkStatus(), "x").ok());
  const absl::Status other = absl::NotFoundError("no such session");
  EXPECT_EQ(PrefixField(other, "x"), other);
}

}  // namespace
}  // namespace normd
