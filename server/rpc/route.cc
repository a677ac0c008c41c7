#include "server/rpc/route.h"

#include "kernels/errors.h"
#include "server/rpc/status.h"

namespace normd::rpc {

std::string_view ShortName(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

Reply::~Reply() {
  if (stream_ != nullptr) (*this)(absl::InternalError("the request was dropped unanswered"));
}

void Reply::operator()(absl::StatusOr<grpc::ByteBuffer> message) {
  const std::shared_ptr<Stream> stream = std::move(stream_);
  const absl::Status status = message.status();
  observation_.Finish(status, message.ok() ? static_cast<int64_t>(message->Length()) : 0);
  if (message.ok()) stream->Write(*std::move(message));
  stream->Finish(ToGrpcStatus(status));
}

void ReadRequest(const RouteContext* context, std::shared_ptr<Stream> stream,
                 absl::AnyInvocable<void(grpc::ByteBuffer, Observation)> then) {
  if (const absl::Status open = context->admission->CheckOpen(); !open.ok()) {
    Reply(stream, Observation(context->observer, ShortName(stream->method())))(open);
    return;
  }
  stream->Read([context, stream, then = std::move(then)](std::optional<grpc::ByteBuffer> message) mutable {
    Observation observation(context->observer, ShortName(stream->method()));
    if (!message.has_value()) {
      // Half-closed without a message, gone, or over the size limit: then gRPC has told the caller already.
      Reply(stream, std::move(observation))(MissingError("message", "one request message"));
      return;
    }
    observation.record().request_bytes = static_cast<int64_t>(message->Length());
    if (stream->cancelled()) return Reply(stream, std::move(observation))(absl::CancelledError("the caller went away"));
    then(*std::move(message), std::move(observation));
  });
}

}  // namespace normd::rpc
