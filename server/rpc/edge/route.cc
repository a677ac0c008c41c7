#include "server/rpc/edge/route.h"

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "proto/wire/metadata.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"
#include "server/rpc/edge/status.h"

namespace normd::rpc {
namespace {

constexpr char kRetryPushbackMs[] = "100";  // the same delay as in RetryInfo (status.cc)

}  // namespace

std::string_view ShortName(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

Reply::~Reply() {
  if (call_ != nullptr) (*this)(absl::InternalError("the request was dropped unanswered"));
}

void Reply::operator()(absl::StatusOr<MessageBytes> message, RpcCall::Callback written) {
  const std::shared_ptr<RpcCall> call = std::move(call_);
  const absl::Status status = message.status();
  observation_.Finish(status, message.ok() ? message->size_bytes() : 0);
  if (const std::string text = observation_.Explain(); !text.empty())
    call->AddTrailer(std::string(wire::kExplainKey), text);
  // The observation reports when it is destroyed with the callback at the latest.
  RpcCall::Callback done = [observation = std::move(observation_), written = std::move(written)]() mutable {
    observation.Written();
    if (written) written();
  };
  if (absl::IsResourceExhausted(status) && MayPassLater(status)) {
    call->AddTrailer("grpc-retry-pushback-ms", kRetryPushbackMs);
  }
  if (message.ok()) {
    call->WriteAndFinish(*std::move(message), std::move(done));
  } else {
    call->Finish(status, std::move(done));
  }
}

bool IsLoopback(std::string_view peer) {
  // Names have the brackets of IPv6 plain or percent-encoded, and mapped IPv4 as IPv4.
  return peer.starts_with("ipv4:127.") || peer.starts_with("ipv6:[::1]:") || peer.starts_with("ipv6:%5B::1%5D:");
}

CallerName NameOf(const RpcCall& call) { return {.connection = call.peer(), .tenant = call.identity()->tenant}; }

LateReservation ReserveLater(const RouteContext* context, std::shared_ptr<RpcCall> call) {
  auto held = std::make_shared<Reservation>();
  auto reserve = [context, call = std::move(call), held](int64_t bytes) -> absl::Status {
    NORMD_ASSIGN_OR_RETURN(*held, context->admission->Reserve(bytes, [&call] { return NameOf(*call); }));
    return absl::OkStatus();
  };
  return {.held = std::move(held), .reserve = std::move(reserve)};
}

Observation ObserveRequest(const RouteContext& context, const RpcCall& call, std::string_view rpc) {
  Observation observation(context.observer, rpc, call.origin());
  observation.ReceivedSince(call.arrival_time());
  return observation;
}

void Refuse(const RouteContext& context, std::shared_ptr<RpcCall> call, const absl::Status& why, std::string_view rpc) {
  if (rpc.empty()) rpc = ShortName(call->method());  // points into the call, which the Reply keeps alive
  Observation observation = ObserveRequest(context, *call, rpc);
  Reply(std::move(call), std::move(observation))(why);
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
  std::shared_ptr<RpcCall> call;
  int64_t factor;
  int64_t announced_bytes;  // by the headers; 0: they announce nothing
  Reservation held;
  ReadLimiter::Ticket ticket;
  Then then;
};

// What was announced is what was admitted, so a message may not be larger.
absl::Status CheckAnnouncement(const Arriving& arriving, int64_t message_bytes) {
  if (arriving.announced_bytes == 0 || message_bytes <= arriving.announced_bytes) return absl::OkStatus();
  const std::string limit = Concat("at most ", arriving.announced_bytes, ", as normd-message-bytes announces");
  return AmountError("message", Concat(message_bytes, " bytes"), limit, ServerReason("MESSAGE_OVER_ANNOUNCEMENT"));
}

void TakeMessage(Arriving& arriving, std::optional<MessageBytes> message) {
  RpcCall& call = *arriving.call;
  Observation observation = ObserveRequest(*arriving.context, call, ShortName(call.method()));
  if (!message.has_value()) {
    // The server ended reading, the caller is gone or half-closed without a message, or the transport has refused the
    // message and told the caller; gRPC's library does not say that it did.
    absl::Status error = call.read_error();
    if (error.ok()) error = call.over_error();
    if (error.ok()) error = MissingError("message", "one request message");
    return Reply(arriving.call, std::move(observation))(error);
  }
  const auto size_bytes = message->size_bytes();
  observation.record().request_bytes = size_bytes;
  if (call.cancelled()) return Reply(arriving.call, std::move(observation))(CallerGoneError());
  absl::Status fits = CheckAnnouncement(arriving, size_bytes);
  if (!fits.ok()) return Reply(arriving.call, std::move(observation))(fits);
  fits = arriving.held.Resize(arriving.factor * size_bytes, [&call] { return NameOf(call); });
  if (!fits.ok()) return Reply(arriving.call, std::move(observation))(fits);
  arriving.ticket = ReadLimiter::Ticket();  // the reservation counts these bytes from now on
  call.connection().NoteMessage(size_bytes);
  if (size_bytes < WorkPool::kLargeBytes) {
    return arriving.then(*std::move(message), std::move(arriving.held), std::move(observation));
  }
  RunIfLarge(*arriving.context, size_bytes,
             [then = std::move(arriving.then), message = *std::move(message), held = std::move(arriving.held),
              observation = std::move(observation)]() mutable {
               observation.ThreadFound();
               then(std::move(message), std::move(held), std::move(observation));
             });
}

void ReadMessage(Arriving arriving, int64_t most_bytes) {
  RpcCall* const call = arriving.call.get();
  call->Read([arriving = std::move(arriving)](
                 std::optional<MessageBytes> message) mutable { TakeMessage(arriving, std::move(message)); },
             most_bytes);
}

// Reads an admitted message. One that is larger than announced is refused before it is read, if the transport tells
// its size.
void ReadAdmitted(Arriving arriving, int64_t admitted_bytes) {
  if (arriving.announced_bytes == 0) return ReadMessage(std::move(arriving), admitted_bytes);
  RpcCall* const call = arriving.call.get();
  call->ReadSize(
      [arriving = std::move(arriving), admitted_bytes](std::optional<int64_t> message_bytes) mutable {
        const absl::Status fits = CheckAnnouncement(arriving, message_bytes.value_or(0));
        if (!fits.ok()) return Refuse(*arriving.context, std::move(arriving.call), fits);
        ReadMessage(std::move(arriving), admitted_bytes);
      },
      admitted_bytes);
}

void ReadKnown(Arriving arriving, int64_t message_bytes) {
  const RouteContext& context = *arriving.context;
  const int64_t bytes = arriving.factor * message_bytes;
  WaitForRoom(context, bytes, message_bytes, [arriving = std::move(arriving), bytes, message_bytes]() mutable {
    const absl::Status fits = arriving.held.Resize(bytes, [&arriving] { return NameOf(*arriving.call); });
    if (!fits.ok()) return Refuse(*arriving.context, std::move(arriving.call), fits);
    ReadAdmitted(std::move(arriving), message_bytes);
  });
}

// Reads the message of `message_bytes`, or of a size that is not known.
void ReadOfSize(Arriving arriving, std::optional<int64_t> message_bytes) {
  const RouteContext* const context = arriving.context;
  if (message_bytes.value_or(0) > context->max_message_bytes) {
    return Refuse(*context, std::move(arriving.call),
                  AmountError("message", Concat(*message_bytes, " bytes"),
                              Concat("at most ", context->max_message_bytes), ServerReason("MESSAGE_TOO_LARGE")));
  }
  if (message_bytes.has_value()) return ReadKnown(std::move(arriving), *message_bytes);
  if (context->read_limiter == nullptr) return ReadMessage(std::move(arriving), context->max_message_bytes);
  const Connection& connection = arriving.call->connection();
  const int64_t likely_bytes = arriving.factor * connection.expected_bytes();
  context->read_limiter->Enter(connection, likely_bytes,
                               [arriving = std::move(arriving)](ReadLimiter::Ticket ticket) mutable {
                                 arriving.ticket = std::move(ticket);
                                 const int64_t most_bytes = arriving.context->max_message_bytes;
                                 ReadMessage(std::move(arriving), most_bytes);
                               });
}

}  // namespace

void ReadRequest(const RouteContext* context, std::shared_ptr<RpcCall> call, int64_t factor, Then then) {
  RpcCall* const asked = call.get();
  const absl::StatusOr<int64_t> announced = asked->AnnouncedBytes();
  if (!announced.ok()) return Refuse(*context, std::move(call), announced.status());
  // A reservation of 0 bytes always fits.
  Reservation held = *context->admission->Reserve(0, [] { return CallerName(); });
  Arriving arriving = {context,         std::move(call),       factor,         *announced,
                       std::move(held), ReadLimiter::Ticket(), std::move(then)};
  if (*announced > 0) return ReadOfSize(std::move(arriving), *announced);
  asked->ReadSize([arriving = std::move(arriving)](
                      std::optional<int64_t> message_bytes) mutable { ReadOfSize(std::move(arriving), message_bytes); },
                  kMessagePrefixBytes);
}

Route UnaryBytes(const RouteContext* context, std::string path, BytesHandler handler) {
  auto start = [context, handler = std::move(handler)](std::shared_ptr<RpcCall> call) {
    auto then = [&handler, call](const MessageBytes& message, Reservation reservation, Observation observation) {
      handler(message, std::move(reservation), Reply(call, std::move(observation)));
    };
    ReadRequest(context, call, kBytesHeldPerMessageByte, std::move(then));
  };
  return {std::move(path), std::move(start)};
}

}  // namespace normd::rpc
