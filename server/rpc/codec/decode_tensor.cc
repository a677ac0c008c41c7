#include "server/rpc/codec/decode_tensor.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"

namespace normd::rpc {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors travel little-endian and are not swapped");

// Views of empty tensors point here, because null would mean "absent".
constexpr char kNoBytes[1] = {0};
constexpr double kMaxCount = 9007199254740992.0;  // 2^53: f64 cannot represent every integer above

std::string Path(std::string_view field, const char* leaf) { return absl::StrCat(std::string(field), leaf); }

absl::StatusOr<DType> DecodeDType(v1::DType dtype, std::string_view tensor) {
  for (const DType known : kAllDTypes) {
    if (static_cast<int>(known) == static_cast<int>(dtype)) return known;
  }
  const std::string field = Path(tensor, ".dtype");
  if (v1::DType_IsValid(dtype)) return DTypeError(field, v1::DType_Name(dtype));
  return DTypeError(field, absl::StrCat(static_cast<int>(dtype)));
}

const char* PayloadLeaf(const v1::Tensor& tensor) {
  return tensor.has_shared() ? ".shared.size_bytes" : tensor.has_chunked() ? ".chunked" : ".data";
}

// What the caller of Decode accepts: scattered bytes, and memory other than the host's.
struct Allows {
  bool pieces = false, any_space = false;
};

absl::StatusOr<TensorView> Decode(const v1::Tensor& tensor, std::string_view field, TensorKind kind,
                                  TensorSource* source, Allows allows) {
  TensorView view;
  int64_t element_bytes = 1;
  if (kind == TensorKind::kFloating) {
    NORMD_ASSIGN_OR_RETURN(view.dtype, DecodeDType(tensor.dtype(), field));
    element_bytes = SizeOf(view.dtype);
  }
  const absl::Span<const int64_t> shape(tensor.shape().data(), static_cast<size_t>(tensor.shape_size()));
  if (shape.empty() || shape.size() > kMaxRank) {
    return RankError(Path(field, ".shape"), static_cast<int64_t>(shape.size()), 1, kMaxRank);
  }
  NORMD_ASSIGN_OR_RETURN(const int64_t elements, CheckedElementCount(shape, field));
  view.shape.assign(shape.begin(), shape.end());
  view.size_bytes = elements * element_bytes;
  TensorSource message;  // without blocks, so that Find returns the bytes in the message itself
  NORMD_ASSIGN_OR_RETURN(const TensorSource::Bytes bytes,
                         (source == nullptr ? message : *source).Find(tensor, field, allows.pieces));
  if (bytes.size_bytes != view.size_bytes) {
    const std::string_view dtype = kind == TensorKind::kMask ? "" : Name(view.dtype);
    return ByteCountError(Path(field, PayloadLeaf(tensor)), bytes.size_bytes, view.size_bytes, dtype, ShapeText(shape));
  }
  if (!bytes.space.is_host() && !allows.any_space) return InCudaMemoryError(Path(field, ".shared"));
  view.data = bytes.data;
  view.space = bytes.space;
  view.segments = bytes.segments;
  if (view.size_bytes == 0) view.data = kNoBytes;
  return view;
}

}  // namespace

absl::Status UnknownEnumError(std::string_view field, int value) {
  return OutOfRangeError(field, absl::StrCat(value), "a known enum value", KernelReason("UNKNOWN_ENUM_VALUE"));
}

absl::StatusOr<TensorView> DecodeTensor(const v1::Tensor& tensor, std::string_view field, TensorKind kind,
                                        TensorSource* source) {
  return Decode(tensor, field, kind, source, {});
}

absl::StatusOr<TensorView> DecodeTensorAnywhere(const v1::Tensor& tensor, std::string_view field,
                                                TensorSource* source) {
  return Decode(tensor, field, TensorKind::kFloating, source, {.any_space = true});
}

absl::StatusOr<TensorView> DecodeScatteredTensor(const v1::Tensor& tensor, std::string_view field,
                                                 TensorSource* source) {
  return Decode(tensor, field, TensorKind::kFloating, source, {.pieces = true, .any_space = true});
}

absl::StatusOr<std::vector<double>> DecodeF64(const v1::Tensor& tensor, std::string_view field) {
  NORMD_ASSIGN_OR_RETURN(const TensorView view, DecodeTensor(tensor, field));
  if (view.dtype != DType::kF64) {
    return OutOfRangeError(Path(field, ".dtype"), Name(view.dtype), "f64", KernelReason("UNSUPPORTED_DTYPE"));
  }
  std::vector<double> values(static_cast<size_t>(view.size_bytes) / sizeof(double));
  if (!values.empty()) std::memcpy(values.data(), view.data, values.size() * sizeof(double));
  return values;
}

namespace {

// An f64 tensor with a value for each of `size` channels.
absl::StatusOr<std::vector<double>> DecodeChannels(const v1::Tensor& tensor, size_t size, const std::string& field) {
  NORMD_ASSIGN_OR_RETURN(std::vector<double> values, DecodeF64(tensor, field));
  if (values.size() == size) return values;
  return ParameterLengthError(field, static_cast<int64_t>(values.size()), static_cast<int64_t>(size));
}

absl::StatusOr<Extremes> DecodeExtremes(const v1::Moments& moments, size_t size, std::string_view field) {
  Extremes extremes;
  if (!moments.has_min() && !moments.has_max()) return extremes;
  if (!moments.has_min()) return MissingError(Path(field, ".min"), "both extremes or none");
  if (!moments.has_max()) return MissingError(Path(field, ".max"), "both extremes or none");
  NORMD_ASSIGN_OR_RETURN(extremes.min, DecodeChannels(moments.min(), size, Path(field, ".min")));
  NORMD_ASSIGN_OR_RETURN(extremes.max, DecodeChannels(moments.max(), size, Path(field, ".max")));
  return extremes;
}

absl::StatusOr<std::shared_ptr<const GroupSums>> DecodeExact(const v1::Moments& moments, std::string_view field) {
  if (!moments.has_exact()) return nullptr;
  absl::StatusOr<GroupSums> exact = GroupSums::Decode(moments.exact());
  if (!exact.ok()) return PrefixField(exact.status(), field);
  return std::make_shared<const GroupSums>(*std::move(exact));
}

}  // namespace

absl::StatusOr<MomentsPart> DecodeMoments(const v1::Moments& moments, std::string_view field) {
  NORMD_ASSIGN_OR_RETURN(const std::vector<double> count, DecodeF64(moments.count(), Path(field, ".count")));
  NORMD_ASSIGN_OR_RETURN(const auto mean, DecodeChannels(moments.mean(), count.size(), Path(field, ".mean")));
  NORMD_ASSIGN_OR_RETURN(const auto m2, DecodeChannels(moments.m2(), count.size(), Path(field, ".m2")));
  MomentsPart part;
  part.moments.reserve(count.size());
  for (size_t i = 0; i < count.size(); ++i) {
    if (!(count[i] >= 0 && count[i] <= kMaxCount)) {
      return OutOfRangeError(Path(field, ".count"), absl::StrCat(count[i]), "a whole number, at least 0",
                             ServerReason("COUNT_OUT_OF_RANGE"));
    }
    if (m2[i] < 0)
      return OutOfRangeError(Path(field, ".m2"), absl::StrCat(m2[i]), "at least 0", ServerReason("M2_OUT_OF_RANGE"));
    part.moments.push_back({.count = count[i], .mean = mean[i], .m2 = m2[i]});
  }
  NORMD_ASSIGN_OR_RETURN(part.details.extremes, DecodeExtremes(moments, count.size(), field));
  NORMD_ASSIGN_OR_RETURN(part.details.exact, DecodeExact(moments, field));
  if (!moments.has_samples()) return part;
  NORMD_ASSIGN_OR_RETURN(part.details.samples,
                         DecodeChannels(moments.samples(), count.size(), Path(field, ".samples")));
  return part;
}

}  // namespace normd::rpc
