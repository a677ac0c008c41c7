#include "client/normctl/split.h"

#include <algorithm>
#include <vector>

#include "client/cpp/without_tensors.h"

namespace normd::client {
namespace {

// Space for the fields that are not tensors, and for the length fields of tensors.
constexpr int64_t kHeaderBytes = 64 << 10;

bool AxesLeaveFirst(const google::protobuf::RepeatedField<int64_t>& axes, int rank) {
  return std::none_of(axes.begin(), axes.end(), [rank](int64_t axis) { return axis == 0 || axis == -rank; });
}

// Cuts the indices [first, first + count) out of `rows`. `out` is a copy of `tensor` without its data.
void CutTensor(const v1::Tensor& tensor, int64_t rows, int64_t first, int64_t count, v1::Tensor* out) {
  out->set_shape(0, count);
  if (!tensor.has_data()) return;
  const size_t row_bytes = tensor.data().size() / static_cast<size_t>(rows);
  out->set_data(tensor.data().substr(static_cast<size_t>(first) * row_bytes, static_cast<size_t>(count) * row_bytes));
}

// True if the tensor has the same first extent as x, and so is cut with x.
bool HasRows(const v1::Tensor& tensor, int64_t rows) { return tensor.shape_size() > 0 && tensor.shape(0) == rows; }

void AddTimings(const v1::Timings& from, v1::Timings& to) {
  to.set_decode_ns(to.decode_ns() + from.decode_ns());
  to.set_queue_ns(to.queue_ns() + from.queue_ns());
  to.set_compute_ns(to.compute_ns() + from.compute_ns());
  to.set_commit_ns(to.commit_ns() + from.commit_ns());
  to.set_encode_ns(to.encode_ns() + from.encode_ns());
}

}  // namespace

bool RowsAreIndependent(const v1::NormSpec& spec, v1::Mode mode, int rank) {
  if (rank < 2) return false;
  const bool training = mode == v1::MODE_TRAINING;
  switch (spec.method_case()) {
    case v1::NormSpec::kLayerNorm:
      return spec.layer_norm().normalized_shape_size() < rank && AxesLeaveFirst(spec.layer_norm().axes(), rank);
    case v1::NormSpec::kRmsNorm:
      return spec.rms_norm().normalized_shape_size() < rank && AxesLeaveFirst(spec.rms_norm().axes(), rank);
    case v1::NormSpec::kPRmsNorm:
    case v1::NormSpec::kScaleNorm:
    case v1::NormSpec::kGroupNorm:
      return true;
    case v1::NormSpec::kLpNorm:
      return spec.lp_norm().axis() != -rank && (spec.lp_norm().axis() != 0 || !spec.lp_norm().has_axis()) &&
             AxesLeaveFirst(spec.lp_norm().axes(), rank);
    case v1::NormSpec::kInstanceNorm:
      return !(training && spec.instance_norm().track_running_statistics());
    case v1::NormSpec::kBatchNorm:
    case v1::NormSpec::kPowerNorm:
      return !training;
    default:
      return false;
  }
}

v1::NormalizeRequest CutRows(const v1::NormalizeRequest& request, int64_t first, int64_t count) {
  const int64_t rows = request.x().shape(0);
  const v1::Tensor& residual = request.residual().tensor();
  const bool cuts_residual = HasRows(residual, rows);
  const bool cuts_mask = HasRows(request.mask(), rows);
  std::vector<const v1::Tensor*> cut = {&request.x()};
  if (cuts_residual) cut.push_back(&residual);
  if (cuts_mask) cut.push_back(&request.mask());
  v1::NormalizeRequest out;
  CopyWithoutBytes(request, cut, &out);
  CutTensor(request.x(), rows, first, count, out.mutable_x());
  if (cuts_residual) CutTensor(residual, rows, first, count, out.mutable_residual()->mutable_tensor());
  if (cuts_mask) CutTensor(request.mask(), rows, first, count, out.mutable_mask());
  return out;
}

absl::Status AppendRows(v1::NormalizeResponse piece, bool per_row_statistics, v1::NormalizeResponse& whole) {
  if (whole.outputs_size() != piece.outputs_size())
    return absl::InternalError("the replies to pieces differ in outputs");
  for (int i = 0; i < piece.outputs_size(); ++i) {
    const v1::OutputKind kind = piece.outputs(i).kind();
    const bool per_row = kind == v1::OUTPUT_KIND_Y || kind == v1::OUTPUT_KIND_H || per_row_statistics;
    v1::Tensor& to = *whole.mutable_outputs(i)->mutable_tensor();
    const v1::Tensor& from = piece.outputs(i).tensor();
    if (!per_row) continue;
    if (to.shape_size() == 0 || from.shape_size() != to.shape_size()) {
      return absl::InternalError("the replies to pieces differ in rank");
    }
    to.set_shape(0, to.shape(0) + from.shape(0));
    to.mutable_data()->append(from.data());
  }
  if (piece.has_timings()) AddTimings(piece.timings(), *whole.mutable_timings());
  return absl::OkStatus();
}

absl::StatusOr<v1::NormalizeResponse> NormalizeInPieces(Client& client, const v1::NormalizeRequest& request,
                                                        const v1::NormSpec& spec, int64_t max_bytes,
                                                        const std::function<void(int64_t, int64_t)>& progress) {
  const auto request_bytes = static_cast<int64_t>(request.ByteSizeLong());
  if (request_bytes <= max_bytes) return client.Normalize(request);
  // Sends in chunks if the method looks across rows, or if the parameters alone leave no room for a row.
  const int64_t rows = request.x().shape_size() == 0 ? 0 : request.x().shape(0);
  if (rows < 1 || !RowsAreIndependent(spec, request.mode(), request.x().shape_size())) {
    return client.NormalizeChunked(request);
  }
  const auto fixed = static_cast<int64_t>(request.parameters().ByteSizeLong()) + kHeaderBytes;
  const int64_t row_bytes = (request_bytes - static_cast<int64_t>(request.parameters().ByteSizeLong())) / rows + 1;
  const int64_t rows_per_piece = (max_bytes - fixed) / row_bytes;
  if (rows_per_piece < 1) return client.NormalizeChunked(request);

  const bool per_row_statistics =
      !spec.has_batch_norm() && !spec.has_power_norm() && !spec.instance_norm().track_running_statistics();
  absl::StatusOr<v1::NormalizeResponse> whole;
  for (int64_t first = 0; first < rows; first += rows_per_piece) {
    const int64_t count = std::min(rows_per_piece, rows - first);
    v1::NormalizeRequest cut = CutRows(request, first, count);
    // Every piece reads the same version of a session; otherwise the whole call fails.
    if (first > 0 && !cut.session().empty()) cut.set_expected_version(whole->applied().session_version());
    absl::StatusOr<v1::NormalizeResponse> piece = client.Normalize(cut);
    if (!piece.ok()) return piece.status();
    if (first == 0) {
      whole = std::move(piece);
    } else if (absl::Status status = AppendRows(*std::move(piece), per_row_statistics, *whole); !status.ok()) {
      return status;
    }
    progress(first + count, rows);
  }
  return whole;
}

}  // namespace normd::client
