#include "server/rpc/services/stream_reader.h"

#include <utility>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "proto/wire/split.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"
#include "server/rpc/codec/call_memory.h"
#include "server/rpc/codec/decode_call.h"
#include "server/rpc/codec/encode.h"
#include "server/rpc/edge/rpc_options.h"
#include "server/rpc/edge/status.h"

namespace normd::rpc {
namespace {

// The fields of a message with a call: the sequence and the call itself.
constexpr size_t kFieldsOfCall = 2;
// The largest message that can be a chunk, with its data and its other fields.
constexpr int64_t kMaxChunkMessageBytes = kMaxChunkBytes + 1024;

bool IsStep(const Call& call) {
  return call.mode == Mode::kTraining && std::holds_alternative<SessionTarget>(call.target);
}

int64_t BytesHeld(const std::vector<ChunkedTensor>& tensors) {
  int64_t bytes = 0;
  for (const ChunkedTensor& tensor : tensors) bytes += kBytesHeldPerMessageByte * tensor.size_bytes;
  return bytes;
}

// A copy of the call that validates everything that can be checked before the call's turn, without its bytes.
Call Trial(const Call& call) {
  Call trial = call;
  trial.validate_only = true;
  trial.expected_version.reset();  // earlier calls may still change the version
  return trial;
}

}  // namespace

bool StreamReader::MayBeExpectedChunk(int64_t message_bytes) const {
  return (awaiting_ != nullptr || skips_chunks_) && message_bytes <= kMaxChunkMessageBytes;
}

absl::StatusOr<Reservation> StreamReader::Reserve(int64_t message_bytes) const {
  return context_->admission->ReserveItem(kBytesHeldPerMessageByte * message_bytes,
                                          [this] { return NameOf(*stream_); });
}

StreamReader::Result StreamReader::Refuse(const MessageBytes& head, int64_t message_bytes, const absl::Status& why) {
  Result result;
  Abandon(&result);
  auto item = std::make_shared<StreamItem>(context_, *stream_);
  item->request_bytes = message_bytes;
  item->observation.record().request_bytes = message_bytes;
  item->sequence = FindVarintField(head, v1::StreamRequest::kSequenceFieldNumber);
  Fail(std::move(item), why, &result);
  return result;
}

void StreamReader::Take(std::optional<MessageBytes> message, std::optional<Reservation> held, Done done) {
  Result result;
  if (!message.has_value()) return done(End(absl::OkStatus(), std::move(result)));
  if (TakeExpectedChunk(*message, &result)) return done(std::move(result));
  if (!held.has_value()) {
    absl::StatusOr<Reservation> room = Reserve(message->size_bytes());
    if (!room.ok()) return done(Refuse(*message, message->size_bytes(), room.status()));
    held = *std::move(room);
  }
  auto item = std::make_shared<StreamItem>(context_, *stream_);
  item->request_bytes = message->size_bytes();
  item->observation.record().request_bytes = item->request_bytes;
  std::string key;
  if (TakeRememberedCall(*message, item, *held, &key, &result)) return done(std::move(result));
  absl::StatusOr<Request> request = Parse<v1::StreamRequest>(*message, *std::move(held));
  if (request.ok()) {
    return TakeRequest(std::move(item), *std::move(request), std::move(key), std::move(result), std::move(done));
  }
  item->observation.Finish(request.status(), 0);
  done(End(request.status(), std::move(result)));
}

bool StreamReader::TakeRememberedCall(const MessageBytes& message, Item& item, Reservation& held, std::string* key,
                                      Result* result) {
  ReceivedBytes bytes = TakeBytes(message);
  const std::optional<std::vector<wire::TopField>> fields = wire::TopFields(bytes.segments(), kFieldsOfCall);
  if (!fields.has_value() || fields->empty()) return false;
  const wire::TopField& call = fields->back();
  if (call.number != v1::StreamRequest::kCallFieldNumber || call.type != wire::WireType::kDelimited) return false;
  uint64_t sequence = 0;
  if (fields->size() == kFieldsOfCall) {
    const wire::TopField& first = fields->front();
    if (first.number != v1::StreamRequest::kSequenceFieldNumber || first.type != wire::WireType::kVarint) return false;
    sequence = first.varint;
  }
  ReceivedMessage part = ReceiveOnly(std::move(bytes), call.bytes, wire::kNormalizeRequest);
  if (!Recognise(decoder_->cache(), scope_, part, held, context_->buffers, &item->received)) {
    *key = KeyOf(part, scope_);
    return false;
  }
  Abandon(result);
  skips_chunks_ = false;
  item->sequence = sequence;
  item->observation.DecodeDone();
  item->alone = IsStep(item->received.call);
  item->stage = StreamItem::Stage::kWaits;
  result->items.push_back(std::move(item));
  return true;
}

void StreamReader::TakeRequest(Item item, Request request, std::string key, Result result, Done done) {
  if (request->has_chunk()) {
    TakeChunk(request, item->request_bytes, &result);
    return done(std::move(result));
  }
  Abandon(&result);
  skips_chunks_ = false;
  item->sequence = request->sequence();
  if (request->has_call()) {
    return TakeCall(std::move(item), std::move(request), std::move(key), std::move(result), std::move(done));
  }
  if (request->has_defaults()) {
    TakeDefaults(std::move(item), std::move(request), &result);
    return done(std::move(result));
  }
  const absl::Status error = MissingError("item", "one of defaults, chunk and call");
  item->observation.Finish(error, 0);
  done(End(error, std::move(result)));
}

bool StreamReader::TakeExpectedChunk(const MessageBytes& message, Result* result) {
  if (!MayBeExpectedChunk(message.size_bytes())) return false;
  // The chunk needs no reservation: its bytes were reserved with the call, or are dropped at once.
  const absl::StatusOr<Request> request = Parse<v1::StreamRequest>(message, Reservation());
  if (!request.ok() || !(*request)->has_chunk()) return false;
  TakeChunk(*request, message.size_bytes(), result);
  return true;
}

void StreamReader::TakeChunk(const Request& request, int64_t message_bytes, Result* result) {
  if (awaiting_ == nullptr) {
    if (skips_chunks_) return;
    auto item = std::make_shared<StreamItem>(context_, *stream_);
    item->sequence = request->sequence();
    item->observation.record().request_bytes = message_bytes;
    return Fail(std::move(item), NotAllowedError("chunk", "no call of this stream awaits chunks"), result);
  }
  StreamItem& item = *awaiting_->item;
  item.request_bytes += message_bytes;
  item.observation.record().request_bytes = item.request_bytes;
  if (const absl::Status status = awaiting_->receiver.Take(*request, *request.tensors); !status.ok()) {
    Item failed = std::move(awaiting_->item);
    awaiting_.reset();
    return Fail(std::move(failed), status, result);
  }
  result->awaits_chunks = !awaiting_->receiver.complete();
  if (!result->awaits_chunks) Complete(result);
}

void StreamReader::TakeDefaults(Item item, Request request, Result* result) {
  request.tensors->SetBuffers(context_->buffers);
  request.tensors->SetSharedMemory({nullptr, "ranges of shared memory come with each call"});
  const absl::Status status = CheckDefaults({&request->defaults().request(), request.tensors});
  if (!status.ok()) return Fail(std::move(item), PrefixField(status, "defaults.request."), result);
  defaults_ = std::move(request);
  scope_ = decoder_->NewScope(*stream_, defaults_->owner);
}

void StreamReader::TakeCall(Item item, Request request, std::string key, Result result, Done done) {
  const absl::StatusOr<std::vector<ChunkedTensor>> chunked = Announce(request, item.get());
  const absl::Status status = chunked.ok() ? DecodeCallOf(request, std::move(key), item.get()) : chunked.status();
  if (!status.ok()) {
    Fail(std::move(item), status, &result);
  } else if (!chunked->empty()) {
    ChunkReceiver receiver(request->sequence(), *chunked, context_->buffers);
    return AwaitChunks(std::make_unique<Awaiting>(Awaiting{std::move(item), std::move(request), std::move(receiver)}),
                       std::move(result), std::move(done));
  } else {
    item->stage = StreamItem::Stage::kWaits;
    result.items.push_back(std::move(item));
  }
  done(std::move(result));
}

absl::StatusOr<std::vector<ChunkedTensor>> StreamReader::Announce(const Request& request, StreamItem* item) const {
  absl::StatusOr<std::vector<ChunkedTensor>> tensors = FindChunkedTensors(request->call(), max_tensor_bytes_);
  if (!tensors.ok()) return PrefixField(tensors.status(), "call.");
  if (tensors->empty()) return tensors;
  const int64_t bytes = BytesHeld(*tensors);
  if (bytes > context_->admission->limits().max_caller_bytes) {
    // Such a call can never fit, so the error is not one that tells the caller to retry.
    const std::string held = Concat(bytes, " bytes with its residual and their outputs");
    const std::string limit = Concat("at most ", context_->admission->limits().max_caller_bytes);
    return MakeError(ServerReason("TENSOR_TOO_LARGE"), {.field = "call.x.chunked", .value = held, .limit = limit},
                     Concat("has ", held, "; it must have ", limit, " (set by --max_in_flight_bytes of the server)"));
  }
  NORMD_ASSIGN_OR_RETURN(item->chunk_bytes, context_->admission->Reserve(bytes, [this] { return NameOf(*stream_); }));
  for (const ChunkedTensor& tensor : *tensors) request.tensors->AwaitChunked(tensor.field, tensor.size_bytes);
  return tensors;
}

absl::Status StreamReader::DecodeCallOf(const Request& request, std::string key, StreamItem* item) {
  GiveMemory(*context_, *stream_, request.tensors);
  WithTensors<v1::NormalizeRequest> defaults;
  std::shared_ptr<const void> owner = request.owner;
  if (defaults_) {
    defaults = {&(*defaults_)->defaults().request(), defaults_->tensors};
    owner = std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(request.owner,
                                                                                                  defaults_->owner);
  }
  absl::StatusOr<Call> call = DecodeCall({&request->call(), request.tensors}, defaults, scope_.tenant);
  item->observation.DecodeDone();
  if (!call.ok()) return PrefixField(call.status(), "call.");
  ReceivedCall& received = item->received;
  received.want_timings = request->call().want_timings() || (defaults_ && defaults.message->want_timings());
  received.tensors = request.tensors;
  received.memory = request.memory;
  received.cached = PlaceOf(decoder_->cache(), std::move(key), request->call(), scope_, received.want_timings, *call);
  received.call = *std::move(call);
  received.call.owner = std::move(owner);
  item->alone = IsStep(received.call);
  return absl::OkStatus();
}

void StreamReader::AwaitChunks(std::unique_ptr<Awaiting> awaiting, Result result, Done done) {
  Call trial = Trial(awaiting->item->received.call);
  // The callback keeps the stream, and so the server, alive while the engine has the call.
  trial.cancelled = [stream = stream_->shared_from_this()] { return stream->cancelled(); };
  engine_->Submit(std::move(trial), [this, awaiting = std::move(awaiting), result = std::move(result),
                                     done = std::move(done)](absl::StatusOr<CallReply> judged) mutable {
    if (judged.ok()) {
      awaiting->item->chunked = true;
      awaiting_ = std::move(awaiting);
      result.awaits_chunks = true;
    } else {
      Fail(std::move(awaiting->item), PrefixField(judged.status(), "call."), &result);
    }
    done(std::move(result));
  });
}

void StreamReader::Complete(Result* result) {
  const std::unique_ptr<Awaiting> whole = std::move(awaiting_);
  StreamItem& item = *whole->item;
  whole->receiver.MoveTo(item.received.tensors);
  const absl::Status status = TakeChunkedTensors({&whole->request->call(), item.received.tensors}, &item.received.call);
  item.observation.DecodeDone();
  if (!status.ok()) return Fail(std::move(whole->item), PrefixField(status, "call."), result);
  item.stage = StreamItem::Stage::kWaits;
  result->items.push_back(std::move(whole->item));
}

void StreamReader::Abandon(Result* result) {
  if (awaiting_ == nullptr) return;
  const std::unique_ptr<Awaiting> part = std::move(awaiting_);
  Fail(std::move(part->item), part->receiver.IncompleteError(), result);
}

void StreamReader::Fail(Item item, const absl::Status& error, Result* result) {
  skips_chunks_ = true;
  item->received = {};
  item->chunk_bytes = Reservation();
  item->reply = EncodeStreamError(item->sequence, ToMessage(error)).ToBytes();
  item->observation.Finish(error, item->reply.size_bytes());
  item->stage = StreamItem::Stage::kAnswered;
  result->items.push_back(std::move(item));
}

StreamReader::Result StreamReader::End(const absl::Status& status, Result result) {
  Abandon(&result);
  result.end = status;
  return result;
}

}  // namespace normd::rpc
