#include "server/rpc/services/session_transfer.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "kernels/methods.h"
#include "normd/v1/sessions.pb.h"
#include "proto/wire/crc32c.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"
#include "server/rpc/codec/session_messages.h"
#include "server/rpc/codec/session_name.h"
#include "server/rpc/edge/rpc_options.h"
#include "server/rpc/edge/status.h"
#include "server/rpc/services/handlers.h"
#include "server/rpc/services/method_names.h"

namespace normd::rpc {
namespace {

// Bounds a record by the limit on parameters. A record has parameters, state and step ids, and the state of a session
// within the limits is at most twice as large as its parameters may be.
constexpr int64_t kRecordBytesPerParameterByte = 4;

// One export. A chunk is written when the transport has taken the one before.
class Export : public std::enable_shared_from_this<Export> {
 public:
  // `held` is the memory reserved for the record.
  Export(std::string record, std::shared_ptr<Reservation> held, size_t chunk_bytes, std::shared_ptr<RpcCall> stream,
         Observation observation)
      : record_(std::move(record)),
        held_(std::move(held)),
        chunk_bytes_(chunk_bytes),
        stream_(std::move(stream)),
        observation_(std::move(observation)) {}

  void WriteNext() {
    if (stream_->cancelled()) return End(absl::CancelledError("the caller went away"));
    if (offset_ == record_.size()) return End(absl::OkStatus());
    const std::string_view data = std::string_view(record_).substr(offset_, chunk_bytes_);
    v1::SessionChunk message;
    v1::Chunk* const chunk = message.mutable_chunk();
    chunk->set_offset(static_cast<int64_t>(offset_));
    chunk->mutable_data()->assign(data.data(), data.size());
    chunk->set_crc32c(wire::Crc32c(data));
    offset_ += data.size();
    chunk->set_last(offset_ == record_.size());
    stream_->Write(Serialize(message), [self = shared_from_this()] { self->WriteNext(); });
  }

 private:
  void End(const absl::Status& status) {
    observation_.Finish(status, static_cast<int64_t>(offset_));
    stream_->Finish(status, [observation = std::move(observation_)]() mutable { observation.Written(); });
  }

  const std::string record_;
  const std::shared_ptr<Reservation> held_;
  const size_t chunk_bytes_;
  const std::shared_ptr<RpcCall> stream_;
  // Used by one callback at a time.
  Observation observation_;
  size_t offset_ = 0;
};

void ExportSession(const RouteContext* context, Engine* engine, size_t chunk_bytes,
                   const v1::ExportSessionRequest& request, std::shared_ptr<RpcCall> stream, Observation observation) {
  absl::StatusOr<std::string> id = DecodeSessionName(request.name(), "name", stream->identity()->tenant);
  if (!id.ok()) return Reply(std::move(stream), std::move(observation))(id.status());
  stream->NoteSession(request.name());
  LateReservation memory = ReserveLater(context, stream);
  engine->ExportSession(*std::move(id), std::move(memory.reserve),
                        [held = std::move(memory.held), chunk_bytes, stream = std::move(stream),
                         observation = std::move(observation)](absl::StatusOr<std::string> record) mutable {
                          if (!record.ok()) return Reply(std::move(stream), std::move(observation))(record.status());
                          // Now that the record is made, only it and the chunk that is being written need memory.
                          const auto left = static_cast<int64_t>(record->size() + 2 * chunk_bytes);
                          if (left < held->bytes())
                            held->Resize(left, [&stream] { return NameOf(*stream); }).IgnoreError();
                          std::make_shared<Export>(*std::move(record), std::move(held), chunk_bytes, std::move(stream),
                                                   std::move(observation))
                              ->WriteNext();
                        });
}

// One import: checks and joins chunks, then gives the record to the store. Runs on the stream's queue thread, or on the
// work pool for large chunks. The next chunk is read when the one before is done.
class Import : public std::enable_shared_from_this<Import> {
 public:
  Import(const RouteContext* context, Engine* engine, std::shared_ptr<RpcCall> stream, Reservation held)
      : context_(context),
        engine_(engine),
        stream_(stream),
        reply_(stream, Observation(context->observer, ShortName(stream_->method()), stream_->origin())),
        held_(std::move(held)) {}

  void ReadNext() {
    stream_->ReadSize([self = shared_from_this()](std::optional<int64_t> known_bytes) {
      const int64_t message_bytes = known_bytes.value_or(0);
      if (message_bytes == 0) return self->ReadMessage(0);
      WaitForRoom(*self->context_, message_bytes, message_bytes, [self, message_bytes] {
        if (const absl::Status fits = self->HoldMore(message_bytes); !fits.ok()) return self->reply_(fits);
        self->ReadMessage(message_bytes);
      });
    });
  }

 private:
  // Reads a message of `message_bytes`; 0: of a size that is not known.
  void ReadMessage(int64_t message_bytes) {
    auto take = [self = shared_from_this()](std::optional<MessageBytes> message) {
      if (!message.has_value()) return self->Finish();
      const auto size_bytes = message->size_bytes();
      RunIfLarge(*self->context_, size_bytes, [self, message = *std::move(message)] {
        if (const absl::Status status = self->Take(message); !status.ok()) return self->reply_(status);
        self->ReadNext();
      });
    };
    stream_->Read(std::move(take), message_bytes);
  }

  // Reserves memory for the messages so far and `message_bytes` more.
  absl::Status HoldMore(int64_t message_bytes) {
    const int64_t before = reply_.observation().record().request_bytes;
    return held_.Resize(1 + before + message_bytes, [this] { return NameOf(*stream_); });
  }

  absl::Status Take(const MessageBytes& message) {
    const bool first = reply_.observation().record().request_bytes == 0;
    NORMD_RETURN_IF_ERROR(HoldMore(message.size_bytes()));
    reply_.observation().record().request_bytes += message.size_bytes();
    v1::ImportSessionRequest request;
    NORMD_RETURN_IF_ERROR(ParseInto(message, &request));
    if (first) {
      id_ = request.session_id();
      NORMD_ASSIGN_OR_RETURN(key_, DecodeNewSessionId(id_, stream_->identity()->tenant));
      if (!id_.empty()) stream_->NoteSession(Concat("sessions/", id_));
    } else if (!request.session_id().empty() && request.session_id() != id_) {
      return NotAllowedError("session_id", "the first message gives it");
    }
    return Append(request.chunk());
  }

  absl::Status Append(const v1::Chunk& chunk) {
    const auto size = static_cast<int64_t>(record_.size());
    const auto chunk_size = static_cast<int64_t>(chunk.data().size());
    if (complete_) return NotAllowedError("chunk", "nothing may follow the last chunk");
    if (chunk.offset() != size) {
      return OutOfRangeError("chunk.offset", Concat(chunk.offset()), Concat(size, ", where the chunks before it end"),
                             ServerReason("CHUNK_OFFSET"));
    }
    if (chunk_size == 0 && !chunk.last()) return MissingError("chunk.data", "data in every chunk but the last");
    if (chunk_size > kMaxChunkBytes)
      return LimitExceededError("chunk.data", chunk_size, kMaxChunkBytes, {.unit = "bytes"});
    const int64_t max_record_bytes = kRecordBytesPerParameterByte * engine_->session_limits().max_parameter_bytes;
    if (size + chunk_size > max_record_bytes) {
      return LimitExceededError("record", size + chunk_size, max_record_bytes,
                                {.unit = "bytes", .option = "--max_parameter_bytes"});
    }
    if (const uint32_t crc = wire::Crc32c(chunk.data()); crc != chunk.crc32c()) {
      return OutOfRangeError("chunk.crc32c", Concat(chunk.crc32c()), Concat(crc, ", that of the data"),
                             ServerReason("CHUNK_CRC"));
    }
    record_ += chunk.data();
    complete_ = chunk.last();
    return absl::OkStatus();
  }

  void Finish() {
    if (!complete_) return reply_(MissingError("chunk.last", "a last chunk before the end"));
    reply_.observation().DecodeDone();
    engine_->ImportSession(std::move(key_), std::move(record_),
                           [self = shared_from_this()](absl::StatusOr<SessionPtr> session) {
                             if (!session.ok()) return self->reply_(session.status());
                             self->stream_->NoteSession(EncodeSessionName((*session)->id));
                             self->reply_.observation().record().norm_method = Info((*session)->spec.method()).name;
                             v1::Session message;
                             SessionToMessage(**session, self->engine_->durability(), v1::SESSION_VIEW_BASIC, &message);
                             self->reply_(Serialize(message));
                           });
  }

  const RouteContext* const context_;
  Engine* const engine_;
  const std::shared_ptr<RpcCall> stream_;
  Reply reply_;
  std::string id_;
  std::string key_;  // of the session to make
  std::string record_;
  bool complete_ = false;
  Reservation held_;
};

}  // namespace

Route ExportSessionRoute(const RouteContext* context, int64_t chunk_bytes, Engine* engine) {
  return ServerStreaming<v1::ExportSessionRequest>(
      context, MethodPath("normd.v1.Sessions", "ExportSession"),
      [context, engine, chunk_bytes](Parsed<v1::ExportSessionRequest> request, std::shared_ptr<RpcCall> stream,
                                     Observation observation) {
        ExportSession(context, engine, static_cast<size_t>(chunk_bytes), *request, std::move(stream),
                      std::move(observation));
      });
}

Route ImportSessionRoute(const RouteContext* context, Engine* engine) {
  auto start = [context, engine](std::shared_ptr<RpcCall> stream) {
    // A full server refuses the call here, before anything is read.
    absl::StatusOr<Reservation> held = context->admission->Reserve(1, [&stream] { return NameOf(*stream); });
    if (!held.ok()) return Refuse(*context, std::move(stream), held.status());
    std::make_shared<Import>(context, engine, std::move(stream), *std::move(held))->ReadNext();
  };
  return {MethodPath("normd.v1.Sessions", "ImportSession"), std::move(start)};
}

}  // namespace normd::rpc
