#include "server/rpc/sessions_service.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

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
#include "server/session/session_checks.h"

namespace normd::rpc {
namespace {

constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;
// A page of FULL views ends early rather than to grow over what ordinary stubs accept.
constexpr size_t kMaxPageBytes = size_t{3} << 20;

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
  reply.observation().record().norm_method = Info(session->spec.method).name;
  engine->sessions().Create(*std::move(session), ReplyWithSession(engine->sessions(), std::move(reply)));
}

void GetSession(SessionStore* store, const v1::GetSessionRequest& request, Reply reply) {
  absl::StatusOr<std::string> id = DecodeSessionName(request.name(), "name");
  if (!id.ok()) return reply(id.status());
  const absl::StatusOr<v1::SessionView> view = DecodeView(request.view());
  if (!view.ok()) return reply(view.status());
  store->Get(*std::move(id), absl::ZeroDuration(),
             [store, view = *view, reply = std::move(reply)](absl::StatusOr<SessionPtr> session) mutable {
               if (!session.ok()) return reply(session.status());
               reply(EncodeSession(**session, *store, view));
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

// `sessions` has one more than a page holds where there is a next page.
grpc::ByteBuffer EncodePage(const std::vector<SessionPtr>& sessions, size_t page_size, v1::SessionView view,
                            const std::string& filter, Durability durability) {
  v1::ListSessionsResponse response;
  size_t bytes = 0;
  size_t taken = 0;
  for (; taken < std::min(sessions.size(), page_size) && (taken == 0 || bytes < kMaxPageBytes); ++taken) {
    v1::Session* const message = response.add_sessions();
    SessionToMessage(*sessions[taken], durability, view, message);
    bytes += message->ByteSizeLong();
  }
  if (taken < sessions.size()) response.set_next_page_token(EncodePageToken(filter, sessions[taken - 1]->id));
  return Serialize(response);
}

void ListSessions(SessionStore* store, const v1::ListSessionsRequest& request, Reply reply) {
  const absl::StatusOr<v1::SessionView> view = DecodeView(request.view());
  if (!view.ok()) return reply(view.status());
  absl::StatusOr<ListQuery> query = DecodeListQuery(request);
  if (!query.ok()) return reply(query.status());
  const auto page_size = static_cast<size_t>(query->page_size);
  ++query->page_size;
  store->List(*std::move(query), [durability = store->durability(), view = *view, page_size, filter = request.filter(),
                                  reply = std::move(reply)](absl::StatusOr<std::vector<SessionPtr>> sessions) mutable {
    if (!sessions.ok()) return reply(sessions.status());
    reply(EncodePage(*sessions, page_size, view, filter, durability));
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
  // The lengths of parameters are the spec's to say, which never changes.
  engine->sessions().Get(*id, absl::ZeroDuration(),
                         [engine, id = *id, patch = *std::move(patch),
                          reply = std::move(reply)](absl::StatusOr<SessionPtr> session) mutable {
                           if (!session.ok()) return reply(session.status());
                           const absl::Status valid = engine->ValidatePatch(**session, patch);
                           if (!valid.ok()) return reply(PrefixField(valid, "session."));
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
    if (i == 0 || method == Method::kInstanceNorm) {
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
    return NotAllowedError("session", Concat(Info(session.spec.method).name, " has no running state"));
  }
  NORMD_ASSIGN_OR_RETURN(update->moments, Pool(session.spec.method, request));
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

void CommitMoments(SessionStore* store, Parsed<v1::CommitMomentsRequest> request, Reply reply) {
  absl::StatusOr<StateUpdate> update = DecodeCommit(*request);
  reply.observation().DecodeDone();
  if (!update.ok()) return reply(update.status());
  update->cancelled = reply.Cancelled();
  std::string id = update->id;
  store->Get(std::move(id), absl::ZeroDuration(),
             [store, request = std::move(request), update = *std::move(update),
              reply = std::move(reply)](absl::StatusOr<SessionPtr> session) mutable {
               if (!session.ok()) return reply(session.status());
               const absl::Status pooled = AddPooled(**session, *request, &update);
               if (!pooled.ok()) return reply(pooled);
               store->Commit(std::move(update), ReplyWithResult(std::move(reply)));
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
      SessionRoute<v1::GetSessionRequest>(
          context, "GetSession",
          [store](const auto& request, Reply reply) { GetSession(store, request, std::move(reply)); }),
      SessionRoute<v1::ListSessionsRequest>(
          context, "ListSessions",
          [store](const auto& request, Reply reply) { ListSessions(store, request, std::move(reply)); }),
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
                                      [store](Parsed<v1::CommitMomentsRequest> request, Reply reply) {
                                        CommitMoments(store, std::move(request), std::move(reply));
                                      }),
      ExportSessionRoute(context, "/normd.v1.Sessions/ExportSession", options->export_chunk_bytes, store),
      ImportSessionRoute(context, "/normd.v1.Sessions/ImportSession", store),
  };
}

}  // namespace normd::rpc
