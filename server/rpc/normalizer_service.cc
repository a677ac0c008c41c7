#include "server/rpc/normalizer_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/errors.h"
#include "normd/v1/normalizer.pb.h"
#include "server/rpc/decode_call.h"
#include "server/rpc/describe.h"
#include "server/rpc/encode.h"
#include "server/rpc/normalize_stream.h"

namespace normd::rpc {
namespace {

void Normalize(Engine* engine, Parsed<v1::NormalizeRequest> request, Reply reply) {
  absl::StatusOr<Call> call = DecodeCall(*request, nullptr, request.owner);
  reply.observation().record().norm_method = MethodName(request->spec());
  reply.observation().DecodeDone();
  if (!call.ok()) return reply(call.status());
  call->cancelled = reply.Cancelled();
  engine->Submit(*std::move(call), [reply = std::move(reply),
                                    want_timings = request->want_timings()](absl::StatusOr<CallReply> result) mutable {
    if (!result.ok()) return reply(result.status());
    reply(EncodeNormalizeResponse(*std::move(result), want_timings, reply.observation()).ToByteBuffer());
  });
}

void ComputeMoments(Engine* engine, Parsed<v1::ComputeMomentsRequest> request, Reply reply) {
  absl::StatusOr<Call> call = DecodeComputeMoments(*request, request.owner);
  reply.observation().record().norm_method = MethodName(request->spec());
  reply.observation().DecodeDone();
  if (!call.ok()) return reply(call.status());
  engine->Submit(*std::move(call), [reply = std::move(reply)](absl::StatusOr<CallReply> result) mutable {
    if (!result.ok()) return reply(result.status());
    reply(EncodeComputeMomentsResponse(*std::move(result), reply.observation()).ToByteBuffer());
  });
}

// A batch on its way: which items went to the engine, and what is known of the others.
struct Batch {
  std::vector<Call> calls;
  // For each item of the request: the error that kept it from the engine, or OK.
  std::vector<absl::Status> refused;
  std::vector<bool> want_timings;
};

Batch DecodeBatch(const v1::BatchNormalizeRequest& request, const std::shared_ptr<const void>& owner) {
  Batch batch;
  for (const v1::NormalizeRequest& item : request.items()) {
    absl::StatusOr<Call> call = DecodeCall(item, nullptr, owner);
    batch.refused.push_back(call.status());
    batch.want_timings.push_back(item.want_timings());
    if (call.ok()) batch.calls.push_back(*std::move(call));
  }
  return batch;
}

// Results of the calls and refusals in the order of the request, each error saying which item it is about.
grpc::ByteBuffer EncodeBatch(const std::vector<absl::Status>& refused, const std::vector<bool>& want_timings,
                             std::vector<absl::StatusOr<CallReply>> results, Observation& observation) {
  WireBody body;
  size_t next = 0;
  for (size_t i = 0; i < refused.size(); ++i) {
    absl::StatusOr<CallReply> result = refused[i].ok() ? std::move(results[next++]) : refused[i];
    if (!result.ok()) result = PrefixField(result.status(), absl::StrCat("items[", i, "]."));
    body.AppendMessageField(v1::BatchNormalizeResponse::kItemsFieldNumber,
                            EncodeBatchItem(std::move(result), want_timings[i], observation));
  }
  return std::move(body).ToByteBuffer();
}

void BatchNormalize(Engine* engine, int64_t max_items, Parsed<v1::BatchNormalizeRequest> request, Reply reply) {
  reply.observation().record().batch_items = request->items_size();
  if (request->items_size() > max_items) {
    return reply(OutOfRangeError("items", absl::StrCat(request->items_size(), " items"),
                                 absl::StrCat("at most ", max_items, " items"), "TOO_MANY_ITEMS"));
  }
  Batch batch = DecodeBatch(*request, request.owner);
  reply.observation().DecodeDone();
  for (Call& call : batch.calls) call.cancelled = reply.Cancelled();
  engine->SubmitBatch(std::move(batch.calls), [reply = std::move(reply), refused = std::move(batch.refused),
                                               want_timings = std::move(batch.want_timings)](
                                                  std::vector<absl::StatusOr<CallReply>> results) mutable {
    reply(EncodeBatch(refused, want_timings, std::move(results), reply.observation()));
  });
}

}  // namespace

std::vector<Route> NormalizerRoutes(const RouteContext* context, const GrpcServerOptions* options, Engine* engine) {
  const std::string service = "/normd.v1.Normalizer/";
  return {
      Unary<v1::NormalizeRequest>(context, service + "Normalize",
                                  [engine](Parsed<v1::NormalizeRequest> request, Reply reply) {
                                    Normalize(engine, std::move(request), std::move(reply));
                                  }),
      Unary<v1::BatchNormalizeRequest>(
          context, service + "BatchNormalize",
          [engine, max_items = options->max_batch_items](Parsed<v1::BatchNormalizeRequest> request, Reply reply) {
            BatchNormalize(engine, max_items, std::move(request), std::move(reply));
          }),
      Unary<v1::ComputeMomentsRequest>(context, service + "ComputeMoments",
                                       [engine](Parsed<v1::ComputeMomentsRequest> request, Reply reply) {
                                         ComputeMoments(engine, std::move(request), std::move(reply));
                                       }),
      Unary<v1::DescribeRequest>(context, service + "Describe",
                                 [engine, options](Parsed<v1::DescribeRequest>, Reply reply) {
                                   reply(Serialize(Describe(*options, engine->sessions())));
                                 }),
      NormalizeStreamRoute(context, service + "NormalizeStream", options->max_stream_calls, engine),
  };
}

}  // namespace normd::rpc
