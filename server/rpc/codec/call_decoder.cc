#include "server/rpc/codec/call_decoder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "proto/wire/split.h"
#include "server/base/caller_key.h"
#include "server/base/error_reasons.h"
#include "server/engine/prepared_call.h"
#include "server/engine/shared_outputs.h"
#include "server/rpc/codec/call_memory.h"
#include "server/rpc/codec/decode_call.h"
#include "server/rpc/codec/element_count.h"
#include "server/rpc/codec/encode.h"
#include "server/session/session_key.h"

namespace normd::rpc {
namespace {

// The largest product of a batch's items and the message's slices for decoding item by item, because finding each item
// walks the slices. Larger batches are parsed as a whole.
constexpr size_t kMaxItemsTimesPieces = size_t{1} << 18;

// Begins the keys of calls in any scope but the plain one. A zero byte is no field's tag, so no request begins with it,
// and no bytes of a caller of the default tenant are the key of another scope's call.
constexpr std::string_view kNoTag("\0", 1);

// Owns the memory from which a remembered call borrows.
struct RememberedCallOwner {
  RememberedCallOwner(Reservation reservation, std::shared_ptr<const void> more)
      : memory(std::move(reservation)), defaults(std::move(more)) {}
  RequestMemory memory;
  TensorSource tensors;
  const std::shared_ptr<const void> defaults;
};

// Owns the memory from which a newly parsed item of a batch borrows.
struct ItemOwner {
  TensorSource tensors;
  std::shared_ptr<google::protobuf::Arena> arena;
};

bool IsItem(const wire::TopField& field) {
  return field.number == v1::BatchNormalizeRequest::kItemsFieldNumber && field.type == wire::WireType::kDelimited;
}

// Calls `visit(field, tensor)` for each tensor of the request.
template <typename Visit>
void ForEachTensor(const v1::NormalizeRequest& request, Visit visit) {
  if (request.has_x()) visit(TensorField::kX, request.x());
  const v1::Parameters& p = request.parameters();
  if (p.has_weight()) visit(TensorField::kWeight, p.weight());
  if (p.has_bias()) visit(TensorField::kBias, p.bias());
  if (p.has_running_mean()) visit(TensorField::kRunningMean, p.running_mean());
  if (p.has_running_var()) visit(TensorField::kRunningVar, p.running_var());
  if (request.residual().has_tensor()) visit(TensorField::kResidual, request.residual().tensor());
  if (request.has_mask()) visit(TensorField::kMask, request.mask());
}
template <typename Visit>
void ForEachTensor(const v1::ComputeMomentsRequest& request, Visit visit) {
  if (request.has_x()) visit(TensorField::kX, request.x());
  if (request.has_mask()) visit(TensorField::kMask, request.mask());
}

// Whether a request with the same bytes, apart from tensors, always means the same call and is likely to come again.
bool IsFixed(const Call& call) {
  return !HasSharedOutputs(call) && !call.validate_only && !call.step.has_value() && !call.expected_version.has_value();
}

bool WantsTimings(const v1::NormalizeRequest& request) { return request.want_timings(); }
bool WantsTimings(const v1::ComputeMomentsRequest& /*request*/) { return false; }

template <typename Request>
CachedCall MakePlace(std::shared_ptr<CallCache> cache, std::string key, const Request& request, const CallScope& scope,
                     bool want_timings, const Call& call) {
  if (key.empty() || !IsFixed(call)) return {};
  auto remembered = std::make_shared<RememberedCall>();
  remembered->tenant = scope.tenant;
  remembered->pattern = call;
  if (std::holds_alternative<NormSpec>(call.target)) remembered->pattern.target = NormSpec();  // the plan has the spec
  bool in_blocks = true;
  ForEachTensor(request, [&](TensorField field, const v1::Tensor& tensor) {
    TensorView& view = ViewOf(remembered->pattern, field);
    in_blocks = in_blocks && tensor.has_data() && view.size_bytes > 0;
    if (!in_blocks) return;
    view.data = nullptr;
    view.segments = {};
    remembered->slots.push_back({field, static_cast<uint32_t>(wire::BlockNumber(tensor.data())), view.size_bytes});
  });
  if (!in_blocks) return {};
  remembered->defaults = scope.defaults;
  remembered->want_timings = want_timings;
  remembered->norm_method = MethodName(request.spec());
  return {std::move(cache), std::move(key), std::move(remembered)};
}

// Where a call may be remembered; an empty key: nowhere.
struct CachePlace {
  const std::shared_ptr<CallCache>& cache;
  const CallScope& scope;
  std::string key;
};

// Fills `received` from a parsed request and the result of decoding it.
template <typename Request>
absl::Status Take(CachePlace place, const Parsed<Request>& request, absl::StatusOr<Call> call, ReceivedCall* received) {
  if (!call.ok()) return call.status();
  received->want_timings = WantsTimings(*request);
  received->cached = MakePlace(place.cache, std::move(place.key), *request, place.scope, received->want_timings, *call);
  received->call = *std::move(call);
  received->call.owner = request.owner;
  received->tensors = request.tensors;
  received->memory = request.memory;
  return absl::OkStatus();
}

absl::StatusOr<Call> DecodeMessage(const Parsed<v1::NormalizeRequest>& request, std::string_view tenant) {
  return DecodeCall({request.message, request.tensors}, {}, tenant);
}
absl::StatusOr<Call> DecodeMessage(const Parsed<v1::ComputeMomentsRequest>& request, std::string_view tenant) {
  return DecodeComputeMoments({request.message, request.tensors}, tenant);
}

// Decodes one request, from the cache or with the parser.
template <typename Request>
absl::Status DecodeOne(const std::shared_ptr<CallCache>& cache, const RouteContext& context, const RpcCall& stream,
                       const MessageBytes& bytes, Reservation reservation, Observation& observation,
                       ReceivedCall* received) {
  ReceivedMessage message = Receive(bytes, *kLayoutOf<Request>);
  const CallScope scope = CallDecoder::ScopeOf(stream);
  if (Recognise(cache, scope, message, reservation, context.buffers, received)) {
    observation.record().norm_method = received->norm_method;
    observation.DecodeDone();
    return absl::OkStatus();
  }
  std::string key = KeyOf(message, scope);
  NORMD_ASSIGN_OR_RETURN(const Parsed<Request> request, Parse<Request>(std::move(message), std::move(reservation)));
  GiveMemory(context, stream, request.tensors);
  observation.record().norm_method = MethodName(request->spec());
  absl::StatusOr<Call> call = DecodeMessage(request, scope.tenant);
  observation.DecodeDone();
  return Take({cache, scope, std::move(key)}, request, std::move(call), received);
}

absl::Status TooManyItemsError(int64_t items, int64_t max_items) {
  return AmountError("items", absl::StrCat(items, " items"), absl::StrCat("at most ", max_items, " items"),
                     ServerReason("TOO_MANY_ITEMS"));
}

// Whether the call ran on the planned device and kernel, so that its reply begins like that of every such call. With
// several devices, another one may have run it.
bool RanAsPlanned(const CallReply& reply, const PreparedCall& prepared) {
  const Applied& planned = prepared.applied;
  return reply.applied.device == planned.device && reply.applied.device_fallback == planned.device_fallback &&
         reply.applied.kernel == planned.kernel;
}

}  // namespace

bool CachedCall::HasHeadOf(const CallReply& reply) const {
  if (remembered_ == nullptr || remembered_->reply_head.empty() || reply.prepared != remembered_->pattern.prepared)
    return false;
  return reply.applied.session_version == remembered_->session_version && RanAsPlanned(reply, *reply.prepared);
}

WireBody CachedCall::EncodeResponse(CallReply reply, bool want_timings, Observation& observation,
                                    std::vector<Buffer>* chunked) {
  if (chunked == nullptr && HasHeadOf(reply)) {
    // The phase of encoding is not timed, because reading the clock would take longer than encoding.
    NoteReply(reply, observation.record());
    WireBody body;
    body.Append(remembered_->reply_head);
    body.AppendBlock(std::move(reply.outputs.front().bytes));
    return body;
  }
  const std::shared_ptr<const PreparedCall> prepared = reply.prepared;
  const uint64_t version = reply.applied.session_version;
  const bool as_planned = prepared != nullptr && RanAsPlanned(reply, *prepared);
  // The reply to a step says whether the step was applied, so it differs each time.
  const bool repeats =
      chunked == nullptr && !want_timings && as_planned && !prepared->commits && reply.outputs.size() == 1;
  WireBody body = EncodeNormalizeResponse(std::move(reply), want_timings, observation, chunked);
  Remember(prepared, repeats ? body.TextBeforeBlock() : std::string_view(), version);
  return body;
}

void CachedCall::Remember(const std::shared_ptr<const PreparedCall>& prepared, std::string_view reply_head,
                          uint64_t session_version) {
  if (cache_ == nullptr || prepared == nullptr) return;
  const bool new_head =
      !reply_head.empty() && (remembered_->reply_head.empty() || remembered_->session_version != session_version);
  if (remembered_->pattern.prepared == prepared && !new_head) return;
  auto remembered = std::make_shared<RememberedCall>(*remembered_);
  remembered->pattern.prepared = prepared;
  remembered->reply_head = std::string(reply_head);
  remembered->session_version = session_version;
  cache_->Put(key_, std::move(remembered));
}

void AskFor(const std::shared_ptr<RpcCall>& stream, const TensorSource* tensors, bool alone, Call* call) {
  call->caller = CallerKey(stream->identity()->tenant, stream->caller());
  call->deadline = stream->deadline();
  // Such a call is done before anything would check for cancellation, and it reads no shared memory.
  if (alone && RunsAtOnce(*call)) return;
  call->cancelled = [stream] { return stream->cancelled(); };
  call->validate_inputs = [tensors] { return tensors->CheckRegions(); };
  if (tensors->has_events()) call->events_completed = [tensors] { return tensors->EventsCompleted(); };
}

void TakeRoomOf(const std::shared_ptr<RpcCall>& stream, ReceivedCall* received) {
  received->call.reserve = [memory = received->memory, caller = stream.get()](int64_t bytes) {
    return memory->Reserve(bytes, [caller] { return NameOf(*caller); });
  };
}

bool Recognise(const std::shared_ptr<CallCache>& cache, const CallScope& scope, ReceivedMessage& message,
               Reservation& reservation, BufferPool* buffers, ReceivedCall* received) {
  if (!message.split.has_value()) return false;
  std::string with_prefix;
  if (!scope.key_prefix.empty()) with_prefix = KeyOf(message, scope);
  std::string& key = scope.key_prefix.empty() ? message.split->metadata : with_prefix;
  std::shared_ptr<const RememberedCall> remembered = cache->Find(key);
  if (remembered == nullptr || remembered->tenant != scope.tenant || remembered->defaults.lock() != scope.defaults) {
    return false;
  }
  std::vector<wire::Block>& blocks = message.split->blocks;
  for (const RememberedCall::Slot& slot : remembered->slots) {
    // A tensor whose size differs goes to the parser, which reports the error.
    if (slot.block >= blocks.size() || static_cast<int64_t>(blocks[slot.block].size_bytes) != slot.size_bytes) {
      return false;
    }
  }
  auto owner = std::make_shared<RememberedCallOwner>(std::move(reservation), scope.defaults);
  owner->tensors.SetBuffers(buffers);
  owner->tensors.SetBlocks(std::move(message.bytes), std::move(blocks));
  Call& call = received->call;
  call = remembered->pattern;
  for (const RememberedCall::Slot& slot : remembered->slots) {
    const TensorSource::Bytes bytes = owner->tensors.FindBlock(slot.block, slot.field == TensorField::kX);
    TensorView& view = ViewOf(call, slot.field);
    view.data = bytes.data;
    view.segments = bytes.segments;
  }
  received->tensors = &owner->tensors;
  received->memory = &owner->memory;
  call.owner = std::move(owner);
  received->want_timings = remembered->want_timings;
  received->norm_method = remembered->norm_method;
  received->cached = CachedCall(cache, std::move(key), std::move(remembered));
  return true;
}

std::string KeyOf(const ReceivedMessage& message, const CallScope& scope) {
  if (!message.split.has_value()) return {};
  const std::string& metadata = message.split->metadata;
  if (scope.key_prefix.size() + metadata.size() > CallCache::kMaxKeyBytes) return {};
  return scope.key_prefix + metadata;
}

CallScope CallDecoder::ScopeOf(const RpcCall& stream) {
  CallScope scope = {.tenant = stream.identity()->tenant, .defaults = nullptr, .key_prefix = {}};
  if (!scope.tenant.empty()) scope.key_prefix = absl::StrCat(std::string(kNoTag), SessionKey(scope.tenant, {}));
  return scope;
}

CallScope CallDecoder::NewScope(const RpcCall& stream, std::shared_ptr<const void> defaults) {
  const uint64_t number = prefixes_.fetch_add(1, std::memory_order_relaxed);
  CallScope scope = {.tenant = stream.identity()->tenant, .defaults = std::move(defaults), .key_prefix = {}};
  scope.key_prefix = std::string(kNoTag);
  scope.key_prefix.append(reinterpret_cast<const char*>(&number), sizeof(number));
  return scope;
}

CachedCall PlaceOf(std::shared_ptr<CallCache> cache, std::string key, const v1::NormalizeRequest& request,
                   const CallScope& scope, bool want_timings, const Call& call) {
  return MakePlace(std::move(cache), std::move(key), request, scope, want_timings, call);
}

absl::Status CallDecoder::DecodeNormalize(const MessageBytes& bytes, Reservation reservation, const RpcCall& stream,
                                          Observation& observation, ReceivedCall* received) {
  return DecodeOne<v1::NormalizeRequest>(normalize_, *context_, stream, bytes, std::move(reservation), observation,
                                         received);
}

absl::Status CallDecoder::DecodeComputeMoments(const MessageBytes& bytes, Reservation reservation,
                                               const RpcCall& stream, Observation& observation,
                                               ReceivedCall* received) {
  return DecodeOne<v1::ComputeMomentsRequest>(moments_, *context_, stream, bytes, std::move(reservation), observation,
                                              received);
}

int64_t CallDecoder::CountItems(const MessageBytes& bytes, int64_t max_items) {
  // An item has at least two bytes.
  const int64_t most = std::min(max_items, bytes.size_bytes() / 2);
  const ReceivedBytes received = TakeBytes(bytes);
  const std::optional<std::vector<wire::TopField>> fields =
      wire::TopFields(received.segments(), static_cast<size_t>(most));
  return fields.has_value() ? static_cast<int64_t>(fields->size()) : most;
}

absl::Status CallDecoder::DecodeBatch(const MessageBytes& bytes, Reservation reservation, const RpcCall& stream,
                                      int64_t max_items, Observation& observation, ReceivedBatch* batch) {
  if (DecodeItemByItem(bytes, reservation, stream, static_cast<size_t>(max_items), batch)) {
    observation.record().batch_items = static_cast<int64_t>(batch->items.size());
    return absl::OkStatus();
  }
  using Message = v1::BatchNormalizeRequest;
  NORMD_ASSIGN_OR_RETURN(const Parsed<Message> request, Parse<Message>(bytes, std::move(reservation)));
  observation.record().batch_items = request->items_size();
  if (request->items_size() > max_items) return TooManyItemsError(request->items_size(), max_items);
  GiveMemory(*context_, stream, request.tensors);
  const CallScope scope = ScopeOf(stream);
  batch->owner = request.owner;
  batch->items.resize(static_cast<size_t>(request->items_size()));
  for (size_t i = 0; i < batch->items.size(); ++i) {
    const v1::NormalizeRequest& item = request->items(static_cast<int>(i));
    const Parsed<v1::NormalizeRequest> one = {&item, request.tensors, request.memory, request.owner};
    batch->statuses.push_back(Take({normalize_, scope, {}}, one, DecodeMessage(one, scope.tenant), &batch->items[i]));
  }
  return absl::OkStatus();
}

bool CallDecoder::DecodeItemByItem(const MessageBytes& bytes, Reservation& reservation, const RpcCall& stream,
                                   size_t max_items, ReceivedBatch* batch) {
  const ReceivedBytes received = TakeBytes(bytes);
  const std::optional<std::vector<wire::TopField>> fields = wire::TopFields(received.segments(), max_items);
  if (!fields.has_value() || fields->size() * received.segments().size() > kMaxItemsTimesPieces) return false;
  if (!std::all_of(fields->begin(), fields->end(), &IsItem)) return false;
  ReceivedBatch items;
  items.items.resize(fields->size());
  const auto arena = std::make_shared<google::protobuf::Arena>();  // for the items that are parsed
  int64_t metadata_bytes = 0;
  for (size_t i = 0; i < fields->size(); ++i) {
    ReceivedMessage message = ReceivePart(received, (*fields)[i].bytes, wire::kNormalizeRequest);
    if (!message.split.has_value()) return false;
    metadata_bytes += static_cast<int64_t>(message.split->metadata.size());
    if (metadata_bytes > kMaxElements) return false;  // the batch may have too many elements; the parser counts them
    std::optional<absl::Status> status = DecodeItem(std::move(message), stream, arena, &items.items[i]);
    if (!status.has_value()) return false;
    items.statuses.push_back(*std::move(status));
  }
  const auto room = std::make_shared<RequestMemory>(std::move(reservation));
  for (ReceivedCall& item : items.items) item.memory = room.get();
  items.owner = room;
  *batch = std::move(items);
  return true;
}

std::optional<absl::Status> CallDecoder::DecodeItem(ReceivedMessage message, const RpcCall& stream,
                                                    const std::shared_ptr<google::protobuf::Arena>& arena,
                                                    ReceivedCall* received) {
  Reservation none;  // the batch as a whole has the reservation
  const CallScope scope = ScopeOf(stream);
  if (Recognise(normalize_, scope, message, none, context_->buffers, received)) return absl::OkStatus();
  std::string key = KeyOf(message, scope);
  auto owner = std::make_shared<ItemOwner>();
  owner->arena = arena;
  auto* const request = google::protobuf::Arena::CreateMessage<v1::NormalizeRequest>(arena.get());
  if (!ParseInto(std::move(message), request, &owner->tensors).ok()) return std::nullopt;
  const Parsed<v1::NormalizeRequest> parsed = {request, &owner->tensors, nullptr, owner};
  GiveMemory(*context_, stream, parsed.tensors);
  return Take({normalize_, scope, std::move(key)}, parsed, DecodeMessage(parsed, scope.tenant), received);
}

}  // namespace normd::rpc
