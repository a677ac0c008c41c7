#include "server/rpc/transport/route.h"

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"
#include "server/rpc/transport/status.h"

namespace normd::rpc {

std::string_view ShortName(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

Reply::~Reply() {
  if (stream_ != nullptr) (*this)(absl::InternalError("the request was dropped unanswered"));
}

void Reply::operator()(absl::StatusOr<MessageBytes> message, Stream::Callback written) {
  const std::shared_ptr<Stream> stream = std::move(stream_);
  const absl::Status status = message.status();
  observation_.Finish(status, message.ok() ? message->size_bytes() : 0);
  if (const std::string text = observation_.Explain(); !text.empty()) stream->SetExplanation(text);
  // The observation reports when it is destroyed with the callback at the latest.
  Stream::Callback done = [observation = std::move(observation_), written = std::move(written)]() mutable {
    observation.Written();
    if (written) written();
  };
  if (absl::IsResourceExhausted(status) && MayPassLater(status)) stream->SetRetryPushback();
  if (message.ok()) {
    stream->WriteAndFinish(*std::move(message), std::move(done));
  } else {
    stream->Finish(status, std::move(done));
  }
}

bool IsLoopback(std::string_view peer) {
  // gRPC writes the brackets of IPv6 plain or percent-encoded, and writes mapped IPv4 as IPv4.
  return peer.starts_with("ipv4:127.") || peer.starts_with("ipv6:[::1]:") || peer.starts_with("ipv6:%5B::1%5D:");
}

CallerName NameOf(const Stream& stream) { return {.connection = stream.peer(), .tenant = stream.identity()->tenant}; }

LateReservation ReserveLater(const RouteContext* context, std::shared_ptr<Stream> stream) {
  auto held = std::make_shared<Reservation>();
  auto reserve = [context, stream = std::move(stream), held](int64_t bytes) -> absl::Status {
    NORMD_ASSIGN_OR_RETURN(*held, context->admission->Reserve(bytes, [&stream] { return NameOf(*stream); }));
    return absl::OkStatus();
  };
  return {.held = std::move(held), .reserve = std::move(reserve)};
}

Observation ObserveRequest(const RouteContext& context, const Stream& stream, std::string_view rpc) {
  Observation observation(context.observer, rpc, stream.origin());
  observation.ReceivedSince(stream.arrival_time());
  return observation;
}

void Refuse(const RouteContext& context, std::shared_ptr<Stream> stream, const absl::Status& why,
            std::string_view rpc) {
  if (rpc.empty()) rpc = ShortName(stream->method());  // points into the stream, which the Reply keeps alive
  Observation observation = ObserveRequest(context, *stream, rpc);
  Reply(std::move(stream), std::move(observation))(why);
}

void RunIfLarge(const RouteContext& context, int64_t bytes, absl::AnyInvocable<void()> work) {
  if (context.work_pool == nullptr) return work();
  context.work_pool->RunIfLarge(bytes, std::move(work));
}

void WaitForRoom(const RouteContext& context, int64_t bytes, int64_t message_bytes, absl::AnyInvocable<void()> start) {
  if (context.read_limiter == nullptr) return start();
  context.read_limiter->EnterAnnounced(bytes, message_bytes,
                                       [start = std::move(start)](ReadLimiter::Ticket) mutable { start(); });
}

namespace {

using Then = absl::AnyInvocable<void(MessageBytes, Reservation, Observation)>;

// A call whose headers have arrived, but not its message.
struct Arriving {
  const RouteContext* context;
  std::shared_ptr<Stream> stream;
  int64_t factor;
  int64_t announced_bytes;  // by the headers; 0: they announce nothing
  Reservation held;
  ReadLimiter::Ticket ticket;
  Then then;
};

// What was announced is what was admitted, so a message may not be larger.
absl::Status CheckAnnouncement(const Arriving& call, int64_t message_bytes) {
  if (call.announced_bytes == 0 || message_bytes <= call.announced_bytes) return absl::OkStatus();
  const std::string limit = Concat("at most ", call.announced_bytes, ", as normd-message-bytes announces");
  return AmountError("message", Concat(message_bytes, " bytes"), limit, ServerReason("MESSAGE_OVER_ANNOUNCEMENT"));
}

void TakeMessage(Arriving& call, std::optional<MessageBytes> message) {
  Stream& stream = *call.stream;
  Observation observation = ObserveRequest(*call.context, stream, ShortName(stream.method()));
  if (!message.has_value()) {
    // The server ended reading, the caller is gone or half-closed without a message, or the transport has refused the
    // message and told the caller; gRPC does not say that it did.
    absl::Status error = stream.read_error();
    if (error.ok()) error = stream.over_error();
    if (error.ok()) error = MissingError("message", "one request message");
    return Reply(call.stream, std::move(observation))(error);
  }
  const auto size_bytes = message->size_bytes();
  observation.record().request_bytes = size_bytes;
  if (stream.cancelled()) return Reply(call.stream, std::move(observation))(CallerGoneError());
  absl::Status fits = CheckAnnouncement(call, size_bytes);
  if (!fits.ok()) return Reply(call.stream, std::move(observation))(fits);
  fits = call.held.Resize(call.factor * size_bytes, [&stream] { return NameOf(stream); });
  if (!fits.ok()) return Reply(call.stream, std::move(observation))(fits);
  call.ticket = ReadLimiter::Ticket();  // the reservation counts these bytes from now on
  stream.connection()->NoteMessage(size_bytes);
  if (size_bytes < WorkPool::kLargeBytes) {
    return call.then(*std::move(message), std::move(call.held), std::move(observation));
  }
  RunIfLarge(*call.context, size_bytes,
             [then = std::move(call.then), message = *std::move(message), held = std::move(call.held),
              observation = std::move(observation)]() mutable {
               observation.ThreadFound();
               then(std::move(message), std::move(held), std::move(observation));
             });
}

void ReadMessage(Arriving call, int64_t most_bytes) {
  Stream* const stream = call.stream.get();
  stream->Read(
      [call = std::move(call)](std::optional<MessageBytes> message) mutable { TakeMessage(call, std::move(message)); },
      most_bytes);
}

// Reads an admitted message. One that is larger than announced is refused before it is read, if the transport tells
// its size.
void ReadAdmitted(Arriving call, int64_t admitted_bytes) {
  if (call.announced_bytes == 0) return ReadMessage(std::move(call), admitted_bytes);
  Stream* const stream = call.stream.get();
  stream->ReadSize(
      [call = std::move(call), admitted_bytes](std::optional<int64_t> message_bytes) mutable {
        const absl::Status fits = CheckAnnouncement(call, message_bytes.value_or(0));
        if (!fits.ok()) return Refuse(*call.context, std::move(call.stream), fits);
        ReadMessage(std::move(call), admitted_bytes);
      },
      admitted_bytes);
}

void ReadKnown(Arriving call, int64_t message_bytes) {
  const RouteContext& context = *call.context;
  const int64_t bytes = call.factor * message_bytes;
  WaitForRoom(context, bytes, message_bytes, [call = std::move(call), bytes, message_bytes]() mutable {
    const absl::Status fits = call.held.Resize(bytes, [&call] { return NameOf(*call.stream); });
    if (!fits.ok()) return Refuse(*call.context, std::move(call.stream), fits);
    ReadAdmitted(std::move(call), message_bytes);
  });
}

// Reads the message of `message_bytes`, or of a size that is not known.
void ReadOfSize(Arriving call, std::optional<int64_t> message_bytes) {
  const RouteContext* const context = call.context;
  if (message_bytes.value_or(0) > context->max_message_bytes) {
    return Refuse(*context, std::move(call.stream),
                  AmountError("message", Concat(*message_bytes, " bytes"),
                              Concat("at most ", context->max_message_bytes), ServerReason("MESSAGE_TOO_LARGE")));
  }
  if (message_bytes.has_value()) return ReadKnown(std::move(call), *message_bytes);
  if (context->read_limiter == nullptr) return ReadMessage(std::move(call), context->max_message_bytes);
  const Connection& connection = *call.stream->connection();
  const int64_t likely_bytes = call.factor * connection.expected_bytes();
  context->read_limiter->Enter(connection, likely_bytes, [call = std::move(call)](ReadLimiter::Ticket ticket) mutable {
    call.ticket = std::move(ticket);
    const int64_t most_bytes = call.context->max_message_bytes;
    ReadMessage(std::move(call), most_bytes);
  });
}

}  // namespace

void ReadRequest(const RouteContext* context, std::shared_ptr<Stream> stream, int64_t factor, Then then) {
  Stream* const asked = stream.get();
  const absl::StatusOr<int64_t> announced = asked->AnnouncedBytes();
  if (!announced.ok()) return Refuse(*context, std::move(stream), announced.status());
  // A reservation of 0 bytes always fits.
  Reservation held = *context->admission->Reserve(0, [] { return CallerName(); });
  Arriving call = {context,         std::move(stream),     factor,         *announced,
                   std::move(held), ReadLimiter::Ticket(), std::move(then)};
  if (*announced > 0) return ReadOfSize(std::move(call), *announced);
  asked->ReadSize([call = std::move(call)](
                      std::optional<int64_t> message_bytes) mutable { ReadOfSize(std::move(call), message_bytes); },
                  kMessagePrefixBytes);
}

Route UnaryBytes(const RouteContext* context, std::string path, BytesHandler handler) {
  auto start = [context, handler = std::move(handler)](std::shared_ptr<Stream> stream) {
    auto then = [&handler, stream](const MessageBytes& message, Reservation reservation, Observation observation) {
      handler(message, std::move(reservation), Reply(stream, std::move(observation)));
    };
    ReadRequest(context, stream, kBytesHeldPerMessageByte, std::move(then));
  };
  return {std::move(path), std::move(start)};
}

}  // namespace normd::rpc
