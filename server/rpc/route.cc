#include "server/rpc/route.h"

#include "kernels/errors.h"
#include "kernels/text.h"
#include "server/rpc/status.h"

namespace normd::rpc {

std::string_view ShortName(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

Reply::~Reply() {
  if (stream_ != nullptr) (*this)(absl::InternalError("the request was dropped unanswered"));
}

void Reply::operator()(absl::StatusOr<grpc::ByteBuffer> message, Stream::Callback written) {
  const std::shared_ptr<Stream> stream = std::move(stream_);
  const absl::Status status = message.status();
  observation_.Finish(status, message.ok() ? static_cast<int64_t>(message->Length()) : 0);
  if (absl::IsResourceExhausted(status)) stream->SetRetryPushback();
  if (message.ok()) {
    stream->WriteAndFinish(*std::move(message), grpc::Status::OK, std::move(written));
  } else {
    stream->Finish(ToGrpcStatus(status));
  }
}

TensorSource::SharedMemory SharedMemoryOf(const RouteContext& context, const Stream& stream) {
  if (context.regions == nullptr) return {nullptr, "shared memory is off on this server"};
  if (context.shared_memory_anywhere || stream.is_local()) return {context.regions, {}};
  return {nullptr, "shared memory is for callers of the Unix socket"};
}

void GiveMemory(const RouteContext& context, const Stream& stream, TensorSource* tensors) {
  tensors->SetBuffers(context.buffers);
  tensors->SetSharedMemory(SharedMemoryOf(context, stream));
}

void Refuse(const RouteContext& context, std::shared_ptr<Stream> stream, const absl::Status& why) {
  const std::string_view rpc = ShortName(stream->method());  // before the stream is moved, which keeps it
  Reply(std::move(stream), Observation(context.observer, rpc))(why);
}

absl::StatusOr<Reservation> Admit(const RouteContext& context, const Stream& stream, ExpectedSize* expected,
                                  int64_t factor) {
  const int64_t announced = stream.AnnouncedBytes();
  if (announced > context.max_message_bytes) {
    return OutOfRangeError("message", Concat(announced, " bytes"), Concat("at most ", context.max_message_bytes),
                           "MESSAGE_TOO_LARGE");
  }
  absl::StatusOr<Reservation> held = context.admission->Reserve(
      factor * (announced > 0 ? announced : expected->bytes()), [&stream] { return stream.peer(); });
  if (held.ok() || announced > 0) return held;
  // A guess alone refuses nobody while the server has room: what comes is measured when it has come.
  expected->Halve();
  if (context.admission->held_bytes() > context.admission->limits().max_bytes / 8 * 7) return held;
  return context.admission->Reserve(0, [&stream] { return stream.peer(); });
}

void ReadRequest(const RouteContext* context, std::shared_ptr<Stream> stream, ExpectedSize* expected, int64_t factor,
                 absl::AnyInvocable<void(grpc::ByteBuffer, Reservation, Observation)> then) {
  absl::StatusOr<Reservation> admitted = Admit(*context, *stream, expected, factor);
  if (!admitted.ok()) return Refuse(*context, std::move(stream), admitted.status());
  stream->Read([context, stream, expected, factor, held = *std::move(admitted),
                then = std::move(then)](std::optional<grpc::ByteBuffer> message) mutable {
    Observation observation(context->observer, ShortName(stream->method()));
    if (!message.has_value()) {
      // Half-closed without a message, gone, or over the size limit: then gRPC has told the caller already.
      Reply(stream, std::move(observation))(MissingError("message", "one request message"));
      return;
    }
    const auto size_bytes = static_cast<int64_t>(message->Length());
    observation.record().request_bytes = size_bytes;
    if (stream->cancelled()) return Reply(stream, std::move(observation))(absl::CancelledError("the caller went away"));
    if (absl::Status fits = held.Resize(factor * size_bytes, [&stream] { return stream->peer(); }); !fits.ok()) {
      return Reply(stream, std::move(observation))(fits);
    }
    expected->Note(size_bytes);
    then(*std::move(message), std::move(held), std::move(observation));
  });
}

}  // namespace normd::rpc
