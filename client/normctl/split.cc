#include "client/normctl/split.h"

#include <algorithm>

namespace normd::client {
namespace {

// Room for the fields that are no tensors, and for the lengths of those that are.
constexpr int64_t kHeaderBytes = 64 << 10;

bool AxesLeaveFirst(const google::protobuf::RepeatedField<int64_t>& axes, int rank) {
  return std::none_of(axes.begin(), axes.end(), [rank](int64_t axis) { return axis == 0 || axis == -rank; });
}

v1::Tensor CutTensor(const v1::Tensor& tensor, int64_t rows, int64_t first, int64_t count) {
  v1::Tensor out;
  out.set_dtype(tensor.dtype());
  *out.mutable_shape() = tensor.shape();
  out.set_shape(0, count);
  const size_t row_bytes = tensor.data().size() / static_cast<size_t>(rows);
  out.set_data(tensor.data().substr(static_cast<size_t>(first) * row_bytes, static_cast<size_t>(count) * row_bytes));
  return out;
}

// Whether the tensor has the same first extent as x, so that it is cut with it.
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
  v1::NormalizeRequest out;
  if (request.has_spec()) *out.mutable_spec() = request.spec();
  if (request.target_case() == v1::NormalizeRequest::kSession) out.set_session(request.session());
  out.set_mode(request.mode());
  if (request.has_parameters()) *out.mutable_parameters() = request.parameters();
  if (request.has_residual()) {
    const v1::Residual& residual = request.residual();
    if (residual.has_scale()) out.mutable_residual()->set_scale(residual.scale());
    out.mutable_residual()->set_rounding(residual.rounding());
    *out.mutable_residual()->mutable_tensor() =
        HasRows(residual.tensor(), rows) ? CutTensor(residual.tensor(), rows, first, count) : residual.tensor();
  }
  if (request.has_mask()) {
    *out.mutable_mask() =
        HasRows(request.mask(), rows) ? CutTensor(request.mask(), rows, first, count) : request.mask();
  }
  *out.mutable_outputs() = request.outputs();
  out.set_precision(request.precision());
  out.set_device(request.device());
  if (request.has_expected_version()) out.set_expected_version(request.expected_version());
  if (request.has_max_staleness()) *out.mutable_max_staleness() = request.max_staleness();
  out.set_validate_only(request.validate_only());
  out.set_want_timings(request.want_timings());
  *out.mutable_x() = CutTensor(request.x(), rows, first, count);
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
  if (!RowsAreIndependent(spec, request.mode(), request.x().shape_size())) return client.NormalizeChunked(request);
  const int64_t rows = request.x().shape(0);
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
    // Every piece reads the same version of a session, or the whole fails.
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
