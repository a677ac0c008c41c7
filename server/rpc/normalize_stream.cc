#include "server/rpc/normalize_stream.h"

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "kernels/errors.h"
#include "normd/v1/normalizer.pb.h"
#include "server/base/errors.h"
#include "server/base/mutex.h"
#include "server/rpc/decode_call.h"
#include "server/rpc/encode.h"
#include "server/rpc/status.h"

namespace normd::rpc {
namespace {

// One message that is answered: a call, or what was wrong with one.
struct Item {
  explicit Item(const RouteContext* context, const Stream& stream)
      : observation(context->observer, ShortName(stream.method())) {}

  uint64_t sequence = 0;
  bool want_timings = false;
  // A training step of a session runs after everything before it and before everything after it, so that the state
  // moves in the order of the stream.
  bool alone = false;
  std::optional<Call> call;  // until it starts
  bool answered = false;
  grpc::ByteBuffer reply;
  Observation observation;
};

Call TakeCall(Item& item) {
  Call call = *std::move(item.call);
  item.call.reset();
  return call;
}

bool IsStep(const Call& call) {
  return call.mode == Mode::kTraining && std::holds_alternative<SessionTarget>(call.target);
}

// One NormalizeStream. All state changes are followed by Advance, which does what has become possible.
class CallStream : public std::enable_shared_from_this<CallStream> {
 public:
  CallStream(const RouteContext* context, size_t max_calls, Engine* engine, std::shared_ptr<Stream> stream)
      : context_(context), max_calls_(max_calls), engine_(engine), stream_(std::move(stream)) {}

  void Start() {
    stream_->OnCancelled([self = shared_from_this()] { self->Cancel(); });
    Advance();
  }

 private:
  using Action = absl::AnyInvocable<void()>;

  void Advance();
  // What is possible now; empty when nothing is, and then nobody is advancing any more.
  Action NextAction();
  Action WriteAction() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The first item that may start now, or null.
  Item* Startable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void HandleMessage(std::optional<grpc::ByteBuffer> message);
  void Decode(std::unique_ptr<Item> item, Parsed<v1::StreamRequest> request);
  void SetDefaults(std::unique_ptr<Item> item, Parsed<v1::StreamRequest> request);
  void Add(std::unique_ptr<Item> item);
  void AddError(std::unique_ptr<Item> item, const absl::Status& error);
  void Submit(Item* item, Call call);
  void EndReading(grpc::Status status);
  void Cancel();

  const RouteContext* const context_;
  const size_t max_calls_;
  Engine* const engine_;
  const std::shared_ptr<Stream> stream_;

  std::optional<Parsed<v1::StreamRequest>> defaults_;  // touched by the one reader alone

  Mutex mu_;
  bool advancing_ ABSL_GUARDED_BY(mu_) = false;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool read_all_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status end_ ABSL_GUARDED_BY(mu_);
  std::deque<std::unique_ptr<Item>> items_ ABSL_GUARDED_BY(mu_);  // in order of arrival, the oldest first
  size_t running_ ABSL_GUARDED_BY(mu_) = 0;
  bool running_alone_ ABSL_GUARDED_BY(mu_) = false;
  size_t unwritten_ ABSL_GUARDED_BY(mu_) = 0;
};

void CallStream::Advance() {
  {
    MutexLock lock(mu_);
    if (advancing_) return;  // whoever is will see the change
    advancing_ = true;
  }
  while (Action action = NextAction()) action();
}

CallStream::Action CallStream::NextAction() {
  MutexLock lock(mu_);
  if (!items_.empty() && items_.front()->answered) return WriteAction();
  if (Item* const item = Startable(); item != nullptr) {
    ++running_;
    running_alone_ = item->alone;
    return [this, item, call = TakeCall(*item)]() mutable { Submit(item, std::move(call)); };
  }
  if (!reading_ && !read_all_ && items_.size() + unwritten_ < max_calls_) {
    reading_ = true;
    return [this] {
      stream_->Read([self = shared_from_this()](std::optional<grpc::ByteBuffer> message) {
        self->HandleMessage(std::move(message));
      });
    };
  }
  if (read_all_ && items_.empty() && !finished_) {
    finished_ = true;
    return [this, end = end_] { stream_->Finish(end); };
  }
  advancing_ = false;
  return nullptr;
}

CallStream::Action CallStream::WriteAction() {
  ++unwritten_;
  grpc::ByteBuffer reply = std::move(items_.front()->reply);
  items_.pop_front();
  return [this, reply = std::move(reply)]() mutable {
    stream_->Write(std::move(reply), [self = shared_from_this()] {
      {
        MutexLock lock(self->mu_);
        --self->unwritten_;
      }
      self->Advance();
    });
  };
}

Item* CallStream::Startable() {
  if (running_alone_) return nullptr;
  for (const std::unique_ptr<Item>& item : items_) {
    if (!item->call.has_value()) continue;
    return item->alone && running_ > 0 ? nullptr : item.get();
  }
  return nullptr;
}

void CallStream::HandleMessage(std::optional<grpc::ByteBuffer> message) {
  if (!message.has_value()) return EndReading(grpc::Status::OK);
  auto item = std::make_unique<Item>(context_, *stream_);
  item->observation.record().request_bytes = static_cast<int64_t>(message->Length());
  absl::StatusOr<Parsed<v1::StreamRequest>> request = Parse<v1::StreamRequest>(*message, *context_->admission);
  if (request.ok()) return Decode(std::move(item), *std::move(request));
  if (absl::IsResourceExhausted(request.status())) {
    item->sequence = FindVarintField(*message, v1::StreamRequest::kSequenceFieldNumber);
    return AddError(std::move(item), request.status());
  }
  item->observation.Finish(request.status(), 0);
  EndReading(ToGrpcStatus(request.status()));
}

void CallStream::Decode(std::unique_ptr<Item> item, Parsed<v1::StreamRequest> request) {
  item->sequence = request->sequence();
  switch (request->item_case()) {
    case v1::StreamRequest::kDefaults:
      return SetDefaults(std::move(item), std::move(request));
    case v1::StreamRequest::kChunk:
      return AddError(std::move(item), UnimplementedError("chunk", "a chunked tensor"));
    case v1::StreamRequest::kCall:
      break;
    case v1::StreamRequest::ITEM_NOT_SET: {
      const absl::Status error = MissingError("item", "one of defaults and call");
      item->observation.Finish(error, 0);
      return EndReading(ToGrpcStatus(error));
    }
  }
  const v1::NormalizeRequest* const defaults = defaults_ ? &(*defaults_)->defaults().request() : nullptr;
  std::shared_ptr<const void> owner = request.owner;
  if (defaults_)
    owner = std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(request.owner,
                                                                                                  defaults_->owner);
  absl::StatusOr<Call> call = DecodeCall(request->call(), defaults, std::move(owner));
  item->observation.DecodeDone();
  item->want_timings = request->call().want_timings() || (defaults != nullptr && defaults->want_timings());
  if (!call.ok()) return AddError(std::move(item), PrefixField(call.status(), "call."));
  item->alone = IsStep(*call);
  item->call = *std::move(call);
  Add(std::move(item));
}

void CallStream::SetDefaults(std::unique_ptr<Item> item, Parsed<v1::StreamRequest> request) {
  if (const absl::Status status = CheckDefaults(request->defaults().request()); !status.ok()) {
    return AddError(std::move(item), PrefixField(status, "defaults.request."));
  }
  defaults_ = std::move(request);
  {
    MutexLock lock(mu_);
    reading_ = false;
  }
  Advance();
}

void CallStream::Add(std::unique_ptr<Item> item) {
  {
    MutexLock lock(mu_);
    reading_ = false;
    items_.push_back(std::move(item));
  }
  Advance();
}

void CallStream::AddError(std::unique_ptr<Item> item, const absl::Status& error) {
  item->reply = EncodeStreamError(item->sequence, ToMessage(error)).ToByteBuffer();
  item->observation.Finish(error, static_cast<int64_t>(item->reply.Length()));
  item->answered = true;
  Add(std::move(item));
}

void CallStream::Submit(Item* item, Call call) {
  call.cancelled = [stream = stream_] { return stream->cancelled(); };
  engine_->Submit(std::move(call), [self = shared_from_this(), item](absl::StatusOr<CallReply> result) {
    WireBody body;
    const absl::Status status = result.ok() ? absl::OkStatus() : PrefixField(result.status(), "call.");
    if (status.ok()) {
      body = EncodeStreamReply(item->sequence,
                               EncodeNormalizeResponse(*std::move(result), item->want_timings, item->observation));
    } else {
      body = EncodeStreamError(item->sequence, ToMessage(status));
    }
    item->reply = std::move(body).ToByteBuffer();
    item->observation.Finish(status, static_cast<int64_t>(item->reply.Length()));
    {
      MutexLock lock(self->mu_);
      item->answered = true;
      --self->running_;
      self->running_alone_ = false;
    }
    self->Advance();
  });
}

void CallStream::EndReading(grpc::Status status) {
  {
    MutexLock lock(mu_);
    reading_ = false;
    read_all_ = true;
    end_ = std::move(status);
  }
  Advance();
}

void CallStream::Cancel() {
  std::deque<std::pair<Call, Observation>> dropped;  // ended without the lock
  {
    MutexLock lock(mu_);
    for (const std::unique_ptr<Item>& item : items_) {
      if (!item->call.has_value()) continue;
      dropped.emplace_back(TakeCall(*item), std::move(item->observation));
      item->answered = true;
    }
  }
  for (auto& [call, observation] : dropped) observation.Finish(absl::CancelledError("the caller went away"), 0);
  Advance();
}

}  // namespace

Route NormalizeStreamRoute(const RouteContext* context, std::string path, int max_calls, Engine* engine) {
  auto start = [context, max_calls, engine](std::shared_ptr<Stream> stream) {
    if (const absl::Status open = context->admission->CheckOpen(); !open.ok()) {
      return Reply(stream, Observation(context->observer, ShortName(stream->method())))(open);
    }
    std::make_shared<CallStream>(context, static_cast<size_t>(max_calls), engine, std::move(stream))->Start();
  };
  return {std::move(path), std::move(start)};
}

}  // namespace normd::rpc
