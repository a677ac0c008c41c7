// Turns received requests into calls, from the call cache or with the parser, and stores in the call cache what the
// answer to a call reveals.
// In the path: between the transport's bytes and Engine::Submit, for unary calls, batches and streams.
// Threads: a CallDecoder is safe from any thread; a ReceivedCall is used by one thread at a time.
#ifndef NORMD_SERVER_RPC_CODEC_CALL_DECODER_H_
#define NORMD_SERVER_RPC_CODEC_CALL_DECODER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "normd/v1/normalizer.pb.h"
#include "server/engine/call.h"
#include "server/rpc/codec/call_cache.h"
#include "server/rpc/codec/message.h"
#include "server/rpc/edge/observation.h"
#include "server/rpc/edge/route.h"

namespace normd::rpc {

// The place of a call in the cache: the remembered call, and the way to remember it once it is answered. A
// default-constructed CachedCall is for a call that cannot be cached.
class CachedCall {
 public:
  CachedCall() = default;
  // `remembered` is the cache's entry, or a new one whose pattern is not prepared yet and that the cache gets once the
  // call is answered.
  CachedCall(std::shared_ptr<CallCache> cache, std::string key, std::shared_ptr<const RememberedCall> remembered)
      : cache_(std::move(cache)), key_(std::move(key)), remembered_(std::move(remembered)) {}

  // Encodes the reply from its remembered beginning, or else with EncodeNormalizeResponse, and remembers the call.
  WireBody EncodeResponse(CallReply reply, bool want_timings, Observation& observation,
                          std::vector<Buffer>* chunked = nullptr);
  // Remembers the prepared call only; for replies that are encoded in another form.
  void Remember(const CallReply& reply) { Remember(reply.prepared, {}, 0); }

 private:
  bool HasHeadOf(const CallReply& reply) const;
  void Remember(const std::shared_ptr<const PreparedCall>& prepared, std::string_view reply_head,
                uint64_t session_version);

  std::shared_ptr<CallCache> cache_;
  std::string key_;
  std::shared_ptr<const RememberedCall> remembered_;
};

// A call as received, with everything that belongs to it until it is answered.
struct ReceivedCall {
  Call call;  // `call.owner` keeps the members below alive; AskFor and TakeRoomOf complete the call for Engine::Submit
  TensorSource* tensors = nullptr;
  RequestMemory* memory = nullptr;
  CachedCall cached;
  bool want_timings = false;
  std::string_view norm_method;  // of a remembered call's spec; "" for a session
};

// Sets the request context of `call`: the caller of `stream`, its deadline, its cancellation, and the checks of its
// shared memory and of the events there. `alone` says that the call is submitted by itself and not in a batch.
void AskFor(const std::shared_ptr<RpcCall>& stream, const TensorSource* tensors, bool alone, Call* call);
// Makes the call reserve memory for its outputs and scratch from `received->memory`. The code that submits the call
// must keep the stream alive until the call is done.
void TakeRoomOf(const std::shared_ptr<RpcCall>& stream, ReceivedCall* received);

// The items of a batch, in the order of the request. An item whose status is not OK has no call.
struct ReceivedBatch {
  std::vector<ReceivedCall> items;
  std::vector<absl::Status> statuses;
  std::shared_ptr<const void> owner;  // of the memory reserved for all messages and outputs
};

class CallDecoder {
 public:
  // `context` must outlive it.
  explicit CallDecoder(const RouteContext* context) : context_(context) {}

  // Decode one request into `*received`, and record the method and the time of decoding in `observation`. Errors are
  // those of the parser and of decode_call.h. Tensors borrow from `received->call.owner`.
  absl::Status DecodeNormalize(const MessageBytes& bytes, Reservation reservation, const RpcCall& stream,
                               Observation& observation, ReceivedCall* received);
  absl::Status DecodeComputeMoments(const MessageBytes& bytes, Reservation reservation, const RpcCall& stream,
                                    Observation& observation, ReceivedCall* received);
  // The number of items of a batch, or a larger one, before it is decoded: at most `max_items`, beyond which a batch is
  // refused without a look at its items.
  static int64_t CountItems(const MessageBytes& bytes, int64_t max_items);
  // Decodes the items of a batch, each with a status of its own, and records their number in `observation`. Returns an
  // error when the bytes are not a BatchNormalizeRequest with at most `max_items` items.
  absl::Status DecodeBatch(const MessageBytes& bytes, Reservation reservation, const RpcCall& stream, int64_t max_items,
                           Observation& observation, ReceivedBatch* batch);

  // The cache of Normalize calls, which the reader of streams shares.
  const std::shared_ptr<CallCache>& cache() const { return normalize_; }
  // The scope of the calls on `stream`, under no defaults.
  static CallScope ScopeOf(const RpcCall& stream);
  // The scope of calls on `stream` under `defaults`. Its prefix is unique.
  CallScope NewScope(const RpcCall& stream, std::shared_ptr<const void> defaults);

 private:
  // Returns false, leaving `reservation` as it was, when the message has other fields than items, or an item is not in
  // the form that serialisers write: then the parser must read the whole message.
  bool DecodeItemByItem(const MessageBytes& bytes, Reservation& reservation, const RpcCall& stream, size_t max_items,
                        ReceivedBatch* batch);
  // The status of decoding one item; nullopt when the parser rejects its bytes.
  std::optional<absl::Status> DecodeItem(ReceivedMessage message, const RpcCall& stream,
                                         const std::shared_ptr<google::protobuf::Arena>& arena, ReceivedCall* received);

  const RouteContext* const context_;
  std::atomic<uint64_t> prefixes_{0};
  const std::shared_ptr<CallCache> normalize_ = std::make_shared<CallCache>(4096);
  const std::shared_ptr<CallCache> moments_ = std::make_shared<CallCache>(256);
};

// The functions below are shared by CallDecoder and the reader of streams.

// The cache key of a request: the scope's prefix and the message's bytes without those of its tensors. Empty when the
// key would be too long.
std::string KeyOf(const ReceivedMessage& message, const CallScope& scope);

// If `cache` has a call of `scope` with the message's KeyOf, fills `received` from that call and the tensors of
// `message`. Otherwise returns false and leaves `message` and `reservation` as they were. The call also borrows from
// the scope's defaults.
bool Recognise(const std::shared_ptr<CallCache>& cache, const CallScope& scope, ReceivedMessage& message,
               Reservation& reservation, BufferPool* buffers, ReceivedCall* received);

// The place in `cache`, under `key`, of `call`, which was decoded from `request` in `scope`. Empty when another call of
// the scope with the same key could differ from this one.
CachedCall PlaceOf(std::shared_ptr<CallCache> cache, std::string key, const v1::NormalizeRequest& request,
                   const CallScope& scope, bool want_timings, const Call& call);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_CALL_DECODER_H_
