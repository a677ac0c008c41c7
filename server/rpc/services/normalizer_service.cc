#include "server/rpc/services/normalizer_service.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "normd/v1/normalizer.pb.h"
#include "server/rpc/codec/call_decoder.h"
#include "server/rpc/codec/encode.h"
#include "server/rpc/edge/admission.h"
#include "server/rpc/services/describe.h"
#include "server/rpc/services/handlers.h"
#include "server/rpc/services/method_names.h"
#include "server/rpc/services/normalize_stream.h"

namespace normd::rpc {
namespace {

// Keeps the request, and the memory reserved for it and its reply, until the reply is sent.
RpcCall::Callback Keep(std::shared_ptr<const void> owner) {
  return [owner = std::move(owner)] {};
}

void Normalize(Engine* engine, ReceivedCall& received, Reply reply) {
  AskFor(reply.call(), received.tensors, /*alone=*/true, &received.call);
  TakeRoomOf(reply.call(), &received);
  engine->Submit(std::move(received.call),
                 [reply = std::move(reply), owner = received.call.owner, cached = std::move(received.cached),
                  want_timings = received.want_timings](absl::StatusOr<CallReply> result) mutable {
                   if (!result.ok()) return reply(result.status());
                   WireBody body = cached.EncodeResponse(*std::move(result), want_timings, reply.observation());
                   reply(std::move(body).ToBytes(), Keep(std::move(owner)));
                 });
}

void ComputeMoments(Engine* engine, ReceivedCall& received, Reply reply) {
  AskFor(reply.call(), received.tensors, /*alone=*/true, &received.call);
  TakeRoomOf(reply.call(), &received);
  engine->Submit(std::move(received.call),
                 [reply = std::move(reply), owner = received.call.owner,
                  cached = std::move(received.cached)](absl::StatusOr<CallReply> result) mutable {
                   if (!result.ok()) return reply(result.status());
                   cached.Remember(*result);
                   WireBody body = EncodeComputeMomentsResponse(*std::move(result), reply.observation());
                   reply(std::move(body).ToBytes(), Keep(std::move(owner)));
                 });
}

// So many errors of a batch are told with their details. Who makes the same mistake in all items learns it from these.
constexpr int64_t kWholeErrors = 16;

// An item of a batch, apart from its call.
struct Item {
  absl::Status refused;  // the error that kept it from the engine, or OK
  CachedCall cached;
  bool want_timings = false;
};

// Encodes the results of the calls and the refused items, in the order of the request. Each error names its item.
MessageBytes EncodeBatch(std::vector<Item> items, std::vector<absl::StatusOr<CallReply>> results,
                         Observation& observation) {
  WireBody body;
  size_t next = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    Item& item = items[i];
    absl::StatusOr<CallReply> result = item.refused.ok() ? std::move(results[next++]) : item.refused;
    WireBody encoded;
    if (result.ok()) {
      encoded = EncodeBatchItem(item.cached.EncodeResponse(*std::move(result), item.want_timings, observation));
    } else {
      const bool whole = observation.record().batch_items_failed++ < kWholeErrors;
      encoded = EncodeBatchItemError(PrefixField(result.status(), absl::StrCat("items[", i, "].")),
                                     whole ? ErrorForm::kWhole : ErrorForm::kShort);
    }
    body.AppendMessageField(v1::BatchNormalizeResponse::kItemsFieldNumber, std::move(encoded));
  }
  return std::move(body).ToBytes();
}

// `room` is for what the items take beside their messages and outputs, the items of the reply among it.
void BatchNormalize(Engine* engine, ReceivedBatch& batch, Reservation room, Reply reply) {
  std::vector<Call> calls;
  std::vector<Item> items(batch.items.size());
  calls.reserve(batch.items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].refused = std::move(batch.statuses[i]);
    if (!items[i].refused.ok()) continue;
    ReceivedCall& received = batch.items[i];
    AskFor(reply.call(), received.tensors, /*alone=*/false, &received.call);
    TakeRoomOf(reply.call(), &received);
    items[i].cached = std::move(received.cached);
    items[i].want_timings = received.want_timings;
    calls.push_back(std::move(received.call));
  }
  reply.observation().DecodeDone();
  engine->SubmitBatch(std::move(calls),
                      [reply = std::move(reply), owner = std::move(batch.owner), room = std::move(room),
                       items = std::move(items)](std::vector<absl::StatusOr<CallReply>> results) mutable {
                        MessageBytes bytes = EncodeBatch(std::move(items), std::move(results), reply.observation());
                        reply(std::move(bytes), [owner = std::move(owner), room = std::move(room)] {});
                      });
}

// What BatchNormalize needs of the server.
struct BatchParts {
  const RouteContext* context;
  Engine* engine;
  CallDecoder* decoder;
  int64_t max_items;
};

// Takes a batch apart on the pool if its bytes or its items are many. What waits there has its room.
void ReceiveBatch(const BatchParts& parts, const MessageBytes& message, Reservation memory, Reply reply) {
  const int64_t items = CallDecoder::CountItems(message, parts.max_items);
  absl::StatusOr<Reservation> room =
      parts.context->admission->Reserve(items * Admission::kMinItemBytes, [&reply] { return NameOf(*reply.call()); });
  if (!room.ok()) return reply(room.status());
  const int64_t bytes = message.size_bytes() + items * WorkPool::kBytesPerItem;
  RunIfLarge(
      *parts.context, bytes,
      [bytes, parts, message, memory = std::move(memory), room = *std::move(room), reply = std::move(reply)]() mutable {
        if (bytes >= WorkPool::kLargeBytes) reply.observation().ThreadFound();
        ReceivedBatch batch;
        const absl::Status status = parts.decoder->DecodeBatch(message, std::move(memory), *reply.call(),
                                                               parts.max_items, reply.observation(), &batch);
        return status.ok() ? BatchNormalize(parts.engine, batch, std::move(room), std::move(reply)) : reply(status);
      });
}

}  // namespace

std::vector<Route> NormalizerRoutes(const RouteContext* context, const RpcOptions* options, Engine* engine,
                                    CallDecoder* decoder) {
  const auto path = [](const char* method) { return MethodPath("normd.v1.Normalizer", method); };
  return {
      UnaryBytes(context, path("Normalize"),
                 [engine, decoder](const MessageBytes& message, Reservation room, Reply reply) {
                   ReceivedCall call;
                   const absl::Status status =
                       decoder->DecodeNormalize(message, std::move(room), *reply.call(), reply.observation(), &call);
                   return status.ok() ? Normalize(engine, call, std::move(reply)) : reply(status);
                 }),
      UnaryBytes(context, path("BatchNormalize"),
                 [parts = BatchParts{context, engine, decoder, options->max_batch_items}](
                     const MessageBytes& message, Reservation memory, Reply reply) {
                   ReceiveBatch(parts, message, std::move(memory), std::move(reply));
                 }),
      UnaryBytes(context, path("ComputeMoments"),
                 [engine, decoder](const MessageBytes& message, Reservation room, Reply reply) {
                   ReceivedCall call;
                   const absl::Status status = decoder->DecodeComputeMoments(message, std::move(room), *reply.call(),
                                                                             reply.observation(), &call);
                   return status.ok() ? ComputeMoments(engine, call, std::move(reply)) : reply(status);
                 }),
      Unary<v1::DescribeRequest>(context, path("Describe"),
                                 [engine, options](Parsed<v1::DescribeRequest>, Reply reply) {
                                   reply(Serialize(Describe(*options, *engine)));
                                 }),
      NormalizeStreamRoute(context, path("NormalizeStream"), {options->max_stream_calls, MaxTensorBytes(*options)},
                           engine, decoder),
  };
}

}  // namespace normd::rpc
