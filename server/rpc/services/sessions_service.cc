#include "server/rpc/services/sessions_service.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "google/protobuf/empty.pb.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "kernels/exact_sums/bytes.h"
#include "kernels/methods.h"
#include "normd/v1/sessions.pb.h"
#include "server/base/error_reasons.h"
#include "server/rpc/codec/decode_tensor.h"
#include "server/rpc/codec/encode.h"
#include "server/rpc/codec/session_messages.h"
#include "server/rpc/codec/session_name.h"
#include "server/rpc/services/handlers.h"
#include "server/rpc/services/method_names.h"
#include "server/rpc/services/session_transfer.h"
#include "server/session/session_changes.h"
#include "server/session/session_checks.h"

namespace normd::rpc {
namespace {

constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;
// A page of FULL views ends early, so that it stays below the size that ordinary stubs accept.
constexpr int64_t kMaxPageBytes = int64_t{3} << 20;
// A reply with tensors is in memory twice, as a message and as bytes.
constexpr int64_t kBytesHeldPerReplyByte = 2;

MessageBytes EncodeSession(const Session& session, Durability durability, v1::SessionView view) {
  v1::Session message;
  SessionToMessage(session, durability, view, &message);
  return Serialize(message);
}

// The tenant of the caller that is answered.
const std::string& TenantOf(const Reply& reply) { return reply.call()->identity()->tenant; }

// Replies with the session in the view BASIC, as all changes do. `held` is memory that the change needed.
SessionStore::Done<SessionPtr> ReplyWithSession(Durability durability, Reply reply,
                                                std::shared_ptr<Reservation> held = nullptr) {
  return [durability, held = std::move(held), reply = std::move(reply)](absl::StatusOr<SessionPtr> session) mutable {
    if (!session.ok()) return reply(session.status());
    reply.call()->NoteSession(EncodeSessionName((*session)->id));
    reply(EncodeSession(**session, durability, v1::SESSION_VIEW_BASIC));
  };
}

template <typename Request>
std::optional<uint64_t> ExpectedVersion(const Request& request) {
  if (!request.has_expected_version()) return std::nullopt;
  return request.expected_version();
}

void CreateSession(const RouteContext* context, Engine* engine, const v1::CreateSessionRequest& request, Reply reply) {
  absl::StatusOr<Session> session = SessionFromMessage(request.session());
  absl::StatusOr<std::string> id = DecodeNewSessionId(request.session_id(), TenantOf(reply));
  reply.observation().DecodeDone();
  if (!session.ok()) return reply(PrefixField(session.status(), "session."));
  if (!id.ok()) return reply(id.status());
  reply.observation().record().norm_method = Info(session->spec.method()).name;
  session->id = *std::move(id);
  if (!request.session_id().empty()) reply.call()->NoteSession(Concat("sessions/", request.session_id()));
  LateReservation memory = ReserveLater(context, reply.call());
  engine->CreateSession(*std::move(session), std::move(memory.reserve),
                        ReplyWithSession(engine->durability(), std::move(reply), std::move(memory.held)));
}

// Reserves memory for a reply with the tensors of `sessions`. SendHeld keeps the reservation until the reply is sent.
absl::StatusOr<std::shared_ptr<Reservation>> ReserveReply(const RouteContext& context,
                                                          absl::Span<const SessionPtr> sessions, const Reply& reply) {
  int64_t bytes = 0;
  for (const SessionPtr& session : sessions) bytes += kBytesHeldPerReplyByte * QuotaBytes(*session);
  NORMD_ASSIGN_OR_RETURN(Reservation held,
                         context.admission->Reserve(bytes, [&reply] { return NameOf(*reply.call()); }));
  return std::make_shared<Reservation>(std::move(held));
}

// Sends `message` and keeps the reservation until the transport has taken it.
void SendHeld(MessageBytes message, std::shared_ptr<Reservation> held, Reply& reply) {
  reply(std::move(message), [held = std::move(held)] {});
}

std::optional<uint64_t> KnownVersion(const v1::GetSessionRequest& request) {
  if (!request.has_newer_than_version()) return std::nullopt;
  return request.newer_than_version();
}

void GetSession(const RouteContext* context, Engine* engine, const v1::GetSessionRequest& request, Reply reply) {
  absl::StatusOr<std::string> id = DecodeSessionName(request.name(), "name", TenantOf(reply));
  if (!id.ok()) return reply(id.status());
  const absl::StatusOr<v1::SessionView> view = DecodeView(request.view());
  if (!view.ok()) return reply(view.status());
  SessionStore::Cancelled cancelled = reply.Cancelled();
  engine->GetSession(
      *std::move(id), std::move(cancelled),
      [context, durability = engine->durability(), view = *view, known_version = KnownVersion(request),
       reply = std::move(reply)](absl::StatusOr<SessionPtr> session) mutable {
        if (!session.ok()) return reply(session.status());
        const bool is_news = !known_version.has_value() || (*session)->version > *known_version;
        if (view != v1::SESSION_VIEW_FULL || !is_news) {
          return reply(EncodeSession(**session, durability, v1::SESSION_VIEW_BASIC));
        }
        absl::StatusOr<std::shared_ptr<Reservation>> held = ReserveReply(*context, {&*session, 1}, reply);
        if (!held.ok()) return reply(held.status());
        // A large reply is not encoded on the store's callback thread.
        const int64_t bytes = QuotaBytes(**session);
        RunIfLarge(*context, bytes,
                   [durability, view, held = *std::move(held), reply = std::move(reply),
                    session = *std::move(session)]() mutable {
                     SendHeld(EncodeSession(*session, durability, view), std::move(held), reply);
                   });
      });
}

absl::StatusOr<ListQuery> DecodeListQuery(const v1::ListSessionsRequest& request, const std::string& tenant) {
  ListQuery query;
  query.tenant = tenant;
  if (request.page_size() < 0) {
    return OutOfRangeError("page_size", Concat(request.page_size()), "at least 0",
                           ServerReason("PAGE_SIZE_OUT_OF_RANGE"));
  }
  query.page_size = request.page_size() == 0 ? kDefaultPageSize : std::min(request.page_size(), kMaxPageSize);
  NORMD_ASSIGN_OR_RETURN(query.labels, DecodeFilter(request.filter()));
  NORMD_ASSIGN_OR_RETURN(query.after_id, DecodePageToken(request.filter(), request.page_token(), tenant));
  return query;
}

MessageBytes EncodePage(const ListPage& page, v1::SessionView view, const std::string& filter, Durability durability) {
  v1::ListSessionsResponse response;
  for (const SessionPtr& session : page.sessions) {
    SessionToMessage(*session, durability, view, response.add_sessions());
  }
  if (!page.next_after.empty()) response.set_next_page_token(EncodePageToken(filter, page.next_after));
  response.set_damaged(page.damaged);
  return Serialize(response);
}

// How a page was asked for.
struct PageForm {
  v1::SessionView view;
  std::string filter;
  Durability durability;
  bool whole;  // with parameters and state, which are large
};

void SendPage(const RouteContext& context, ListPage page, PageForm form, Reply reply) {
  std::shared_ptr<Reservation> room;
  if (form.whole) {
    auto held = ReserveReply(context, page.sessions, reply);
    if (!held.ok()) return reply(held.status());
    room = *std::move(held);
  }
  // A long page is not encoded on the store's callback thread.
  const auto sessions = static_cast<int64_t>(page.sessions.size());
  RunIfLarge(
      context, sessions * WorkPool::kBytesPerItem,
      [page = std::move(page), form = std::move(form), room = std::move(room), reply = std::move(reply)]() mutable {
        SendHeld(EncodePage(page, form.view, form.filter, form.durability), std::move(room), reply);
      });
}

void ListSessions(const RouteContext* context, Engine* engine, const v1::ListSessionsRequest& request, Reply reply) {
  const absl::StatusOr<v1::SessionView> view = DecodeView(request.view());
  if (!view.ok()) return reply(view.status());
  absl::StatusOr<ListQuery> query = DecodeListQuery(request, TenantOf(reply));
  if (!query.ok()) return reply(query.status());
  query->whole = *view == v1::SESSION_VIEW_FULL;
  query->max_bytes = kMaxPageBytes;
  // A filter may look at all sessions, however few it finds.
  const int64_t looked_at = query->labels.empty() ? query->page_size : kMaxPageSize;
  RunIfLarge(*context, looked_at * WorkPool::kBytesPerItem,
             [context, engine, query = *std::move(query), view = *view, filter = request.filter(),
              reply = std::move(reply)]() mutable {
               const bool whole = query.whole;
               engine->ListSessions(std::move(query), [context, whole, durability = engine->durability(), view,
                                                       filter = std::move(filter), reply = std::move(reply)](
                                                          absl::StatusOr<ListPage> page) mutable {
                 if (!page.ok()) return reply(page.status());
                 SendPage(*context, *std::move(page), {view, std::move(filter), durability, whole}, std::move(reply));
               });
             });
}

absl::StatusOr<SessionPatch> DecodePatch(const v1::UpdateSessionRequest& request) {
  absl::StatusOr<SessionPatch> patch = PatchFromMessage(request);
  if (patch.ok()) return patch;
  // The mask is a field beside the session; every other field is inside the session.
  const std::optional<ErrorDetail> detail = GetErrorDetail(patch.status());
  const bool in_mask = detail.has_value() && detail->field == "update_mask";
  return in_mask ? patch.status() : PrefixField(patch.status(), "session.");
}

void UpdateSession(Engine* engine, const v1::UpdateSessionRequest& request, Reply reply) {
  absl::StatusOr<std::string> id = DecodeSessionName(request.session().name(), "session.name", TenantOf(reply));
  absl::StatusOr<SessionPatch> patch = id.ok() ? DecodePatch(request) : id.status();
  if (id.ok()) reply.call()->NoteSession(request.session().name());
  reply.observation().DecodeDone();
  if (!patch.ok()) return reply(patch.status());
  engine->UpdateSession(*std::move(id), *std::move(patch), ReplyWithSession(engine->durability(), std::move(reply)));
}

void ResetSession(Engine* engine, const v1::ResetSessionRequest& request, Reply reply) {
  absl::StatusOr<std::string> id = DecodeSessionName(request.name(), "name", TenantOf(reply));
  if (!id.ok()) return reply(id.status());
  reply.call()->NoteSession(request.name());
  engine->ResetSession(*std::move(id), ExpectedVersion(request),
                       ReplyWithSession(engine->durability(), std::move(reply)));
}

void ForkSession(const RouteContext* context, Engine* engine, const v1::ForkSessionRequest& request, Reply reply) {
  absl::StatusOr<std::string> id = DecodeSessionName(request.name(), "name", TenantOf(reply));
  if (!id.ok()) return reply(id.status());
  absl::StatusOr<std::string> fork_id = DecodeNewSessionId(request.session_id(), TenantOf(reply));
  if (!fork_id.ok()) return reply(fork_id.status());
  reply.call()->NoteSession(request.session_id().empty() ? "" : Concat("sessions/", request.session_id()),
                            request.name());
  LateReservation memory = ReserveLater(context, reply.call());
  Engine::Fork fork = {.id = *std::move(fork_id), .frozen = request.frozen()};
  engine->ForkSession(*std::move(id), std::move(fork), std::move(memory.reserve),
                      ReplyWithSession(engine->durability(), std::move(reply), std::move(memory.held)));
}

void DeleteSession(Engine* engine, const v1::DeleteSessionRequest& request, Reply reply) {
  absl::StatusOr<std::string> id = DecodeSessionName(request.name(), "name", TenantOf(reply));
  if (!id.ok()) return reply(id.status());
  reply.call()->NoteSession(request.name());
  engine->DeleteSession(*std::move(id), ExpectedVersion(request),
                        [reply = std::move(reply)](absl::StatusOr<SessionPtr> session) mutable {
                          if (!session.ok()) return reply(session.status());
                          reply(Serialize(google::protobuf::Empty()));
                        });
}

absl::StatusOr<PooledStep> DecodeCommit(const v1::CommitMomentsRequest& request, std::string_view tenant) {
  PooledStep step;
  NORMD_ASSIGN_OR_RETURN(step.session, DecodeSessionName(request.session(), "session", tenant));
  if (request.moments().empty()) return MissingError("moments", "at least one set of moments");
  if (request.has_step()) {
    step.step = StepId{request.step().client_id(), request.step().sequence()};
    NORMD_RETURN_IF_ERROR(ValidateStepId(*step.step));
  }
  step.expected_version = ExpectedVersion(request);
  for (int i = 0; i < request.moments_size(); ++i) {
    NORMD_ASSIGN_OR_RETURN(MomentsPart part, DecodeMoments(request.moments(i), Concat("moments[", i, "]")));
    step.parts.push_back(std::move(part));
  }
  step.channel_names = {request.channel_names().begin(), request.channel_names().end()};
  step.want_state = request.want_state();
  return step;
}

MessageBytes EncodePooledReply(const PooledReply& pooled) {
  v1::StateResult message;
  EncodeCommitResult(pooled.result, /*output_available=*/false, &message);
  if (pooled.session != nullptr) {
    StateToMessage(pooled.session->state, message.mutable_state());
    message.set_state_version(pooled.session->version);
  }
  return Serialize(message);
}

// A reply without the state, which the server has no room for, would be taken for that of a session that is gone.
void ReplyToCommit(const RouteContext& context, PooledReply pooled, Reply reply) {
  if (pooled.session == nullptr) return reply(EncodePooledReply(pooled));
  auto held = ReserveReply(context, {&pooled.session, 1}, reply);
  if (!held.ok()) return reply(held.status());
  const int64_t bytes = QuotaBytes(*pooled.session);
  RunIfLarge(context, bytes, [pooled = std::move(pooled), held = *std::move(held), reply = std::move(reply)]() mutable {
    SendHeld(EncodePooledReply(pooled), std::move(held), reply);
  });
}

// Reserves memory for exact sums: decoded, and merged, which may hold those of some parts twice, widened where parts of
// both ranges come. Nothing where there are none.
absl::StatusOr<std::shared_ptr<Reservation>> ReserveExact(const RouteContext& context,
                                                          const v1::CommitMomentsRequest& request, const Reply& reply) {
  constexpr int64_t kNarrowToWide = 6;
  int64_t narrow = 0, wide = 0;
  for (const v1::Moments& moments : request.moments()) {
    (IsWideExactSums(moments.exact()) ? wide : narrow) += static_cast<int64_t>(moments.exact().size());
  }
  if (narrow + wide == 0) return nullptr;
  const int64_t merged = wide > 0 ? kNarrowToWide * narrow + wide : narrow;
  NORMD_ASSIGN_OR_RETURN(Reservation held, context.admission->Reserve(narrow + wide + 2 * merged,
                                                                      [&reply] { return NameOf(*reply.call()); }));
  return std::make_shared<Reservation>(std::move(held));
}

void CommitMoments(const RouteContext* context, Engine* engine, const Parsed<v1::CommitMomentsRequest>& request,
                   Reply reply) {
  absl::StatusOr<std::shared_ptr<Reservation>> held = ReserveExact(*context, *request, reply);
  if (!held.ok()) return reply(held.status());
  absl::StatusOr<PooledStep> step = DecodeCommit(*request, TenantOf(reply));
  reply.observation().DecodeDone();
  if (!step.ok()) return reply(step.status());
  step->cancelled = reply.Cancelled();
  // `request.owner` keeps the reservation, which covers the moments, until they are committed.
  engine->CommitMoments(*std::move(step), [context, reply = std::move(reply), room = request.owner,
                                           held = *std::move(held)](absl::StatusOr<PooledReply> pooled) mutable {
    if (!pooled.ok()) return reply(pooled.status());
    ReplyToCommit(*context, *std::move(pooled), std::move(reply));
  });
}

// Makes the route of a unary method of this service from a handler (request, reply).
template <typename Request, typename Handler>
Route SessionRoute(const RouteContext* context, const char* name, Handler handler) {
  return Unary<Request>(context, MethodPath("normd.v1.Sessions", name),
                        [handler](Parsed<Request> request, Reply reply) { handler(*request, std::move(reply)); });
}

}  // namespace

std::vector<Route> SessionsRoutes(const RouteContext* context, const RpcOptions* options, Engine* engine) {
  // Bind the engine to a handler (engine, request, reply), and context and engine to (context, engine, request, reply).
  const auto with_engine = [engine](auto handler) {
    return [engine, handler](const auto& request, Reply reply) { handler(engine, request, std::move(reply)); };
  };
  const auto with_context = [context, engine](auto handler) {
    return [context, engine, handler](const auto& request, Reply reply) {
      handler(context, engine, request, std::move(reply));
    };
  };
  return {
      Audited(SessionRoute<v1::CreateSessionRequest>(context, "CreateSession", with_context(&CreateSession))),
      SessionRoute<v1::GetSessionRequest>(context, "GetSession", with_context(&GetSession)),
      SessionRoute<v1::ListSessionsRequest>(context, "ListSessions", with_context(&ListSessions)),
      Audited(SessionRoute<v1::UpdateSessionRequest>(context, "UpdateSession", with_engine(&UpdateSession))),
      Audited(SessionRoute<v1::ResetSessionRequest>(context, "ResetSession", with_engine(&ResetSession))),
      Audited(SessionRoute<v1::ForkSessionRequest>(context, "ForkSession", with_context(&ForkSession))),
      Audited(SessionRoute<v1::DeleteSessionRequest>(context, "DeleteSession", with_engine(&DeleteSession))),
      Unary<v1::CommitMomentsRequest>(context, MethodPath("normd.v1.Sessions", "CommitMoments"),
                                      with_context(&CommitMoments)),
      Audited(ExportSessionRoute(context, options->export_chunk_bytes, engine)),
      Audited(ImportSessionRoute(context, engine)),
  };
}

}  // namespace normd::rpc
