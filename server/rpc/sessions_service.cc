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

absl::StatusOr<grpc::ByteBuffer> GetSession(SessionStore& store, const v1::GetSessionRequest& request) {
  NORMD_ASSIGN_OR_RETURN(const std::string id, DecodeSessionName(request.name(), "name"));
  NORMD_ASSIGN_OR_RETURN(const v1::SessionView view, DecodeView(request.view()));
  NORMD_ASSIGN_OR_RETURN(const SessionPtr session, store.Get(id));
  return EncodeSession(*session, store, view);
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

absl::StatusOr<grpc::ByteBuffer> ListSessions(SessionStore& store, const v1::ListSessionsRequest& request) {
  NORMD_ASSIGN_OR_RETURN(const v1::SessionView view, DecodeView(request.view()));
  NORMD_ASSIGN_OR_RETURN(ListQuery query, DecodeListQuery(request));
  const auto page_size = static_cast<size_t>(query.page_size);
  ++query.page_size;  // one more tells whether there is a next page
  const std::vector<SessionPtr> sessions = store.List(query);
  v1::ListSessionsResponse response;
  size_t bytes = 0;
  size_t taken = 0;
  for (; taken < std::min(sessions.size(), page_size) && (taken == 0 || bytes < kMaxPageBytes); ++taken) {
    v1::Session* const message = response.add_sessions();
    SessionToMessage(*sessions[taken], store.durability(), view, message);
    bytes += message->ByteSizeLong();
  }
  if (taken < sessions.size()) {
    response.set_next_page_token(EncodePageToken(request.filter(), sessions[taken - 1]->id));
  }
  return Serialize(response);
}

// The session's id with its patch.
absl::StatusOr<std::pair<std::string, SessionPatch>> DecodeUpdate(const v1::UpdateSessionRequest& request,
                                                                  Engine* engine) {
  NORMD_ASSIGN_OR_RETURN(std::string id, DecodeSessionName(request.session().name(), "session.name"));
  absl::StatusOr<SessionPatch> patch = PatchFromMessage(request);
  if (!patch.ok()) {
    // The mask is beside the session, everything else is inside.
    const std::optional<ErrorDetail> detail = GetErrorDetail(patch.status());
    const bool in_mask = detail.has_value() && detail->field == "update_mask";
    return in_mask ? patch.status() : PrefixField(patch.status(), "session.");
  }
  NORMD_ASSIGN_OR_RETURN(const SessionPtr session, engine->sessions().Get(id));
  if (const absl::Status status = engine->ValidatePatch(*session, *patch); !status.ok()) {
    return PrefixField(status, "session.");
  }
  return std::make_pair(std::move(id), *std::move(patch));
}

void UpdateSession(Engine* engine, const v1::UpdateSessionRequest& request, Reply reply) {
  absl::StatusOr<std::pair<std::string, SessionPatch>> update = DecodeUpdate(request, engine);
  reply.observation().DecodeDone();
  if (!update.ok()) return reply(update.status());
  engine->sessions().Update(std::move(update->first), std::move(update->second),
                            ReplyWithSession(engine->sessions(), std::move(reply)));
}

void ResetSession(SessionStore* store, const v1::ResetSessionRequest& request, Reply reply) {
  absl::StatusOr<std::string> id = DecodeSessionName(request.name(), "name");
  if (!id.ok()) return reply(id.status());
  store->Reset(*std::move(id), ExpectedVersion(request), ReplyWithSession(*store, std::move(reply)));
}

// A fork starts with the state, parameters and labels of its origin, at version 0 and without its step ids: it is
// another layer from then on.
absl::StatusOr<Session> DecodeFork(SessionStore& store, const v1::ForkSessionRequest& request) {
  NORMD_ASSIGN_OR_RETURN(const std::string id, DecodeSessionName(request.name(), "name"));
  if (!request.session_id().empty()) NORMD_RETURN_IF_ERROR(ValidateSessionId(request.session_id()));
  NORMD_ASSIGN_OR_RETURN(const SessionPtr origin, store.Get(id));
  Session fork = *origin;
  fork.id = request.session_id();
  fork.version = 0;
  fork.parameters_version = 0;
  return fork;
}

void ForkSession(SessionStore* store, const v1::ForkSessionRequest& request, Reply reply) {
  absl::StatusOr<Session> fork = DecodeFork(*store, request);
  if (!fork.ok()) return reply(fork.status());
  store->Create(*std::move(fork), ReplyWithSession(*store, std::move(reply)));
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

absl::StatusOr<StateUpdate> DecodeCommit(SessionStore& store, const v1::CommitMomentsRequest& request) {
  StateUpdate update;
  NORMD_ASSIGN_OR_RETURN(update.id, DecodeSessionName(request.session(), "session"));
  if (request.moments().empty()) return MissingError("moments", "at least one set of moments");
  if (request.has_step()) {
    update.step = StepId{request.step().client_id(), request.step().sequence()};
    NORMD_RETURN_IF_ERROR(ValidateStepId(*update.step));
  }
  update.expected_version = ExpectedVersion(request);
  NORMD_ASSIGN_OR_RETURN(const SessionPtr session, store.Get(update.id));
  update.epoch = session->epoch;
  if (!session->spec.HasState()) {
    return NotAllowedError("session", Concat(Info(session->spec.method).name, " has no running state"));
  }
  NORMD_ASSIGN_OR_RETURN(update.moments, Pool(session->spec.method, request));
  return update;
}

void CommitMoments(SessionStore* store, const v1::CommitMomentsRequest& request, Reply reply) {
  absl::StatusOr<StateUpdate> update = DecodeCommit(*store, request);
  reply.observation().DecodeDone();
  if (!update.ok()) return reply(update.status());
  store->Commit(*std::move(update), [reply = std::move(reply)](absl::StatusOr<CommitResult> result) mutable {
    if (!result.ok()) return reply(result.status());
    v1::StateResult message;
    EncodeCommitResult(*result, /*output_available=*/false, &message);  // there is no output
    reply(Serialize(message));
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
          context, "GetSession", [store](const auto& request, Reply reply) { reply(GetSession(*store, request)); }),
      SessionRoute<v1::ListSessionsRequest>(
          context, "ListSessions", [store](const auto& request, Reply reply) { reply(ListSessions(*store, request)); }),
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
      SessionRoute<v1::CommitMomentsRequest>(
          context, "CommitMoments",
          [store](const auto& request, Reply reply) { CommitMoments(store, request, std::move(reply)); }),
      ExportSessionRoute(context, "/normd.v1.Sessions/ExportSession", options->export_chunk_bytes, store),
      ImportSessionRoute(context, "/normd.v1.Sessions/ImportSession", store),
  };
}

}  // namespace normd::rpc
