#include "client/normload/calls.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"

namespace normd::client {
namespace {

// Larger tensors repeat their values, because values do not change the time that a tensor takes.
constexpr int64_t kDistinctValues = 1 << 20;

std::string RandomBytes(DType dtype, int64_t count) {
  std::mt19937_64 random(20240607);
  std::normal_distribution<double> normal(0.25, 1.5);
  std::vector<double> values(static_cast<size_t>(std::min(count, kDistinctValues)));
  for (double& value : values) value = normal(random);
  std::string pattern = Tensor::Rounded(dtype, {static_cast<int64_t>(values.size())}, values).data;
  const auto wanted = static_cast<size_t>(count * ElementBytes(dtype));
  if (pattern.size() == wanted) return pattern;
  std::string out;
  out.reserve(wanted);
  while (out.size() < wanted) out.append(pattern, 0, wanted - out.size());
  return out;
}

int64_t TensorBytes(const v1::NormalizeResponse& response) {
  int64_t bytes = 0;
  for (const v1::Output& output : response.outputs()) bytes += static_cast<int64_t>(output.tensor().data().size());
  return bytes;
}

void Count(const v1::NormalizeResponse& response, CallOutcome& outcome) {
  ++outcome.items;
  outcome.bytes_received += TensorBytes(response);
  if (outcome.kernel.empty()) outcome.kernel = response.applied().kernel();
}

// Moves the request into the message that the transport sends.
PreparedCall Wrap(const MixEntry& entry, v1::NormalizeRequest request) {
  PreparedCall call;
  call.entry = entry;
  switch (entry.transport) {
    case Transport::kBatch:
      for (int i = 0; i + 1 < entry.batch_items; ++i) *call.batch.add_items() = request;
      *call.batch.add_items() = std::move(request);
      break;
    case Transport::kStream:
      call.message.set_sequence(1);
      *call.message.mutable_call() = std::move(request);
      break;
    default:
      call.request = std::move(request);
      break;
  }
  return call;
}

}  // namespace

v1::NormalizeRequest MakeRequest(const MixEntry& entry) {
  v1::NormalizeRequest request;
  if (entry.session.empty()) {
    *request.mutable_spec() = entry.spec;
  } else {
    request.set_session(entry.session);
  }
  request.set_mode(entry.training ? v1::MODE_TRAINING : v1::MODE_INFERENCE);
  Tensor x{entry.dtype, entry.shape, {}};
  x.data = RandomBytes(entry.dtype, entry.bytes() / entry.items() / ElementBytes(entry.dtype));
  *request.mutable_x() = std::move(x).ToProto();
  return request;
}

std::vector<PreparedCall> PrepareCalls(absl::Span<const MixEntry> entries) {
  std::vector<PreparedCall> out;
  out.reserve(entries.size());
  for (const MixEntry& entry : entries) out.push_back(Wrap(entry, MakeRequest(entry)));
  return out;
}

absl::Status Caller::Call(size_t index, CallOutcome& outcome) {
  const PreparedCall& call = calls_[index].entry.steps ? NextStep(index) : calls_[index];
  outcome.bytes_sent = call.entry.bytes();
  switch (call.entry.transport) {
    case Transport::kBatch:
      return CallBatch(call, outcome);
    case Transport::kStream:
      return CallStream(call, outcome);
    default:
      return CallUnary(call, outcome);
  }
}

absl::Status Caller::CallUnary(const PreparedCall& call, CallOutcome& outcome) {
  const absl::StatusOr<v1::NormalizeResponse> response = client_.Normalize(call.request);
  if (response.ok()) Count(*response, outcome);
  return response.status();
}

absl::Status Caller::CallBatch(const PreparedCall& call, CallOutcome& outcome) {
  const absl::StatusOr<v1::BatchNormalizeResponse> response = client_.BatchNormalize(call.batch);
  if (!response.ok()) return response.status();
  for (const v1::BatchItemResult& item : response->items()) {
    if (absl::Status status = ToStatus(item.status()); !status.ok()) return status;
  }
  for (const v1::BatchItemResult& item : response->items()) Count(item.response(), outcome);
  return absl::OkStatus();
}

absl::Status Caller::CallStream(const PreparedCall& call, CallOutcome& outcome) {
  if (stream_ == nullptr) stream_ = client_.OpenStream(streams_end_ - absl::Now());
  v1::StreamResponse response;
  if (!stream_->Write(call.message) || !stream_->Read(&response)) {
    const absl::Status status = stream_->Finish();
    stream_ = nullptr;
    return status.ok() ? absl::UnavailableError("the server ended the stream") : status;
  }
  if (response.has_error()) return ToStatus(response.error());
  Count(response.reply(), outcome);
  return absl::OkStatus();
}

const PreparedCall& Caller::NextStep(size_t index) {
  PreparedCall& call = own_.try_emplace(index, calls_[index]).first->second;
  const auto stamp = [&](v1::NormalizeRequest& request) {
    // Taken from the clock, so that sequences also rise from one measurement to the next.
    last_sequence_ = std::max(last_sequence_ + 1, static_cast<uint64_t>(absl::ToUnixNanos(absl::Now())));
    request.mutable_step()->set_client_id(id_);
    request.mutable_step()->set_sequence(last_sequence_);
  };
  if (call.entry.transport == Transport::kStream) {
    stamp(*call.message.mutable_call());
  } else if (call.entry.transport == Transport::kBatch) {
    for (v1::NormalizeRequest& item : *call.batch.mutable_items()) stamp(item);
  } else {
    stamp(call.request);
  }
  return call;
}

}  // namespace normd::client
