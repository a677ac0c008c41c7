#include "server/rpc/codec/encode.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/methods.h"
#include "server/rpc/edge/status.h"

namespace normd::rpc {
namespace {

// The method, device or kernel in the record of a batch whose items have several.
constexpr std::string_view kMixed = "mixed";

void EncodeApplied(const Applied& applied, v1::Applied* message) {
  message->set_method(std::string(Info(applied.method).name));
  message->set_eps(applied.eps);
  message->set_eps_mode(static_cast<v1::EpsMode>(applied.eps_mode));
  message->set_cast_order(static_cast<v1::CastOrder>(applied.cast_order));
  message->set_mode(static_cast<v1::Mode>(applied.mode));
  message->set_precision(static_cast<v1::Precision>(applied.precision));
  message->set_rounding(applied.is_nearest ? v1::ROUNDING_NEAREST : v1::ROUNDING_BOUNDED);
  message->set_device(static_cast<v1::Device>(applied.device));
  message->set_kernel(applied.kernel);
  message->set_device_fallback(applied.device_fallback);
  message->set_k(applied.k);
  message->set_session_version(applied.session_version);
  message->set_numerics(std::string(NumericsOf(applied.precision)));
  message->set_layout(static_cast<v1::Layout>(applied.layout));
  if (applied.running.has_value()) {
    if (!applied.running->CountsSamples()) {
      message->set_momentum_of(static_cast<v1::MomentumOf>(applied.running->momentum_of));
      message->set_momentum(applied.running->ResolvedMomentum());
    }
    message->set_variance(static_cast<v1::RunningVariance>(applied.running->variance));
  }
  if (applied.residual_rounding.has_value()) {
    message->set_residual_rounding(static_cast<v1::ResidualRounding>(*applied.residual_rounding));
  }
  message->set_weight_offset(applied.weight_offset);
  if (applied.k_rounding.has_value()) message->set_k_rounding(static_cast<v1::KRounding>(*applied.k_rounding));
}

WireBody TensorBody(DType dtype, const Shape& shape, Buffer bytes) {
  v1::Tensor head;
  head.set_dtype(static_cast<v1::DType>(dtype));
  head.mutable_shape()->Add(shape.begin(), shape.end());
  WireBody body;
  body.Append(head.SerializeAsString());
  body.AppendBytesField(v1::Tensor::kDataFieldNumber, std::move(bytes));
  return body;
}

// Encodes one member of every moment as an f64 tensor.
WireBody MomentsMember(const Moments& moments, const Shape& shape, double Moment::*member) {
  Buffer bytes(moments.size() * sizeof(double));
  std::byte* out = bytes.data();
  for (const Moment& moment : moments) {
    std::memcpy(out, &(moment.*member), sizeof(double));
    out += sizeof(double);
  }
  return TensorBody(DType::kF64, shape, std::move(bytes));
}

WireBody ExtremesMember(const std::vector<double>& values, const Shape& shape) {
  Buffer bytes(values.size() * sizeof(double));
  std::memcpy(bytes.data(), values.data(), values.size() * sizeof(double));
  return TensorBody(DType::kF64, shape, std::move(bytes));
}

// REQUIRES: the reply has moments.
WireBody MomentsBody(const CallReply& reply) {
  const Moments& moments = *reply.moments;
  const Shape& shape = reply.moments_shape;
  WireBody body;
  body.AppendMessageField(v1::Moments::kCountFieldNumber, MomentsMember(moments, shape, &Moment::count));
  body.AppendMessageField(v1::Moments::kMeanFieldNumber, MomentsMember(moments, shape, &Moment::mean));
  body.AppendMessageField(v1::Moments::kM2FieldNumber, MomentsMember(moments, shape, &Moment::m2));
  if (!reply.extremes.empty()) {
    body.AppendMessageField(v1::Moments::kMinFieldNumber, ExtremesMember(reply.extremes.min, shape));
    body.AppendMessageField(v1::Moments::kMaxFieldNumber, ExtremesMember(reply.extremes.max, shape));
  }
  if (reply.exact.size() > 0) body.AppendBytesField(v1::Moments::kExactFieldNumber, Slice(reply.exact.Encode()));
  return body;
}

// Encodes a tensor that was written to the caller's shared memory, without bytes.
WireBody SharedTensorBody(const OutputTensor& output) {
  v1::Tensor tensor;
  tensor.set_dtype(static_cast<v1::DType>(output.dtype));
  tensor.mutable_shape()->Add(output.shape.begin(), output.shape.end());
  v1::SharedRange* const range = tensor.mutable_shared();
  range->set_region(output.shared->region);
  range->set_offset(output.shared->offset);
  range->set_size_bytes(static_cast<uint64_t>(output.shared->size_bytes));
  WireBody body;
  body.Append(tensor.SerializeAsString());
  return body;
}

// Encodes a tensor whose bytes follow in chunks.
WireBody ChunkedTensorBody(const OutputTensor& output) {
  v1::Tensor tensor;
  tensor.set_dtype(static_cast<v1::DType>(output.dtype));
  tensor.mutable_shape()->Add(output.shape.begin(), output.shape.end());
  tensor.mutable_chunked()->set_size_bytes(output.bytes.size_bytes());
  WireBody body;
  body.Append(tensor.SerializeAsString());
  return body;
}

WireBody OutputTensorBody(OutputTensor output, std::vector<Buffer>* chunked) {
  if (output.shared.has_value()) return SharedTensorBody(output);
  if (chunked == nullptr) return TensorBody(output.dtype, output.shape, std::move(output.bytes));
  WireBody body = ChunkedTensorBody(output);
  chunked->push_back(std::move(output.bytes));
  return body;
}

WireBody OutputBody(OutputTensor output, std::vector<Buffer>* chunked) {
  WireBody body;
  body.AppendVarintField(v1::Output::kKindFieldNumber, static_cast<uint64_t>(output.kind));
  body.AppendMessageField(v1::Output::kTensorFieldNumber, OutputTensorBody(std::move(output), chunked));
  return body;
}

WireBody MomentsOutputBody(const CallReply& reply) {
  WireBody body;
  body.AppendVarintField(v1::Output::kKindFieldNumber, static_cast<uint64_t>(OutputKind::kMoments));
  body.AppendMessageField(v1::Output::kMomentsFieldNumber, MomentsBody(reply));
  return body;
}

// Encodes all `outputs` fields of a response, with the moments last.
WireBody OutputsBody(CallReply& reply, std::vector<Buffer>* chunked) {
  WireBody body;
  for (OutputTensor& output : reply.outputs) {
    if (output.kind == OutputKind::kMoments) continue;
    body.AppendMessageField(v1::NormalizeResponse::kOutputsFieldNumber, OutputBody(std::move(output), chunked));
  }
  if (reply.moments.has_value()) {
    body.AppendMessageField(v1::NormalizeResponse::kOutputsFieldNumber, MomentsOutputBody(reply));
  }
  return body;
}

void EncodeTimings(const CallTimings& timings, const RequestRecord& record, absl::Duration before_encode,
                   absl::Duration encode, v1::Timings* message) {
  const absl::Duration encoded_before = record.encode - encode;  // spent on the request's other calls
  const absl::Duration queue = before_encode - encoded_before - record.decode - timings.compute - timings.commit;
  message->set_decode_ns(absl::ToInt64Nanoseconds(record.decode));
  message->set_queue_ns(std::max<int64_t>(0, absl::ToInt64Nanoseconds(queue)));
  message->set_compute_ns(absl::ToInt64Nanoseconds(timings.compute));
  message->set_commit_ns(absl::ToInt64Nanoseconds(timings.commit));
  message->set_encode_ns(absl::ToInt64Nanoseconds(encode));
}

}  // namespace

void NoteReply(const CallReply& reply, RequestRecord& record) {
  const std::string_view method = Info(reply.applied.method).name;
  record.norm_method = record.norm_method.empty() || record.norm_method == method ? method : kMixed;
  record.rows += reply.rows;
  record.compute = std::max(record.compute, reply.timings.compute);
  record.queue = std::max(record.queue, reply.timings.queue);
  record.commit = std::max(record.commit, reply.timings.commit);
  if (record.origin.trace == nullptr || !record.origin.trace->wants_details()) return;
  const std::string_view device = reply.applied.device == Device::kCuda ? "cuda" : "cpu";
  record.device = record.device.empty() || record.device == device ? device : kMixed;
  record.kernel = record.kernel.empty() || record.kernel == reply.applied.kernel ? reply.applied.kernel : kMixed;
}

void EncodeCommitResult(const CommitResult& result, bool output_available, v1::StateResult* message) {
  message->set_version(result.version);
  message->set_epoch(result.uid);
  message->set_applied(result.applied);
  message->set_reason(static_cast<v1::Reason>(result.reason));
  message->set_replayed(result.replayed);
  message->set_durability(static_cast<v1::Durability>(result.durability));
  message->set_num_batches(result.num_batches);
  message->set_output_available(output_available);
  message->mutable_skipped_channels()->Add(result.skipped_channels.begin(), result.skipped_channels.end());
}

void EncodeF64(const std::vector<double>& values, v1::Tensor* message) {
  message->set_dtype(v1::DTYPE_F64);
  message->add_shape(static_cast<int64_t>(values.size()));
  message->mutable_data()->assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
}

WireBody EncodeNormalizeResponse(CallReply reply, bool want_timings, Observation& observation,
                                 std::vector<Buffer>* chunked) {
  const absl::Duration begin = observation.Elapsed();
  WireBody outputs = OutputsBody(reply, chunked);
  v1::NormalizeResponse head;
  EncodeApplied(reply.applied, head.mutable_applied());
  if (reply.state.has_value()) {
    EncodeCommitResult(reply.state->result, reply.state->output_available, head.mutable_state());
  }
  NoteReply(reply, observation.record());
  const absl::Duration encode = observation.Elapsed() - begin;
  observation.record().encode += encode;
  if (want_timings) EncodeTimings(reply.timings, observation.record(), begin, encode, head.mutable_timings());
  WireBody body;
  body.Append(head.SerializeAsString());
  body.Append(std::move(outputs));
  return body;
}

WireBody EncodeComputeMomentsResponse(CallReply reply, Observation& observation) {
  const absl::Duration begin = observation.Elapsed();
  v1::ComputeMomentsResponse head;
  EncodeApplied(reply.applied, head.mutable_applied());
  NoteReply(reply, observation.record());
  WireBody body;
  body.Append(head.SerializeAsString());
  if (reply.moments.has_value()) {
    body.AppendMessageField(v1::ComputeMomentsResponse::kMomentsFieldNumber, MomentsBody(reply));
  }
  observation.record().encode += observation.Elapsed() - begin;
  return body;
}

WireBody EncodeBatchItem(WireBody response) {
  WireBody body;
  body.AppendMessageField(v1::BatchItemResult::kResponseFieldNumber, std::move(response));
  return body;
}

WireBody EncodeBatchItemError(const absl::Status& error, ErrorForm form) {
  v1::BatchItemResult failed;
  *failed.mutable_status() = form == ErrorForm::kWhole ? ToMessage(error) : ToShortMessage(error, kShortMessageBytes);
  WireBody body;
  body.Append(failed.SerializeAsString());
  return body;
}

WireBody EncodeStreamReply(uint64_t sequence, WireBody response) {
  WireBody body;
  if (sequence != 0) body.AppendVarintField(v1::StreamResponse::kSequenceFieldNumber, sequence);
  body.AppendMessageField(v1::StreamResponse::kReplyFieldNumber, std::move(response));
  return body;
}

WireBody EncodeStreamChunk(uint64_t sequence, const ChunkPlace& place, Slice data) {
  v1::Chunk head, tail;
  head.set_offset(place.offset);
  tail.set_last(place.last);
  tail.set_crc32c(place.crc32c);
  WireBody chunk;
  chunk.Append(head.SerializeAsString());
  if (data.size() > 0) chunk.AppendBytesField(v1::Chunk::kDataFieldNumber, std::move(data));
  chunk.Append(tail.SerializeAsString());
  WireBody body;
  if (sequence != 0) body.AppendVarintField(v1::StreamResponse::kSequenceFieldNumber, sequence);
  body.AppendMessageField(v1::StreamResponse::kChunkFieldNumber, std::move(chunk));
  return body;
}

WireBody EncodeStreamError(uint64_t sequence, const google::rpc::Status& error) {
  v1::StreamResponse response;
  response.set_sequence(sequence);
  *response.mutable_error() = error;
  WireBody body;
  body.Append(response.SerializeAsString());
  return body;
}

}  // namespace normd::rpc
