#include "client/normctl/split.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/status.h"
#include "client/cpp/without_tensors.h"
#include "proto/catalogue/outputs.h"

namespace normd::client {
namespace {

// Space for the fields that are not tensors, and for the length fields of tensors.
constexpr int64_t kHeaderBytes = 64 << 10;

// The extents before `axis` multiplied: how many slices of the axis follow each other in memory.
int64_t OuterExtent(const v1::Tensor& tensor, int axis) {
  return std::accumulate(tensor.shape().begin(), tensor.shape().begin() + axis, int64_t{1}, std::multiplies<>());
}

// Copies the indices [first, first + count) of `axis` out of `tensor`. `out` is a copy of `tensor` without its data.
void CutTensor(const v1::Tensor& tensor, int axis, int64_t first, int64_t count, v1::Tensor* out) {
  out->set_shape(axis, count);
  if (!tensor.has_data()) return;
  const auto outer = static_cast<size_t>(OuterExtent(tensor, axis));
  const size_t slice_bytes = outer == 0 ? 0 : tensor.data().size() / outer;
  const size_t index_bytes = slice_bytes / static_cast<size_t>(tensor.shape(axis));
  std::string& data = *out->mutable_data();
  data.reserve(outer * index_bytes * static_cast<size_t>(count));
  for (size_t i = 0; i < outer; ++i) {
    data.append(tensor.data(), i * slice_bytes + static_cast<size_t>(first) * index_bytes,
                index_bytes * static_cast<size_t>(count));
  }
}

// True if the tensor has the same extent as x there, and so is cut with x.
bool HasAxis(const v1::Tensor& tensor, int axis, int64_t extent) {
  return tensor.shape_size() > axis && tensor.shape(axis) == extent;
}

// True if the data are as many bytes as dtype and shape say. The product of the extents then fits 64 bits, and no
// extent is negative.
bool HasBytesOfShape(const v1::Tensor& tensor) {
  int64_t bytes = ElementBytes(tensor.dtype());
  bool fits = bytes > 0;
  for (const int64_t extent : tensor.shape()) {
    fits = fits && extent >= 0 && !__builtin_mul_overflow(bytes, extent, &bytes);
  }
  return fits && static_cast<uint64_t>(bytes) == tensor.data().size();
}

// True if the tensors differ in their extent of `axis` alone. REQUIRES: they have the same rank.
bool IsPieceOf(const v1::Tensor& piece, const v1::Tensor& whole, int axis) {
  for (int i = 0; i < whole.shape_size(); ++i) {
    if (i != axis && piece.shape(i) != whole.shape(i)) return false;
  }
  return true;
}

// True if the request may be cut along an axis other than the first: what is not known to have x's axes is absent.
bool HasOnlyTensorsLikeX(const v1::NormalizeRequest& request) {
  const v1::Tensor& residual = request.residual().tensor();
  const bool same_shape = std::equal(residual.shape().begin(), residual.shape().end(), request.x().shape().begin(),
                                     request.x().shape().end());
  return !request.has_mask() && (!request.residual().has_tensor() || same_shape) &&
         std::all_of(request.outputs().begin(), request.outputs().end(),
                     [](const v1::OutputRequest& output) { return IsLikeX(output.kind()); });
}

// A call in chunks holds x, y and what is being sent or received of them.
constexpr int64_t kBytesHeldPerByteOfX = 3;

// True if the server refused x for its size, or the call for memory that it would take even if it were the only one.
bool IsTooLarge(const ErrorInfo& error, int64_t x_bytes) {
  if (error.reason == "TENSOR_TOO_LARGE") return true;
  int64_t bytes = 0;
  const bool over_budget = error.reason == "LIMIT_EXCEEDED" && absl::StrContains(error.field, "bytes_in_flight");
  return over_budget && absl::SimpleAtoi(error.value, &bytes) && bytes <= kBytesHeldPerByteOfX * x_bytes;
}

absl::Status WithRemedy(const absl::Status& status, const v1::NormalizeRequest& request, const v1::NormSpec& spec) {
  const auto x_bytes = static_cast<int64_t>(request.x().data().size());
  const std::optional<ErrorInfo> info = GetErrorInfo(status);
  if (!info.has_value() || !IsTooLarge(*info, x_bytes)) return status;
  const std::string message = absl::StrCat(status.message(), ".", TooLargeRemedy(x_bytes, request, spec));
  absl::Status out(status.code(), message);
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
  return out;
}

void AddTimings(const v1::Timings& from, v1::Timings& to) {
  to.set_decode_ns(to.decode_ns() + from.decode_ns());
  to.set_queue_ns(to.queue_ns() + from.queue_ns());
  to.set_compute_ns(to.compute_ns() + from.compute_ns());
  to.set_commit_ns(to.commit_ns() + from.commit_ns());
  to.set_encode_ns(to.encode_ns() + from.encode_ns());
}

}  // namespace

std::string TooLargeRemedy(int64_t x_bytes, const v1::NormalizeRequest& request, const v1::NormSpec& spec) {
  // One caller may hold 15/16 of --max_in_flight_bytes.
  const int64_t needed_mib = kBytesHeldPerByteOfX * x_bytes / 15 * 16 / (1 << 20) + 1;
  std::string out = absl::StrCat(
      " The tensor cannot be sent in parts, because the method looks across all of it. On the ",
      "server's host, share it: --server=unix:/path of the server. Or start normd with --max_in_flight_bytes=",
      needed_mib, "MiB or more, and a --max_tensor_bytes that is not below the tensor.");
  if (request.mode() == v1::MODE_TRAINING && !request.session().empty() && spec.has_batch_norm()) {
    absl::StrAppend(&out, " Or train from parts of x: normctl moments for each part, normctl session commit for all.");
  }
  return out;
}

std::vector<int> IndependentAxes(const v1::NormSpec& spec, v1::Mode mode, int rank) {
  std::vector<int> out;
  if (rank < 2) return out;
  // All axes but the ones named; those below 0 count from the end.
  const auto all_but = [&](std::vector<int64_t> axes) {
    for (int64_t& axis : axes) axis += axis < 0 ? rank : 0;
    for (int axis = 0; axis < rank; ++axis) {
      if (std::find(axes.begin(), axes.end(), axis) == axes.end()) out.push_back(axis);
    }
    return out;
  };
  // All axes but the normalised ones of a method that names them by `axes` or by the trailing `normalized_shape`.
  const auto all_but_those_of = [&](const auto& method) {
    if (!method.axes().empty()) return all_but({method.axes().begin(), method.axes().end()});
    for (int axis = 0; axis < rank - std::max(1, method.normalized_shape_size()); ++axis) out.push_back(axis);
    return out;
  };
  const bool training = mode == v1::MODE_TRAINING;
  switch (spec.method_case()) {
    case v1::NormSpec::kLayerNorm:
      return all_but_those_of(spec.layer_norm());
    case v1::NormSpec::kRmsNorm:
      return all_but_those_of(spec.rms_norm());
    case v1::NormSpec::kPRmsNorm:
    case v1::NormSpec::kScaleNorm:
      return all_but({-1});
    case v1::NormSpec::kLpNorm: {
      const v1::LpNorm& method = spec.lp_norm();
      if (!method.axes().empty()) return all_but({method.axes().begin(), method.axes().end()});
      return all_but({method.has_axis() ? method.axis() : -1});
    }
    case v1::NormSpec::kGroupNorm:
      return {0};
    case v1::NormSpec::kInstanceNorm:
      if (training && spec.instance_norm().track_running_statistics()) return {};
      return {0};
    case v1::NormSpec::kBatchNorm:
      if (training) return {};
      return all_but({spec.batch_norm().layout() == v1::LAYOUT_CHANNELS_LAST ? -1 : 1});
    case v1::NormSpec::kPowerNorm:
      if (training) return {};
      return {0};
    default:
      return {};
  }
}

std::optional<Cut> ChooseCut(const v1::NormalizeRequest& request, const v1::NormSpec& spec, int64_t max_bytes) {
  const bool only_like_x = HasOnlyTensorsLikeX(request);
  const auto parameter_bytes = static_cast<int64_t>(request.parameters().ByteSizeLong());
  const int64_t room = max_bytes - parameter_bytes - kHeaderBytes;
  const int64_t bytes = static_cast<int64_t>(request.ByteSizeLong()) - parameter_bytes;
  for (const int axis : IndependentAxes(spec, request.mode(), request.x().shape_size())) {
    const int64_t extent = request.x().shape(axis);
    if (extent < 1 || (axis > 0 && !only_like_x)) continue;
    const int64_t indices = room / (bytes / extent + 1);
    if (indices >= 1) return Cut{axis, indices};
  }
  return std::nullopt;
}

v1::NormalizeRequest CutAxis(const v1::NormalizeRequest& request, int axis, int64_t first, int64_t count) {
  const int64_t extent = request.x().shape(axis);
  const v1::Tensor& residual = request.residual().tensor();
  const bool cuts_residual = HasAxis(residual, axis, extent);
  const bool cuts_mask = HasAxis(request.mask(), axis, extent);
  std::vector<const v1::Tensor*> cut = {&request.x()};
  if (cuts_residual) cut.push_back(&residual);
  if (cuts_mask) cut.push_back(&request.mask());
  v1::NormalizeRequest out;
  CopyWithoutBytes(request, cut, &out);
  CutTensor(request.x(), axis, first, count, out.mutable_x());
  if (cuts_residual) CutTensor(residual, axis, first, count, out.mutable_residual()->mutable_tensor());
  if (cuts_mask) CutTensor(request.mask(), axis, first, count, out.mutable_mask());
  return out;
}

bool PieceJoiner::IsJoined(v1::OutputKind kind) const { return IsLikeX(kind) || joins_statistics_; }

absl::Status PieceJoiner::AddTensor(const v1::Tensor& piece, int64_t first, v1::Tensor& whole) const {
  if (whole.shape_size() <= axis_ || piece.shape_size() != whole.shape_size()) {
    return absl::InternalError("the replies to pieces differ in rank");
  }
  const bool fits = piece.dtype() == whole.dtype() && HasBytesOfShape(piece) && IsPieceOf(piece, whole, axis_) &&
                    piece.shape(axis_) <= extent_ - first;
  if (!fits) return absl::InternalError("the replies to pieces differ in size");
  if (piece.data().empty()) return absl::OkStatus();
  const auto outer = static_cast<size_t>(OuterExtent(whole, axis_));
  const auto count = static_cast<size_t>(piece.shape(axis_));
  const auto extent = static_cast<size_t>(extent_);
  const size_t index_bytes = piece.data().size() / (outer * count);
  std::string& data = *whole.mutable_data();
  data.resize(outer * extent * index_bytes);
  for (size_t i = 0; i < outer; ++i) {
    std::copy_n(piece.data().data() + i * count * index_bytes, count * index_bytes,
                data.data() + (i * extent + static_cast<size_t>(first)) * index_bytes);
  }
  return absl::OkStatus();
}

absl::Status PieceJoiner::Add(v1::NormalizeResponse piece, int64_t first) {
  if (!is_empty_ && whole_.outputs_size() != piece.outputs_size()) {
    return absl::InternalError("the replies to pieces differ in outputs");
  }
  if (!is_empty_ && piece.has_timings()) AddTimings(piece.timings(), *whole_.mutable_timings());
  std::vector<v1::Tensor> tensors;
  for (v1::Output& output : *piece.mutable_outputs()) {
    if (IsJoined(output.kind())) tensors.push_back(std::move(*output.mutable_tensor()));
  }
  if (std::exchange(is_empty_, false)) {
    whole_ = std::move(piece);
    size_t next = 0;
    for (v1::Output& output : *whole_.mutable_outputs()) {
      if (!IsJoined(output.kind())) continue;
      v1::Tensor& tensor = *output.mutable_tensor();
      tensor = v1::Tensor();
      tensor.set_dtype(tensors[next].dtype());
      *tensor.mutable_shape() = tensors[next++].shape();
      if (tensor.shape_size() > axis_) tensor.set_shape(axis_, extent_);
    }
  }
  size_t next = 0;
  for (v1::Output& output : *whole_.mutable_outputs()) {
    if (!IsJoined(output.kind())) continue;
    if (absl::Status status = AddTensor(tensors[next++], first, *output.mutable_tensor()); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::NormalizeResponse> NormalizeInPieces(Client& client, const v1::NormalizeRequest& request,
                                                        const v1::NormSpec& spec, int64_t max_bytes,
                                                        const std::function<void(int64_t, int64_t)>& progress) {
  if (static_cast<int64_t>(request.ByteSizeLong()) <= max_bytes) return client.Normalize(request);
  const std::optional<Cut> cut = ChooseCut(request, spec, max_bytes);
  if (!cut.has_value()) {
    absl::StatusOr<v1::NormalizeResponse> response = client.Normalize(request);
    if (!response.ok()) return WithRemedy(response.status(), request, spec);
    return response;
  }
  const int64_t extent = request.x().shape(cut->axis);
  const bool joins_statistics =
      !spec.has_batch_norm() && !spec.has_power_norm() && !spec.instance_norm().track_running_statistics();
  PieceJoiner joiner(cut->axis, extent, joins_statistics);
  for (int64_t first = 0; first < extent; first += cut->indices) {
    const int64_t count = std::min(cut->indices, extent - first);
    v1::NormalizeRequest piece = CutAxis(request, cut->axis, first, count);
    // Every piece reads the same version of a session; otherwise the whole call fails.
    if (first > 0 && !piece.session().empty()) {
      piece.set_expected_version(joiner.whole().applied().session_version());
    }
    absl::StatusOr<v1::NormalizeResponse> response = client.Normalize(std::move(piece));
    if (!response.ok()) return response.status();
    if (absl::Status status = joiner.Add(*std::move(response), first); !status.ok()) return status;
    progress(first + count, extent);
  }
  return joiner.Take();
}

}  // namespace normd::client
