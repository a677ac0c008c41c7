#include "server/rpc/sessions_service.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "google/protobuf/empty.pb.h"
#include "kernels/errors.h"
#include "kernels/methods.h"
#include "kernels/text.h"
#include "normd/v1/sessions.pb.h"
#include "server/base/status_macros.h"
#include "server/rpc/decode_call.h"
#include "server/rpc/decode_tensor.h"
#include "server/rpc/encode.h"
#include "server/rpc/session_messages.h"
#include "server/rpc/session_transfer.h"
#include "server/session/session_changes.h"
#include "server/session/session_checks.h"

namespace normd::rpc {
namespace {

constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;
// A page of FULL views ends early rather than to grow over what ordinary stubs accept.
constexpr int64_t kMaxPageBytes = int64_t{3} << 20;
// A reply with tensors is in memory as a message and as bytes.
constexpr int64_t kBytesHeldPerReplyByte = 2;

grpc::ByteBuffer EncodeSession(const Session& session, const SessionStore& store, v1::SessionView view) {
  v1::Session message;
  SessionToMessage(session, store.durability(), view, &message);
  return Serialize(message);
}

// Answers with the session, in the view that changes are answered with.
SessionStore::Done<SessionPtr> ReplyWithSession(const SessionStore& store, Reply reply) {
  return [&store, reply = std::move(reply)](absl::StatusOr<SessionPtr> session) mutable {
    if (!session.ok()) return reply(session.status());
    reply(EncodeSession(**session, store, v1::SESSION_VIEW_BASIC));
  };
}

template <typename Request>
std::optional<uint64_t> ExpectedVersion(const Request& request) {
  if (!request.has_expected_version()) return std::nullopt;
  return request.expected_version();
}

absl::StatusOr<Session> DecodeNewSession(const v1::CreateSessionRequest& request, const Engine& engine) {
  absl::StatusOr<Session> session = SessionFromMessage(request.session());
  if (!session.ok()) return PrefixField(session.status(), "session.");
  if (const absl::Status status = engine.ValidateNewSession(*session); !status.ok()) {
    return PrefixField(status, "session.");
  }
  session->id = request.session_id();
  if (!session->id.empty()) NORMD_RETURN_IF_ERROR(ValidateSessionId(session->id));
  return session;
}

void CreateSession(Engine* engine, const v1::CreateSessionRequest& request, Reply reply) {
  absl::StatusOr<Session> session = DecodeNewSession(request, *engine);
  reply.observation().DecodeDone();
  if (!session.ok()) return reply(session.status());
  reply.observation().record().norm_method = Info(session->spec.method()).name;
  engine->sessions().Create(*std::move(session), ReplyWithSession(engine->sessions(), std::move(reply)));
}

// Room for a reply that shows the tensors of `sessions`, held until the transport has taken it.
absl::StatusOr<std::shared_ptr<Reservation>> HoldReply(const RouteContext& context,
                                                       absl::Span<const SessionPtr> sessions, const Reply& reply) {
  int64_t bytes = 0;
  for (const SessionPtr& session : sessions) bytes += kBytesHeldPerReplyByte * QuotaBytes(*session);
  NORMD_ASSIGN_OR_RETURN(Reservation held,
                         context.admission->Reserve(bytes, [&reply] { return reply.stream()->peer(); }));
  return std::make_shared<Reservation>(std::move(held));
}

// Sends `message` and holds the reservation until it has left.
void SendHeld(grpc::ByteBuffer message, std::shared_ptr<Reservation> held, Reply& reply) {
  reply(std::move(message), [held = std::move(held)] {});
}

void GetSession(const RouteContext* context, Engine* engine, const v1::GetSessionRequest& request, Reply reply) {
  absl::StatusOr<std::string> id = DecodeSessionName(request.name(), "name");
  if (!id.ok()) return reply(id.status());
  const absl::StatusOr<v1::SessionView> view = DecodeView(request.view());
  if (!view.ok()) return reply(view.status());
  SessionStore::Cancelled cancelled = reply.Cancelled();
  engine->sessions().Get(
      *std::move(id), absl::ZeroDuration(), std::move(cancelled),
      [context, engine, view = *view, reply = std::move(reply)](absl::StatusOr<SessionPtr> session) mutable {
        if (!session.ok()) return reply(session.status());
        if (view != v1::SESSION_VIEW_FULL) return reply(EncodeSession(**session, engine->sessions(), view));
        absl::StatusOr<std::shared_ptr<Reservation>> held = HoldReply(*context, {&*session, 1}, reply);
        if (!held.ok()) return reply(held.status());
        // Not on the thread that answers for the store.
        const int64_t bytes = QuotaBytes(**session);
        engine->work_pool().RunIfLarge(bytes, [engine, view, held = *std::move(held), reply = std::move(reply),
                                               session = *std::move(session)]() mutable {
          SendHeld(EncodeSession(*session, engine->sessions(), view), std::move(held), reply);
        });
      });
}

absl::StatusOr<ListQuery> DecodeListQuery(const v1::ListSessionsRequest& request) {
  ListQuery query;
  if (request.page_size() < 0) {
    return OutOfRangeError("page_size", Concat(request.page_size()), "at least 0", "PAGE_SIZE_OUT_OF_RANGE");
  }
  query.page_size = request.page_size() == 0 ? kDefaultPageSize : std::min(request.page_size(), kMaxPageSize);
  NORMD_ASSIGN_OR_RETURN(query.labels, DecodeFilter(request.filter()));
  NORMD_ASSIGN_OR_RETURN(query.after_id, DecodePageToken(request.filter(), request.page_token()));
  return query;
}

grpc::ByteBuffer EncodePage(const ListPage& page, v1::SessionView view, const std::string& filter,
                            Durability durability) {
  v1::ListSessionsResponse response;
  for (const SessionPtr& session : page.sessions) {
    SessionToMessage(*session, durability, view, response.add_sessions());
  }
  if (!page.next_after.empty()) response.set_next_page_token(EncodePageToken(filter, page.next_after));
  response.set_damaged(page.damaged);
  return Serialize(response);
}

void ListSessions(const RouteContext* context, SessionStore* store, const v1::ListSessionsRequest& request,
                  Reply reply) {
  const absl::StatusOr<v1::SessionView> view = DecodeView(request.view());
  if (!view.ok()) return reply(view.status());
  absl::StatusOr<ListQuery> query = DecodeListQuery(request);
  if (!query.ok()) return reply(query.status());
  query->whole = *view == v1::SESSION_VIEW_FULL;
  query->max_bytes = kMaxPageBytes;
  const bool whole = query->whole;
  store->List(*std::move(query),
              [context, whole, durability = store->durability(), view = *view, filter = request.filter(),
               reply = std::move(reply)](absl::StatusOr<ListPage> page) mutable {
                if (!page.ok()) return reply(page.status());
                if (!whole) return reply(EncodePage(*page, view, filter, durability));
                auto held = HoldReply(*context, page->sessions, reply);
                if (!held.ok()) return reply(held.status());
                SendHeld(EncodePage(*page, view, filter, durability), *std::move(held), reply);
              });
}

absl::StatusOr<SessionPatch> DecodePatch(const v1::UpdateSessionRequest& request) {
  absl::StatusOr<SessionPatch> patch = PatchFromMessage(request);
  if (patch.ok()) return patch;
  // The mask is beside the session, everything else is inside.
  const std::optional<ErrorDetail> detail = GetErrorDetail(patch.status());
  const bool in_mask = detail.has_value() && detail->field == "update_mask";
  return in_mask ? patch.status() : PrefixField(patch.status(), "session.");
}

void UpdateSession(Engine* engine, const v1::UpdateSessionRequest& request, Reply reply) {
  absl::StatusOr<std::string> id = DecodeSessionName(request.session().name(), "session.name");
  absl::StatusOr<SessionPatch> patch = id.ok() ? DecodePatch(request) : id.status();
  reply.observation().DecodeDone();
  if (!patch.ok()) return reply(patch.status());
  // The lengths of parameters are the spec's to say, which never changes while the session has its epoch.
  engine->sessions().Get(*id, absl::ZeroDuration(),
                         [engine, id = *id, patch = *std::move(patch),
                          reply = std::move(reply)](absl::StatusOr<SessionPtr> session) mutable {
                           if (!session.ok()) return reply(session.status());
                           const absl::Status valid = engine->ValidatePatch(**session, patch);
                           if (!valid.ok()) return reply(PrefixField(valid, "session."));
                           patch.epoch = (*session)->epoch;
                           SessionStore& store = engine->sessions();
                           store.Update(std::move(id), std::move(patch), ReplyWithSession(store, std::move(reply)));
                         });
}

void ResetSession(SessionStore* store, const v1::ResetSessionRequest& request, Reply reply) {
  absl::StatusOr<std::string> id = DecodeSessionName(request.name(), "name");
  if (!id.ok()) return reply(id.status());
  store->Reset(*std::move(id), ExpectedVersion(request), ReplyWithSession(*store, std::move(reply)));
}

// A fork starts with the state, parameters and labels of its origin, at version 0 and without its step ids: it is
// another layer from then on.
void ForkSession(SessionStore* store, const v1::ForkSessionRequest& request, Reply reply) {
  absl::StatusOr<std::string> id = DecodeSessionName(request.name(), "name");
  if (!id.ok()) return reply(id.status());
  if (!request.session_id().empty()) {
    if (const absl::Status valid = ValidateSessionId(request.session_id()); !valid.ok()) return reply(valid);
  }
  store->Get(
      *std::move(id), absl::ZeroDuration(),
      [store, fork_id = request.session_id(), reply = std::move(reply)](absl::StatusOr<SessionPtr> origin) mutable {
        if (!origin.ok()) return reply(origin.status());
        Session fork = **origin;
        fork.id = std::move(fork_id);
        fork.version = 0;
        fork.parameters_version = 0;
        store->Create(std::move(fork), ReplyWithSession(*store, std::move(reply)));
      });
}

void DeleteSession(SessionStore* store, const v1::DeleteSessionRequest& request, Reply reply) {
  absl::StatusOr<std::string> id = DecodeSessionName(request.name(), "name");
  if (!id.ok()) return reply(id.status());
  store->Delete(*std::move(id), ExpectedVersion(request),
                [reply = std::move(reply)](absl::StatusOr<SessionPtr> session) mutable {
                  if (!session.ok()) return reply(session.status());
                  reply(Serialize(google::protobuf::Empty()));
                });
}

// One step's moments out of several callers'. Per set the sets are merged in the order given; instances, of which a
// session tracks the mean, are only more instances.
absl::StatusOr<Moments> Pool(Method method, const v1::CommitMomentsRequest& request) {
  Moments pooled;
  for (int i = 0; i < request.moments_size(); ++i) {
    const std::string field = Concat("moments[", i, "]");
    NORMD_ASSIGN_OR_RETURN(const Moments moments, DecodeMoments(request.moments(i), field));
    if (i == 0 || TraitsOf(method).steps_by_sample) {
      pooled.insert(pooled.end(), moments.begin(), moments.end());
      continue;
    }
    if (moments.size() != pooled.size()) {
      return ParameterLengthError(field, static_cast<int64_t>(moments.size()), static_cast<int64_t>(pooled.size()));
    }
    for (size_t set = 0; set < pooled.size(); ++set) pooled[set] = Merge(pooled[set], moments[set]);
  }
  return pooled;
}

absl::StatusOr<StateUpdate> DecodeCommit(const v1::CommitMomentsRequest& request) {
  StateUpdate update;
  NORMD_ASSIGN_OR_RETURN(update.id, DecodeSessionName(request.session(), "session"));
  if (request.moments().empty()) return MissingError("moments", "at least one set of moments");
  if (request.has_step()) {
    update.step = StepId{request.step().client_id(), request.step().sequence()};
    NORMD_RETURN_IF_ERROR(ValidateStepId(*update.step));
  }
  update.expected_version = ExpectedVersion(request);
  return update;
}

absl::Status AddPooled(const Session& session, const v1::CommitMomentsRequest& request, StateUpdate* update) {
  update->epoch = session.epoch;
  if (!session.spec.HasState()) {
    return NotAllowedError("session", Concat(Info(session.spec.method()).name, " has no running state"));
  }
  NORMD_ASSIGN_OR_RETURN(update->moments, Pool(session.spec.method(), request));
  return absl::OkStatus();
}

SessionStore::Done<CommitResult> ReplyWithResult(Reply reply) {
  return [reply = std::move(reply)](absl::StatusOr<CommitResult> result) mutable {
    if (!result.ok()) return reply(result.status());
    v1::StateResult message;
    EncodeCommitResult(*result, /*output_available=*/false, &message);  // there is no output
    reply(Serialize(message));
  };
}

// A commit whose session has been read. Holds what it needs until it is answered.
struct PoolingCommit {
  Engine* engine;
  Reply reply;
  Parsed<v1::CommitMomentsRequest> request;
  StateUpdate update;

  void operator()(const SessionPtr& session) {
    const absl::Status pooled = AddPooled(*session, *request, &update);
    if (!pooled.ok()) return reply(pooled);
    engine->sessions().Commit(std::move(update), ReplyWithResult(std::move(reply)));
  }
};

void CommitMoments(Engine* engine, Parsed<v1::CommitMomentsRequest> request, Reply reply) {
  absl::StatusOr<StateUpdate> update = DecodeCommit(*request);
  reply.observation().DecodeDone();
  if (!update.ok()) return reply(update.status());
  update->cancelled = reply.Cancelled();
  std::string id = update->id;
  SessionStore::Cancelled cancelled = update->cancelled;
  const int64_t bytes = reply.observation().record().request_bytes;
  PoolingCommit commit = {engine, std::move(reply), std::move(request), *std::move(update)};
  engine->sessions().Get(std::move(id), absl::ZeroDuration(), std::move(cancelled),
                         [bytes, commit = std::move(commit)](absl::StatusOr<SessionPtr> session) mutable {
                           if (!session.ok()) return commit.reply(session.status());
                           // Not on the thread that answers for the store.
                           WorkPool& pool = commit.engine->work_pool();
                           pool.RunIfLarge(bytes, [commit = std::move(commit),
                                                   session = *std::move(session)]() mutable { commit(session); });
                         });
}

// A unary method of this service from a handler (request, reply).
template <typename Request, typename Handler>
Route SessionRoute(const RouteContext* context, const char* name, Handler handler) {
  return Unary<Request>(context, Concat("/normd.v1.Sessions/", name),
                        [handler](Parsed<Request> request, Reply reply) { handler(*request, std::move(reply)); });
}

}  // namespace

std::vector<Route> SessionsRoutes(const RouteContext* context, const GrpcServerOptions* options, Engine* engine) {
  SessionStore* const store = &engine->sessions();
  return {
      SessionRoute<v1::CreateSessionRequest>(
          context, "CreateSession",
          [engine](const auto& request, Reply reply) { CreateSession(engine, request, std::move(reply)); }),
      SessionRoute<v1::GetSessionRequest>(context, "GetSession",
                                          [context, engine](const auto& request, Reply reply) {
                                            GetSession(context, engine, request, std::move(reply));
                                          }),
      SessionRoute<v1::ListSessionsRequest>(context, "ListSessions",
                                            [context, store](const auto& request, Reply reply) {
                                              ListSessions(context, store, request, std::move(reply));
                                            }),
      SessionRoute<v1::UpdateSessionRequest>(
          context, "UpdateSession",
          [engine](const auto& request, Reply reply) { UpdateSession(engine, request, std::move(reply)); }),
      SessionRoute<v1::ResetSessionRequest>(
          context, "ResetSession",
          [store](const auto& request, Reply reply) { ResetSession(store, request, std::move(reply)); }),
      SessionRoute<v1::ForkSessionRequest>(
          context, "ForkSession",
          [store](const auto& request, Reply reply) { ForkSession(store, request, std::move(reply)); }),
      SessionRoute<v1::DeleteSessionRequest>(
          context, "DeleteSession",
          [store](const auto& request, Reply reply) { DeleteSession(store, request, std::move(reply)); }),
      Unary<v1::CommitMomentsRequest>(context, "/normd.v1.Sessions/CommitMoments",
                                      [engine](Parsed<v1::CommitMomentsRequest> request, Reply reply) {
                                        CommitMoments(engine, std::move(request), std::move(reply));
                                      }),
      ExportSessionRoute(context, "/normd.v1.Sessions/ExportSession", options->export_chunk_bytes, store),
      ImportSessionRoute(context, "/normd.v1.Sessions/ImportSession", store),
  };
}

}  // namespace normd::rpc
