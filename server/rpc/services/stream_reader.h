// Reads the messages of one NormalizeStream (defaults, calls, and chunks of calls), and makes items of them, each of
// which is answered.
// In the path: between the stream's messages and its window of calls (normalize_stream.cc).
// Ownership: borrows all pointers, which must outlive the reader.
// Threads: one Take at a time; its Done may run on another thread.
#ifndef NORMD_SERVER_RPC_SERVICES_STREAM_READER_H_
#define NORMD_SERVER_RPC_SERVICES_STREAM_READER_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "normd/v1/normalizer.pb.h"
#include "server/engine/engine.h"
#include "server/rpc/codec/call_decoder.h"
#include "server/rpc/codec/chunk_receiver.h"
#include "server/rpc/codec/chunk_sender.h"
#include "server/rpc/edge/route.h"

namespace normd::rpc {

// One item that is answered: a call, or an error.
struct StreamItem {
  StreamItem(const RouteContext* context, const RpcCall& stream)
      : observation(context->observer, ShortName(stream.method()), stream.origin()) {
    observation.record().is_stream_item = true;
  }

  // Reserves memory for the outputs and scratch of the call: see Call::reserve.
  absl::Status Reserve(int64_t bytes, absl::FunctionRef<CallerName()> caller) {
    // Of the reservation for tensors in chunks, one half is for the tensors and the other for the outputs.
    if (chunked) return chunk_bytes.Resize(std::max(chunk_bytes.bytes(), chunk_bytes.bytes() / 2 + bytes), caller);
    return received.memory->Reserve(bytes, caller);
  }

  uint64_t sequence = 0;
  int64_t request_bytes = 0;  // including its chunks
  // True for a training step of a session, which runs after all earlier items and before all later ones, so that the
  // state changes in the order of the stream.
  bool alone = false;
  // Whether the call's tensors came in chunks, so that its outputs are sent in chunks, too.
  bool chunked = false;
  Reservation chunk_bytes;  // for the chunks of the request, and then for those of the reply
  ReceivedCall received;
  enum class Stage : uint8_t { kReading, kWaits, kRuns, kAnswered };
  Stage stage = Stage::kReading;
  std::shared_ptr<const void> owner;  // the call's owner, kept from the answer until the reply is written
  MessageBytes reply;
  std::optional<ChunkSender> outputs;  // the chunks that follow the reply
  Observation observation;
};

class StreamReader {
 public:
  struct Result {
    std::vector<std::shared_ptr<StreamItem>> items;  // in order; items with an error are already answered
    bool awaits_chunks = false;                      // chunks of a call that is not among the items yet must be read
    std::optional<absl::Status> end;                 // set: read nothing more; the stream ends with this status
  };
  using Done = absl::AnyInvocable<void(Result)>;

  StreamReader(const RouteContext* context, int64_t max_tensor_bytes, Engine* engine, CallDecoder* decoder,
               RpcCall* stream)
      : context_(context),
        max_tensor_bytes_(max_tensor_bytes),
        engine_(engine),
        decoder_(decoder),
        stream_(stream),
        scope_(CallDecoder::ScopeOf(*stream)) {}

  // Whether a message of this size may be read without a reservation: it is likely a chunk, whose bytes were reserved
  // with its call, or will be dropped at once.
  bool MayBeExpectedChunk(int64_t message_bytes) const;
  // Makes the reservation for a message of this size, which may be a call.
  absl::StatusOr<Reservation> Reserve(int64_t message_bytes) const;

  // Takes the next message, or nullopt at the end of the messages, and passes the result to `done`, which must keep the
  // reader alive. `held` is the message's reservation; without one, Take makes it if the message needs one.
  void Take(std::optional<MessageBytes> message, std::optional<Reservation> held, Done done);
  // Answers a message of `message_bytes`, of which `head` is the beginning, with the error `why`.
  Result Refuse(const MessageBytes& head, int64_t message_bytes, const absl::Status& why);

 private:
  using Request = Parsed<v1::StreamRequest>;
  using Item = std::shared_ptr<StreamItem>;

  // A call whose chunks are awaited.
  struct Awaiting {
    Item item;
    Request request;
    ChunkReceiver receiver;
  };

  // Takes the message if it is a call that the cache knows. Otherwise returns false and sets `*key` to the key under
  // which the call may be remembered.
  bool TakeRememberedCall(const MessageBytes& message, Item& item, Reservation& held, std::string* key, Result* result);
  // Takes the message if it is a chunk of the call that awaits chunks, or a chunk to be skipped. Otherwise returns
  // false.
  bool TakeExpectedChunk(const MessageBytes& message, Result* result);
  void TakeRequest(Item item, Request request, std::string key, Result result, Done done);
  void TakeChunk(const Request& request, int64_t message_bytes, Result* result);
  void TakeDefaults(Item item, Request request, Result* result);
  void TakeCall(Item item, Request request, std::string key, Result result, Done done);
  // Reserves memory for the call's tensors in chunks, if any, and announces them to the request's TensorSource.
  absl::StatusOr<std::vector<ChunkedTensor>> Announce(const Request& request, StreamItem* item) const;
  absl::Status DecodeCallOf(const Request& request, std::string key, StreamItem* item);
  // Validates a call, except its bytes, before its chunks are read.
  void AwaitChunks(std::unique_ptr<Awaiting> awaiting, Result result, Done done);
  // Makes an item of the call whose chunks have all come.
  void Complete(Result* result);
  // Fails the call that awaits chunks, if any, because something else came.
  void Abandon(Result* result);
  // Answers `item` with the error.
  void Fail(Item item, const absl::Status& error, Result* result);
  // Ends reading; the stream ends with `status` once everything is answered.
  Result End(const absl::Status& status, Result result);

  const RouteContext* const context_;
  const int64_t max_tensor_bytes_;
  Engine* const engine_;
  CallDecoder* const decoder_;
  RpcCall* const stream_;

  std::optional<Request> defaults_;
  CallScope scope_;  // of the calls to come
  std::unique_ptr<Awaiting> awaiting_;
  // After a failure, chunks are skipped until the next message that is not a chunk.
  bool skips_chunks_ = false;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_STREAM_READER_H_
