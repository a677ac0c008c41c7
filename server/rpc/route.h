// How a service method is written: decode, call, encode. Unary and ServerStreaming make a Route for the dispatcher out
// of a handler that gets a parsed request.
// In the path: between Stream and the services. Handlers run on a queue's thread; a Reply may be used from any thread.
#ifndef NORMD_SERVER_RPC_ROUTE_H_
#define NORMD_SERVER_RPC_ROUTE_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "server/rpc/admission.h"
#include "server/rpc/message.h"
#include "server/rpc/observation.h"
#include "server/rpc/stream.h"

namespace normd::rpc {

// One RPC method of a service and the code that answers it. (`Method` is a normalisation here.)
struct Route {
  std::string path;  // "/normd.v1.Normalizer/Normalize"
  // Called at headers, on a queue's thread: nothing of the request has been read yet.
  std::function<void(std::shared_ptr<Stream>)> start;
};

// What every method needs. Outlives all streams.
struct RouteContext {
  Admission* admission = nullptr;
  const RpcObserver* observer = nullptr;  // null: not observed
};

// "/normd.v1.Normalizer/Normalize" -> "Normalizer/Normalize", as records name it.
std::string_view ShortName(std::string_view path);

// Answers one unary call, once. Dropping it unanswered answers INTERNAL, which is a bug of ours and not of the caller.
class Reply {
 public:
  Reply(std::shared_ptr<Stream> stream, Observation observation)
      : stream_(std::move(stream)), observation_(std::move(observation)) {}
  Reply(Reply&&) = default;
  Reply& operator=(Reply&&) = default;
  ~Reply();

  // Sends the message, or ends the call with the status.
  void operator()(absl::StatusOr<grpc::ByteBuffer> message);

  Observation& observation() { return observation_; }

  // Tells whether the caller went away; keeps the stream as long as it is kept.
  std::function<bool()> Cancelled() const {
    return [stream = stream_] { return stream->cancelled(); };
  }

 private:
  std::shared_ptr<Stream> stream_;
  Observation observation_;
};

template <typename Request>
using UnaryHandler = std::function<void(Parsed<Request> request, Reply reply)>;
// The handler writes to the stream and finishes it, and the observation.
template <typename Request>
using ServerStreamingHandler =
    std::function<void(Parsed<Request> request, std::shared_ptr<Stream> stream, Observation observation)>;

// Reads the one request message of `stream`. Refuses at headers when the server is full, and ends the call when there
// is no message; otherwise `then` goes on with it.
void ReadRequest(const RouteContext* context, std::shared_ptr<Stream> stream,
                 absl::AnyInvocable<void(grpc::ByteBuffer, Observation)> then);

template <typename Request>
Route ServerStreaming(const RouteContext* context, std::string path, ServerStreamingHandler<Request> handler) {
  auto start = [context, handler = std::move(handler)](std::shared_ptr<Stream> stream) {
    ReadRequest(context, stream, [context, &handler, stream](grpc::ByteBuffer message, Observation observation) {
      absl::StatusOr<Parsed<Request>> request = Parse<Request>(message, *context->admission);
      message.Clear();
      if (!request.ok()) return Reply(stream, std::move(observation))(request.status());
      handler(*std::move(request), stream, std::move(observation));
    });
  };
  return {std::move(path), std::move(start)};
}

template <typename Request>
Route Unary(const RouteContext* context, std::string path, UnaryHandler<Request> handler) {
  return ServerStreaming<Request>(
      context, std::move(path),
      [handler = std::move(handler)](Parsed<Request> request, std::shared_ptr<Stream> stream, Observation observation) {
        handler(std::move(request), Reply(std::move(stream), std::move(observation)));
      });
}

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_ROUTE_H_
