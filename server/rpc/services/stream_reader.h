// What comes in on one NormalizeStream, message by message: defaults, calls, and the chunks of calls, made into items
// that are answered.
// In the path: between the stream's messages and its window of calls (normalize_stream.cc).
// Threads: one Take at a time; its Done may run on another thread. Everything is borrowed and must outlive the reader.
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
#include "server/rpc/transport/route.h"

namespace normd::rpc {

// One message that is answered: a call, or what was wrong with one.
struct StreamItem {
  StreamItem(const RouteContext* context, const Stream& stream)
      : observation(context->observer, ShortName(stream.method())) {}

  // Room for what its call makes, see Call::hold.
  absl::Status Reserve(int64_t bytes, absl::FunctionRef<std::string()> caller) {
    // Of tensors in chunks, half of the room is theirs and half is for what goes back.
    if (chunked) return chunk_bytes.Resize(std::max(chunk_bytes.bytes(), chunk_bytes.bytes() / 2 + bytes), caller);
    return received.memory->Reserve(bytes, caller);
  }

  uint64_t sequence = 0;
  int64_t request_bytes = 0;  // its chunks included
  // A training step of a session runs after everything before it and before everything after it, so that the state
  // moves in the order of the stream.
  bool alone = false;
  // Its tensors came in chunks, and go back so.
  bool chunked = false;
  Reservation chunk_bytes;  // for the chunks, and then for those of the reply
  ReceivedCall received;
  enum class Stage : uint8_t { kReading, kWaits, kRuns, kAnswered };
  Stage stage = Stage::kReading;
  std::shared_ptr<const void> owner;  // of the call; once it is answered, until the answer has gone
  grpc::ByteBuffer reply;
  std::optional<ChunkSender> outputs;  // what follows the reply
  Observation observation;
};

class StreamReader {
 public:
  struct Result {
    std::vector<std::shared_ptr<StreamItem>> items;  // in order; those with an error are answered
    bool awaits_chunks = false;                      // of a call that is not among the items yet: read on
    std::optional<grpc::Status> end;                 // nothing more is to be read, and the stream ends so
  };
  using Done = absl::AnyInvocable<void(Result)>;

  StreamReader(const RouteContext* context, int64_t max_tensor_bytes, Engine* engine, CallDecoder* decoder,
               Stream* stream)
      : context_(context), max_tensor_bytes_(max_tensor_bytes), engine_(engine), decoder_(decoder), stream_(stream) {}

  // The next message, or nothing where there is none. `done` must keep the reader alive.
  void Take(std::optional<grpc::ByteBuffer> message, Done done);

 private:
  using Request = Parsed<v1::StreamRequest>;
  using Item = std::shared_ptr<StreamItem>;

  // A call whose chunks are awaited.
  struct Awaiting {
    Item item;
    Request request;
    ChunkReceiver receiver;
  };

  // Whether the message was a call that is known. Else `key` is what it may become known by.
  bool TakeRememberedCall(const grpc::ByteBuffer& message, Item& item, Reservation& held, std::string* key,
                          Result* result);
  // Whether the message was a chunk of the call that awaits them, or one that nobody does any more.
  bool TakeExpectedChunk(const grpc::ByteBuffer& message, Result* result);
  void TakeRequest(Item item, Request request, std::string key, Result result, Done done);
  void TakeChunk(const Request& request, int64_t message_bytes, Result* result);
  void TakeDefaults(Item item, Request request, Result* result);
  void TakeCall(Item item, Request request, std::string key, Result result, Done done);
  // Makes room for the tensors that come in chunks.
  absl::StatusOr<std::vector<ChunkedTensor>> Announce(const Request& request, StreamItem* item) const;
  absl::Status DecodeCallOf(const Request& request, std::string key, StreamItem* item);
  // Judges a call, all but its bytes, before they are sent for.
  void AwaitChunks(std::unique_ptr<Awaiting> awaiting, Result result, Done done);
  void Complete(Result* result);
  // Something else came instead of the rest of a call.
  void Abandon(Result* result);
  void Fail(Item item, const absl::Status& error, Result* result);
  // Nothing more is read: the stream ends so once everything is answered.
  Result End(const absl::Status& status, Result result);

  const RouteContext* const context_;
  const int64_t max_tensor_bytes_;
  Engine* const engine_;
  CallDecoder* const decoder_;
  Stream* const stream_;

  std::optional<Request> defaults_;
  std::string under_defaults_;  // before the keys of calls; empty where there are no defaults
  std::unique_ptr<Awaiting> awaiting_;
  // Something failed: chunks that were on their way are dropped, up to the next message that is none.
  bool skips_chunks_ = false;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_STREAM_READER_H_
