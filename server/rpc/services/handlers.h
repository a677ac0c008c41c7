// Makes the Route of a method from a handler that gets a parsed request, so that a service method reads as decode,
// call, encode.
// In the path: between the transport and the services.
// Threads: a handler runs as edge/route.h says.
#ifndef NORMD_SERVER_RPC_SERVICES_HANDLERS_H_
#define NORMD_SERVER_RPC_SERVICES_HANDLERS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "server/rpc/codec/call_memory.h"
#include "server/rpc/codec/message.h"
#include "server/rpc/edge/route.h"

namespace normd::rpc {

template <typename Request>
using UnaryHandler = std::function<void(Parsed<Request> request, Reply reply)>;
// The handler writes to the stream, and must finish both the stream and the observation.
template <typename Request>
using ServerStreamingHandler =
    std::function<void(Parsed<Request> request, std::shared_ptr<RpcCall> stream, Observation observation)>;

template <typename Request>
Route ServerStreaming(const RouteContext* context, std::string path, ServerStreamingHandler<Request> handler) {
  constexpr int64_t kFactor = kLayoutOf<Request> == nullptr ? 1 : kBytesHeldPerMessageByte;
  auto start = [context, handler = std::move(handler)](std::shared_ptr<RpcCall> stream) {
    auto then = [context, &handler, stream](MessageBytes message, Reservation reservation, Observation observation) {
      absl::StatusOr<Parsed<Request>> request = Parse<Request>(std::move(message), std::move(reservation));
      if (!request.ok()) return Reply(stream, std::move(observation))(request.status());
      GiveMemory(*context, *stream, request->tensors);
      handler(*std::move(request), stream, std::move(observation));
    };
    ReadRequest(context, stream, kFactor, std::move(then));
  };
  return {std::move(path), std::move(start)};
}

template <typename Request>
Route Unary(const RouteContext* context, std::string path, UnaryHandler<Request> handler) {
  return ServerStreaming<Request>(
      context, std::move(path),
      [handler = std::move(handler)](Parsed<Request> request, std::shared_ptr<RpcCall> stream,
                                     Observation observation) {
        handler(std::move(request), Reply(std::move(stream), std::move(observation)));
      });
}

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_HANDLERS_H_
