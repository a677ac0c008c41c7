// Requests as they were received -> calls, by what is known of calls before or by the parser; and what the answer to a
// call tells for the next one like it.
// In the path: between the transport's bytes and Engine::Submit, for every transport. Threads: a CallDecoder is safe
// from any thread; a ReceivedCall belongs to one at a time.
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
#include "server/rpc/transport/observation.h"
#include "server/rpc/transport/route.h"

namespace normd::rpc {

// A call's place in the cache: what is known of it, and how its answer makes it known. Empty: it cannot be.
class CachedCall {
 public:
  CachedCall() = default;
  // `known` is the cache's, or what would be if the call were answered, not `prepared` yet.
  CachedCall(std::shared_ptr<CallCache> cache, std::string key, std::shared_ptr<const RememberedCall> remembered)
      : cache_(std::move(cache)), key_(std::move(key)), remembered_(std::move(remembered)) {}

  // As EncodeNormalizeResponse, which it calls unless the beginning of the reply is known.
  WireBody EncodeResponse(CallReply reply, bool want_timings, Observation& observation,
                          std::vector<Buffer>* chunked = nullptr);
  // The reply goes out in another form: keeps what was prepared.
  void Remember(const CallReply& reply) { Remember(reply.prepared, {}, 0); }

 private:
  bool HasHeadOf(const CallReply& reply) const;
  void Remember(const std::shared_ptr<const PreparedCall>& prepared, std::string_view reply_head,
                uint64_t session_version);

  std::shared_ptr<CallCache> cache_;
  std::string key_;
  std::shared_ptr<const RememberedCall> remembered_;
};

// A call as it came, and what belongs to it until it is answered.
struct ReceivedCall {
  Call call;  // owns what it borrows; AskFor and TakeRoomOf give it what else it needs to be submitted
  TensorSource* tensors = nullptr;
  RequestMemory* memory = nullptr;
  CachedCall cached;
  bool want_timings = false;
  std::string_view norm_method;  // of a known call's spec; "" for a session
};

// Says who asks, and until when: the caller of `stream`. `alone`: the call is submitted by itself.
void AskFor(const std::shared_ptr<Stream>& stream, const TensorSource* tensors, bool alone, Call* call);
// What the call makes is counted with `received->memory`. Whoever submits it keeps the stream until it is done.
void TakeRoomOf(const std::shared_ptr<Stream>& stream, ReceivedCall* received);

// The items of a batch, in its order. One whose status is not OK has no call.
struct ReceivedBatch {
  std::vector<ReceivedCall> items;
  std::vector<absl::Status> statuses;
  std::shared_ptr<const void> owner;  // of the room for all
};

class CallDecoder {
 public:
  // `context` must outlive it.
  explicit CallDecoder(const RouteContext* context) : context_(context) {}

  // Note the method and the end of decoding in `observation`.
  absl::Status DecodeNormalize(const grpc::ByteBuffer& bytes, Reservation reservation, const Stream& stream,
                               Observation& observation, ReceivedCall* received);
  absl::Status DecodeComputeMoments(const grpc::ByteBuffer& bytes, Reservation reservation, const Stream& stream,
                                    Observation& observation, ReceivedCall* received);
  // An error: the message is not one of at most `max_items` items. Notes how many items there are.
  absl::Status DecodeBatch(const grpc::ByteBuffer& bytes, Reservation reservation, const Stream& stream,
                           int64_t max_items, Observation& observation, ReceivedBatch* batch);

  const std::shared_ptr<CallCache>& cache() const { return normalize_; }
  // For the keys of calls under the defaults of a stream: another one each time, and no request begins so.
  std::string NewKeyPrefix();

 private:
  // False where the message is not made of items alone, or one of them is not what a serialiser writes: then the parser
  // judges the whole, and `reservation` is as it was.
  bool DecodeItemByItem(const grpc::ByteBuffer& bytes, Reservation& reservation, const Stream& stream, size_t max_items,
                        ReceivedBatch* batch);
  // Nothing: the parser refuses it.
  std::optional<absl::Status> DecodeItem(ReceivedMessage message, const Stream& stream,
                                         const std::shared_ptr<google::protobuf::Arena>& arena, ReceivedCall* received);

  const RouteContext* const context_;
  std::atomic<uint64_t> prefixes_{0};
  const std::shared_ptr<CallCache> normalize_ = std::make_shared<CallCache>(4096);
  const std::shared_ptr<CallCache> moments_ = std::make_shared<CallCache>(256);
};

// The pieces of which the above and the reader of streams are made:

// The bytes by which a request is recognised, after `prefix`; empty where they are too many.
std::string KeyOf(const ReceivedMessage& message, std::string_view prefix = {});

// Makes `received` of a call that `cache` knows by its KeyOf and the tensors of `message`. False: it knows none, and
// `message` and `reservation` are as they were. The call borrows from `defaults`, too, unless they are null.
bool Recognise(const std::shared_ptr<CallCache>& cache, std::string_view prefix, ReceivedMessage& message,
               Reservation& reservation, BufferPool* buffers, std::shared_ptr<const void> defaults,
               ReceivedCall* received);

// The place for `call`, decoded from `request` over `defaults` (or null), under `key`; an empty one where another call
// with the same key may differ.
CachedCall PlaceOf(std::shared_ptr<CallCache> cache, std::string key, const v1::NormalizeRequest& request,
                   const std::shared_ptr<const void>& defaults, bool want_timings, const Call& call);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_CALL_DECODER_H_
