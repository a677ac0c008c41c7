// Client::NormalizeChunked: one call on a stream of its own, with its tensors in chunks.
#include <atomic>
#include <thread>

#include "client/cpp/channels.h"
#include "client/cpp/chunks.h"

namespace normd {
namespace {

using Stream = grpc::ClientReaderWriter<v1::StreamRequest, v1::StreamResponse>;

constexpr uint64_t kSequence = 1;

// Reads the stream on a thread of its own, so that an early answer ends the sending.
class Receiver {
 public:
  Receiver(grpc::ClientContext* context, Stream* stream)
      : context_(context), stream_(stream), thread_([this] { Run(); }) {}

  // True if nothing needs to be sent any more.
  bool answered() const { return answered_.load(std::memory_order_acquire); }

  // Call after the half-close. Returns the whole reply, or the reason why there is none.
  grpc::Status Finish(v1::NormalizeResponse* response) {
    thread_.join();
    grpc::Status status = stream_->Finish();
    if (!failure_.ok()) return failure_;
    if (!status.ok()) return status;
    if (!joiner_.complete()) return {grpc::StatusCode::DATA_LOSS, "reply in chunks: the stream ended before the last"};
    *response = joiner_.TakeResponse();
    return grpc::Status::OK;
  }

 private:
  void Run() {
    for (v1::StreamResponse message; stream_->Read(&message);) {
      if (!failure_.ok()) continue;  // gRPC finishes only when every message was read
      failure_ = Take(message);
      if (!failure_.ok()) context_->TryCancel();
      answered_.store(true, std::memory_order_release);
    }
    answered_.store(true, std::memory_order_release);
  }

  grpc::Status Take(const v1::StreamResponse& message) {
    if (message.has_error()) {
      const google::rpc::Status& error = message.error();
      return {static_cast<grpc::StatusCode>(error.code()), error.message(), error.SerializeAsString()};
    }
    const absl::Status status = joiner_.Take(message);
    return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
  }

  grpc::ClientContext* const context_;
  Stream* const stream_;
  std::atomic<bool> answered_{false};
  client::ReplyJoiner joiner_{kSequence};  // for thread_ alone until it is joined, and so is failure_
  grpc::Status failure_;
  std::thread thread_;
};

// Sends a tensor's data. Stops early when there is an answer or the stream is broken.
void SendData(const v1::Tensor& tensor, size_t chunk_bytes, const Receiver& receiver, Stream* stream) {
  if (!tensor.has_data()) return;
  v1::StreamRequest message;
  message.set_sequence(kSequence);
  for (size_t offset = 0; !receiver.answered(); offset += chunk_bytes) {
    *message.mutable_chunk() = client::CutChunk(tensor.data(), offset, chunk_bytes);
    if (!stream->Write(message) || message.chunk().last()) return;
  }
}

grpc::Status CallInChunks(v1::Normalizer::Stub& stub, grpc::ClientContext* context, const v1::NormalizeRequest& request,
                          size_t chunk_bytes, v1::NormalizeResponse* response) {
  const std::unique_ptr<Stream> stream = stub.NormalizeStream(context);
  Receiver receiver(context, stream.get());
  v1::StreamRequest call;
  call.set_sequence(kSequence);
  *call.mutable_call() = client::WithoutData(request);
  stream->Write(call);
  SendData(request.residual().tensor(), chunk_bytes, receiver, stream.get());
  SendData(request.x(), chunk_bytes, receiver, stream.get());
  stream->WritesDone();
  return receiver.Finish(response);
}

}  // namespace

std::optional<v1::Limits> Client::KnownLimits() const {
  const std::lock_guard<std::mutex> lock(channels_->mu);
  return channels_->limits;
}

absl::StatusOr<v1::Limits> Client::GetLimits() {
  if (std::optional<v1::Limits> known = KnownLimits()) return *std::move(known);
  const absl::StatusOr<v1::DescribeResponse> describe = Describe();
  if (!describe.ok()) return describe.status();
  return describe->limits();
}

absl::StatusOr<v1::NormalizeResponse> Client::NormalizeChunked(const v1::NormalizeRequest& request) {
  const absl::StatusOr<v1::Limits> limits = GetLimits();
  if (!limits.ok()) return limits.status();
  const size_t chunk_bytes = client::ChunkBytes(*limits);
  return client::RunUnary<v1::NormalizeResponse>(
      channels_->Terms(options_, request.session()), client::IsSafeToRetry(request),
      [&](grpc::ClientContext* context, v1::NormalizeResponse* response) {
        return CallInChunks(*channels_->large.normalizer, context, request, chunk_bytes, response);
      });
}

}  // namespace normd
