#include "server/rpc/services/normalize_stream.h"

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/base/errors.h"
#include "server/base/mutex.h"
#include "server/rpc/codec/encode.h"
#include "server/rpc/edge/rpc_options.h"
#include "server/rpc/edge/status.h"
#include "server/rpc/services/stream_reader.h"

namespace normd::rpc {
namespace {

// How many bytes of requests one stream may have read whose replies are not written yet.
constexpr int64_t kMaxUnwrittenBytes = int64_t{16} << 20;

// One NormalizeStream. Every state change is followed by Advance, which does whatever has become possible.
class CallStream : public std::enable_shared_from_this<CallStream> {
 public:
  CallStream(const RouteContext* context, const StreamLimits& limits, Engine* engine, CallDecoder* decoder,
             std::shared_ptr<RpcCall> stream)
      : context_(context),
        max_calls_(static_cast<size_t>(limits.max_calls)),
        engine_(engine),
        stream_(std::move(stream)),
        reader_(context, limits.max_tensor_bytes, engine, decoder, stream_.get()) {}

  void Start() {
    stream_->WhenOver([self = shared_from_this()](const absl::Status& end) {
      if (!end.ok()) self->Cancel();
    });
    Advance();
  }

 private:
  using Action = absl::AnyInvocable<void()>;

  void Advance();
  // The next possible action. Returns null, and clears `advancing_`, when there is none.
  Action NextAction();
  Action WriteAction() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The first item that may start now, or null.
  StreamItem* Startable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayRead() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Finds the size of the next message, admits it, and reads it.
  void Read(bool awaits_chunk);
  // Reads a message whose size is not known, or that needs no reservation: it may be a chunk of `most_chunk_bytes`, or
  // with 0, it may not come.
  void ReadUnadmitted(int64_t most_chunk_bytes);
  void Admit(int64_t message_bytes);
  void ReadAdmitted(int64_t message_bytes, Reservation held);
  // Drops the coming message, and answers it with the error.
  void Refuse(int64_t message_bytes, const absl::Status& why);
  void Take(std::optional<MessageBytes> message, std::optional<Reservation> held);
  void HandleRead(StreamReader::Result result);
  void Submit(StreamItem* item);
  // Encodes the reply, and prepares the chunks that follow it.
  absl::Status Encode(absl::StatusOr<CallReply> result, StreamItem* item);
  void Write(const std::shared_ptr<StreamItem>& item, MessageBytes message);
  void HandleWritten(const std::shared_ptr<StreamItem>& item);
  void Cancel();

  const RouteContext* const context_;
  const size_t max_calls_;
  Engine* const engine_;
  const std::shared_ptr<RpcCall> stream_;

  StreamReader reader_;  // used only by the Read in progress

  Mutex mu_;
  bool advancing_ ABSL_GUARDED_BY(mu_) = false;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool awaits_chunks_ ABSL_GUARDED_BY(mu_) = false;
  bool read_all_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mu_);
  std::deque<std::shared_ptr<StreamItem>> items_ ABSL_GUARDED_BY(mu_);  // in order of arrival
  size_t running_ ABSL_GUARDED_BY(mu_) = 0;
  bool running_alone_ ABSL_GUARDED_BY(mu_) = false;
  size_t unwritten_ ABSL_GUARDED_BY(mu_) = 0;
  bool sending_chunks_ ABSL_GUARDED_BY(mu_) = false;  // of one item; later items wait
  int64_t unwritten_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // of requests whose replies are not written yet
};

void CallStream::Advance() {
  {
    MutexLock lock(mu_);
    if (advancing_) return;  // the thread that is advancing will see the change
    advancing_ = true;
  }
  while (Action action = NextAction()) action();
}

CallStream::Action CallStream::NextAction() {
  MutexLock lock(mu_);
  if (!sending_chunks_ && !items_.empty() && items_.front()->stage == StreamItem::Stage::kAnswered)
    return WriteAction();
  if (StreamItem* const item = Startable(); item != nullptr) {
    ++running_;
    running_alone_ = item->alone;
    item->stage = StreamItem::Stage::kRuns;
    return [this, item] { Submit(item); };
  }
  if (MayRead()) {
    reading_ = true;
    return [this, awaits_chunk = awaits_chunks_] { Read(awaits_chunk); };
  }
  if (read_all_ && items_.empty() && !sending_chunks_ && !finished_) {
    finished_ = true;
    return [this, end = end_] { stream_->Finish(end); };
  }
  advancing_ = false;
  return nullptr;
}

bool CallStream::MayRead() const {
  if (reading_ || read_all_) return false;
  // The window bounds calls and bytes, but always admits one call. A call whose chunks are awaited has its reservation
  // and is not among the items yet, so its chunks may be read although the window is full.
  const size_t calls = items_.size() + unwritten_;
  return awaits_chunks_ ? calls <= max_calls_ : calls < max_calls_ && unwritten_bytes_ < kMaxUnwrittenBytes;
}

CallStream::Action CallStream::WriteAction() {
  std::shared_ptr<StreamItem> item = std::move(items_.front());
  items_.pop_front();
  ++unwritten_;
  sending_chunks_ = item->outputs.has_value();
  return [this, item = std::move(item)] { Write(item, std::move(item->reply)); };
}

void CallStream::Write(const std::shared_ptr<StreamItem>& item, MessageBytes message) {
  stream_->Write(std::move(message), [self = shared_from_this(), item] { self->HandleWritten(item); });
}

void CallStream::HandleWritten(const std::shared_ptr<StreamItem>& item) {
  // A chunk is sent when the one before is written, so that one alone is held for a caller who does not read.
  if (item->outputs.has_value() && !stream_->cancelled()) {
    if (std::optional<MessageBytes> chunk = item->outputs->Next()) return Write(item, *std::move(chunk));
  }
  item->observation.Written();
  item->chunk_bytes = Reservation();
  item->owner.reset();
  {
    MutexLock lock(mu_);
    --unwritten_;
    unwritten_bytes_ -= item->request_bytes;
    if (item->outputs.has_value()) sending_chunks_ = false;
  }
  Advance();
}

StreamItem* CallStream::Startable() {
  if (running_alone_) return nullptr;
  for (const std::shared_ptr<StreamItem>& item : items_) {
    if (item->stage != StreamItem::Stage::kWaits) continue;
    return item->alone && running_ > 0 ? nullptr : item.get();
  }
  return nullptr;
}

void CallStream::Read(bool awaits_chunk) {
  // A call may come at any time; chunks must make progress, because memory is reserved for them.
  const int64_t most_chunk_bytes = awaits_chunk ? kMaxChunkBytes : 0;
  stream_->ReadSize(
      [self = shared_from_this(), most_chunk_bytes](std::optional<int64_t> message_bytes) {
        if (!message_bytes.has_value() || self->reader_.MayBeExpectedChunk(*message_bytes)) {
          return self->ReadUnadmitted(most_chunk_bytes);
        }
        self->Admit(*message_bytes);
      },
      most_chunk_bytes);
}

void CallStream::ReadUnadmitted(int64_t most_chunk_bytes) {
  stream_->Read([self = shared_from_this()](
                    std::optional<MessageBytes> message) { self->Take(std::move(message), std::nullopt); },
                most_chunk_bytes, /*reserved=*/true);
}

void CallStream::Admit(int64_t message_bytes) {
  WaitForRoom(*context_, kBytesHeldPerMessageByte * message_bytes, message_bytes,
              [self = shared_from_this(), message_bytes] {
                absl::StatusOr<Reservation> held = self->reader_.Reserve(message_bytes);
                if (!held.ok()) return self->Refuse(message_bytes, held.status());
                self->ReadAdmitted(message_bytes, *std::move(held));
              });
}

void CallStream::ReadAdmitted(int64_t message_bytes, Reservation held) {
  stream_->Read([self = shared_from_this(), held = std::move(held)](
                    std::optional<MessageBytes> message) mutable { self->Take(std::move(message), std::move(held)); },
                message_bytes);
}

void CallStream::Refuse(int64_t message_bytes, const absl::Status& why) {
  stream_->ReadHead(
      [self = shared_from_this(), message_bytes, why](std::optional<MessageBytes> head) {
        if (!head.has_value()) return self->Take(std::nullopt, std::nullopt);
        self->HandleRead(self->reader_.Refuse(*head, message_bytes, why));
      },
      message_bytes);
}

void CallStream::Take(std::optional<MessageBytes> message, std::optional<Reservation> held) {
  const int64_t size_bytes = message.has_value() ? message->size_bytes() : 0;
  // The next Read starts after the result of this one, so that messages stay in order on whatever thread they are taken
  // apart.
  RunIfLarge(*context_, size_bytes,
             [self = shared_from_this(), message = std::move(message), held = std::move(held)]() mutable {
               self->reader_.Take(std::move(message), std::move(held),
                                  [self](StreamReader::Result result) { self->HandleRead(std::move(result)); });
             });
}

void CallStream::HandleRead(StreamReader::Result result) {
  {
    MutexLock lock(mu_);
    reading_ = false;
    awaits_chunks_ = result.awaits_chunks;
    for (std::shared_ptr<StreamItem>& item : result.items) {
      unwritten_bytes_ += item->request_bytes;
      items_.push_back(std::move(item));
    }
    if (result.end.has_value()) {
      read_all_ = true;
      end_ = *std::move(result.end);
    }
  }
  Advance();
}

void CallStream::Submit(StreamItem* item) {
  Call& call = item->received.call;
  AskFor(stream_, item->received.tensors, /*alone=*/true, &call);
  call.reserve = [item, stream = stream_.get()](int64_t bytes) {
    return item->Reserve(bytes, [stream] { return NameOf(*stream); });
  };
  std::shared_ptr<const void> owner = call.owner;
  engine_->Submit(std::move(call), [self = shared_from_this(), item,
                                    owner = std::move(owner)](absl::StatusOr<CallReply> result) mutable {
    const absl::Status status = self->Encode(std::move(result), item);
    // The received chunks are no longer needed and are released now, because sending the reply may take long. The
    // memory of other requests is kept with its reservation until the reply is written.
    if (!item->chunked) item->owner = std::move(owner);
    owner.reset();
    item->observation.Finish(status,
                             item->reply.size_bytes() + (item->outputs.has_value() ? item->outputs->size_bytes() : 0));
    {
      MutexLock lock(self->mu_);
      item->stage = StreamItem::Stage::kAnswered;
      --self->running_;
      self->running_alone_ = false;
    }
    self->Advance();
  });
}

absl::Status CallStream::Encode(absl::StatusOr<CallReply> result, StreamItem* item) {
  if (!result.ok()) {
    absl::Status status = PrefixField(result.status(), "call.");
    item->chunk_bytes = Reservation();
    item->reply = EncodeStreamError(item->sequence, ToMessage(status)).ToBytes();
    return status;
  }
  std::vector<Buffer> outputs;
  WireBody response = item->received.cached.EncodeResponse(*std::move(result), item->received.want_timings,
                                                           item->observation, item->chunked ? &outputs : nullptr);
  item->reply = EncodeStreamReply(item->sequence, std::move(response)).ToBytes();
  if (!item->chunked) return absl::OkStatus();
  item->outputs.emplace(item->sequence, std::move(outputs));
  // Shrinking a reservation always succeeds. (Outputs are larger than the reservation only where few elements have many
  // statistics.)
  item->chunk_bytes.Resize(item->outputs->size_bytes(), [this] { return NameOf(*stream_); }).IgnoreError();
  return absl::OkStatus();
}

void CallStream::Cancel() {
  std::vector<std::pair<ReceivedCall, Observation>> dropped;  // finished after the lock is released
  {
    MutexLock lock(mu_);
    for (const std::shared_ptr<StreamItem>& item : items_) {
      if (item->stage != StreamItem::Stage::kWaits) continue;
      dropped.emplace_back(std::exchange(item->received, {}), std::move(item->observation));
      item->stage = StreamItem::Stage::kAnswered;
    }
  }
  for (auto& [call, observation] : dropped) observation.Finish(absl::CancelledError("the caller went away"), 0);
  Advance();
}

}  // namespace

Route NormalizeStreamRoute(const RouteContext* context, std::string path, const StreamLimits& limits, Engine* engine,
                           CallDecoder* decoder) {
  auto start = [context, limits, engine, decoder](std::shared_ptr<RpcCall> stream) {
    // A full server refuses the stream here, before anything is read.
    const absl::StatusOr<Reservation> open = context->admission->Reserve(1, [&stream] { return NameOf(*stream); });
    if (!open.ok()) return Refuse(*context, std::move(stream), open.status());
    std::make_shared<CallStream>(context, limits, engine, decoder, std::move(stream))->Start();
  };
  return {std::move(path), std::move(start)};
}

}  // namespace normd::rpc
