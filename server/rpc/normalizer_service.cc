#include "server/rpc/normalizer_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/errors.h"
#include "normd/v1/normalizer.pb.h"
#include "server/rpc/admission.h"
#include "server/rpc/decode_call.h"
#include "server/rpc/describe.h"
#include "server/rpc/encode.h"
#include "server/rpc/normalize_stream.h"
#include "server/rpc/plain_requests.h"

namespace normd::rpc {
namespace {

// Gives a decoded call what it needs to be submitted.
template <typename Message>
void Complete(const Parsed<Message>& request, const Reply& reply, Call& call) {
  call.owner = request.owner;
  call.cancelled = reply.Cancelled();
  call.deadline = reply.stream()->deadline();
  call.caller = reply.stream()->caller();
  call.hold = [memory = request.memory, stream = reply.stream()](int64_t bytes) {
    return memory->Hold(bytes, [&stream] { return stream->peer(); });
  };
  call.intact = [tensors = request.tensors] { return tensors->CheckRegions(); };
}

// Keeps the request, and the room that was made for it and its reply, until the reply has gone.
template <typename Message>
Stream::Callback Keep(Parsed<Message> request) {
  return [owner = std::move(request.owner)] {};
}

// `known` gets a good request by its `metadata`, where that is not empty.
void Normalize(Engine* engine, PlainRequests* known, const std::string& metadata, Parsed<v1::NormalizeRequest> request,
               Reply reply) {
  absl::StatusOr<Call> call = DecodeCall({request.message, request.tensors}, {});
  reply.observation().record().norm_method = MethodName(request->spec());
  reply.observation().DecodeDone();
  if (!call.ok()) return reply(call.status());
  if (!metadata.empty()) known->Remember(metadata, *request, *call);
  Complete(request, reply, *call);
  engine->Submit(*std::move(call), [reply = std::move(reply),
                                    request = std::move(request)](absl::StatusOr<CallReply> result) mutable {
    if (!result.ok()) return reply(result.status());
    grpc::ByteBuffer bytes =
        EncodeNormalizeResponse(*std::move(result), request->want_timings(), reply.observation()).ToByteBuffer();
    reply(std::move(bytes), Keep(std::move(request)));
  });
}

Route NormalizeRoute(const RouteContext* context, std::string path, Engine* engine) {
  auto start = [context, engine, known = std::make_shared<PlainRequests>(engine),
                expected = std::make_shared<ExpectedSize>()](std::shared_ptr<Stream> stream) {
    auto then = [context, engine, &known, stream](grpc::ByteBuffer bytes, Reservation reservation,
                                                  Observation observation) {
      ReceivedMessage message = Receive(bytes, *kLayoutOf<v1::NormalizeRequest>);
      bytes.Clear();
      auto answer = known->Answer(message, observation);
      Reply reply(stream, std::move(observation));
      if (answer.has_value()) {
        return reply(*std::move(answer), [message = std::move(message), held = std::move(reservation)] {});
      }
      const std::string metadata = PlainRequests::KeyOf(message);
      absl::StatusOr<Parsed<v1::NormalizeRequest>> request =
          Parse<v1::NormalizeRequest>(std::move(message), std::move(reservation));
      if (!request.ok()) return reply(request.status());
      GiveMemory(*context, *stream, request->tensors);
      Normalize(engine, known.get(), metadata, *std::move(request), std::move(reply));
    };
    ReadRequest(context, stream, expected.get(), kBytesHeldPerMessageByte, std::move(then));
  };
  return {std::move(path), std::move(start)};
}

void ComputeMoments(Engine* engine, Parsed<v1::ComputeMomentsRequest> request, Reply reply) {
  absl::StatusOr<Call> call = DecodeComputeMoments({request.message, request.tensors});
  reply.observation().record().norm_method = MethodName(request->spec());
  reply.observation().DecodeDone();
  if (!call.ok()) return reply(call.status());
  Complete(request, reply, *call);
  engine->Submit(*std::move(call), [reply = std::move(reply),
                                    request = std::move(request)](absl::StatusOr<CallReply> result) mutable {
    if (!result.ok()) return reply(result.status());
    grpc::ByteBuffer bytes = EncodeComputeMomentsResponse(*std::move(result), reply.observation()).ToByteBuffer();
    reply(std::move(bytes), Keep(std::move(request)));
  });
}

// A batch on its way: which items went to the engine, and what is known of the others.
struct Batch {
  std::vector<Call> calls;
  // For each item of the request: the error that kept it from the engine, or OK.
  std::vector<absl::Status> refused;
  std::vector<bool> want_timings;
};

Batch DecodeBatch(const Parsed<v1::BatchNormalizeRequest>& request, const Reply& reply) {
  Batch batch;
  for (const v1::NormalizeRequest& item : request->items()) {
    absl::StatusOr<Call> call = DecodeCall({&item, request.tensors}, {});
    batch.refused.push_back(call.status());
    batch.want_timings.push_back(item.want_timings());
    if (!call.ok()) continue;
    Complete(request, reply, *call);
    batch.calls.push_back(*std::move(call));
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
  Batch batch = DecodeBatch(request, reply);
  reply.observation().DecodeDone();
  engine->SubmitBatch(
      std::move(batch.calls),
      [reply = std::move(reply), request = std::move(request), refused = std::move(batch.refused),
       want_timings = std::move(batch.want_timings)](std::vector<absl::StatusOr<CallReply>> results) mutable {
        grpc::ByteBuffer bytes = EncodeBatch(refused, want_timings, std::move(results), reply.observation());
        reply(std::move(bytes), Keep(std::move(request)));
      });
}

}  // namespace

std::vector<Route> NormalizerRoutes(const RouteContext* context, const GrpcServerOptions* options, Engine* engine) {
  const std::string service = "/normd.v1.Normalizer/";
  return {
      NormalizeRoute(context, service + "Normalize", engine),
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
      NormalizeStreamRoute(context, service + "NormalizeStream", {options->max_stream_calls, MaxTensorBytes(*options)},
                           engine),
  };
}

}  // namespace normd::rpc
