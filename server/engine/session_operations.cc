// The session operations of Engine, and the checks before a store sees a session: those of spec, channels and
// parameters that need no tensor.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "kernels/methods.h"
#include "server/base/error_reasons.h"
#include "server/engine/engine.h"
#include "server/engine/step_report.h"
#include "server/session/running_state.h"
#include "server/session/session_changes.h"
#include "server/session/session_checks.h"

namespace normd {

namespace {

// Whatever is in memory will do.
constexpr absl::Duration kAnyStaleness = absl::Hours(1);

constexpr std::string_view kSessionField = "session.";  // prefix of fields in requests that carry a session

absl::Status CheckChannels(const Session& session) {
  const NormSpec& spec = session.spec;
  const int64_t channels = session.num_channels;
  if (channels < 0 || (channels == 0 && spec.HasState())) {
    return OutOfRangeError("num_channels", Concat(channels), "at least 1 for a method with running state",
                           ServerReason("CHANNELS_OUT_OF_RANGE"));
  }
  if (channels != 0 && !TraitsOf(spec.method()).has_channels) {
    return OutOfRangeError("num_channels", Concat(channels),
                           Concat("0, because ", Info(spec.method()).name, " has no channels"),
                           ServerReason("CHANNELS_OUT_OF_RANGE"));
  }
  return absl::OkStatus();
}

// The smallest x whose plan has the parameters that every x of this session will have; nothing if they depend on x.
std::optional<Shape> ShapeForParameters(const Session& session) {
  const NormSpec& spec = session.spec;
  if (TraitsOf(spec.method()).has_channels) {
    if (session.num_channels == 0) return std::nullopt;
    return Shape{1, session.num_channels};
  }
  if (const absl::Span<const int64_t> shape = spec.normalized_shape(); !shape.empty()) {
    return Shape(shape.begin(), shape.end());
  }
  const int rank = TraitsOf(spec.method()).parameter_shape_rank;
  return rank == 0 ? std::nullopt : std::optional<Shape>(Shape(static_cast<size_t>(rank), 1));
}

absl::Status CheckTensor(const TensorView& view, std::string_view field) {
  if (!view.present()) return absl::OkStatus();
  if (SizeOf(view.dtype) == 0) return DTypeError(Concat(field, ".dtype"), Concat(static_cast<int>(view.dtype)));
  NORMD_ASSIGN_OR_RETURN(const int64_t elements, CheckedElementCount(view.shape, field));
  const int64_t want = elements * SizeOf(view.dtype);
  if (view.size_bytes == want) return absl::OkStatus();
  return ByteCountError(field, view.size_bytes, want, Name(view.dtype), ShapeText(view.shape));
}

absl::Status CheckSessionParameters(const Session& session, const std::optional<OwnedTensor>& weight,
                                    const std::optional<OwnedTensor>& bias) {
  ParameterViews views;
  if (weight.has_value()) views.weight = weight->View();
  if (bias.has_value()) views.bias = bias->View();
  NORMD_RETURN_IF_ERROR(CheckTensor(views.weight, "parameters.weight"));
  NORMD_RETURN_IF_ERROR(CheckTensor(views.bias, "parameters.bias"));
  if (!TraitsOf(session.spec.method()).takes_parameters && (views.weight.present() || views.bias.present())) {
    return NotAllowedError(views.weight.present() ? "parameters.weight" : "parameters.bias",
                           Concat(Info(session.spec.method()).name, " takes no parameters"));
  }
  if (const std::optional<Shape> shape = ShapeForParameters(session); shape.has_value()) {
    NORMD_ASSIGN_OR_RETURN(const NormPlan plan,
                           MakePlan(session.spec, DType::kF32, *shape,
                                    {.mode = Mode::kInference, .given_statistics = session.spec.HasState()}));
    return CheckParameters(plan, views);
  }
  if (!views.weight.present() || !views.bias.present()) return absl::OkStatus();
  const int64_t weights = ElementCount(views.weight.shape);
  const int64_t biases = ElementCount(views.bias.shape);
  return weights == biases ? absl::OkStatus() : ParameterLengthError("parameters.bias", biases, weights);
}

absl::Status CheckTtl(const std::optional<absl::Duration>& ttl) {
  if (!ttl.has_value() || *ttl > absl::ZeroDuration()) return absl::OkStatus();
  return OutOfRangeError("ttl", absl::FormatDuration(*ttl), "above 0", ServerReason("TTL_OUT_OF_RANGE"));
}

// Fills in what a given state may leave out, and checks the whole.
absl::Status ValidateGivenState(const Session& session) {
  // Nothing else may be left out, and so nothing is copied.
  if (!session.spec.running().CountsSamples()) {
    return ValidateState(session.spec, session.num_channels, session.state);
  }
  Session filled = session;
  FillState(&filled);
  return ValidateState(filled.spec, filled.num_channels, filled.state);
}

// A session that is made waits for its turn to be written, and is copied then.
constexpr int64_t kCopiesOfNewSession = 2;

// The running state of a new session, of which the request has no byte.
int64_t StatisticsBytes(const Session& session) {
  return StateVectorsOf(session.spec) * SizeOf(DType::kF64) * session.num_channels;
}

absl::Status ReserveForNew(const SessionStore::Reserve& reserve, int64_t bytes) {
  return reserve == nullptr || bytes == 0 ? absl::OkStatus() : reserve(kCopiesOfNewSession * bytes);
}

}  // namespace

absl::Status Engine::ValidateNewSession(const Session& session) const {
  NORMD_RETURN_IF_ERROR(PrefixField(ValidateSpec(session.spec), "spec"));
  NORMD_RETURN_IF_ERROR(CheckChannels(session));
  const OwnedParameters none;
  const OwnedParameters& parameters = session.parameters == nullptr ? none : *session.parameters;
  // First, so that too many channels are refused for the right reason and not by a plan.
  NORMD_RETURN_IF_ERROR(CheckSessionSize(session, parameters, sessions_->limits()));
  NORMD_RETURN_IF_ERROR(CheckSessionParameters(session, parameters.weight, parameters.bias));
  if (session.channel_names != nullptr) {
    NORMD_RETURN_IF_ERROR(ValidateChannelNames(*session.channel_names, session.num_channels));
  }
  NORMD_RETURN_IF_ERROR(CheckCounter(session.state.num_batches, "state.num_batches"));
  if (ValuesOf(session.state) > 0) NORMD_RETURN_IF_ERROR(ValidateGivenState(session));
  return CheckTtl(session.ttl);
}

absl::Status Engine::ValidatePatch(const Session& session, const SessionPatch& patch) const {
  if (patch.ttl.has_value()) NORMD_RETURN_IF_ERROR(CheckTtl(*patch.ttl));
  return CheckSessionParameters(session, patch.weight.value_or(session.parameters->weight),
                                patch.bias.value_or(session.parameters->bias));
}

void Engine::CreateSession(Session session, SessionStore::Reserve reserve, SessionDone<SessionPtr> done) {
  const absl::Status valid = ValidateNewSession(session);
  if (!valid.ok()) return done(PrefixField(valid, kSessionField));
  // A number of channels is a few bytes of the request, however much memory it leads to.
  const int64_t bytes = StatisticsBytes(session);
  const absl::Status held = ReserveForNew(reserve, bytes);
  if (!held.ok()) return done(held);
  resources_->work_pool.RunIfLarge(bytes, [this, session = std::move(session), done = std::move(done)]() mutable {
    sessions_->Create(std::move(session), std::move(done));
  });
}

void Engine::GetSession(std::string id, SessionStore::Cancelled cancelled, SessionDone<SessionPtr> done) {
  sessions_->Get(std::move(id), absl::ZeroDuration(), std::move(cancelled), std::move(done));
}

void Engine::GetKnownSession(std::string id, SessionDone<SessionPtr> done) {
  sessions_->Get(std::move(id), kAnyStaleness, std::move(done));
}

Engine::SessionDone<SessionPtr> Engine::Reporting(const std::string& id, SessionDone<SessionPtr> done) {
  return [this, id, done = std::move(done)](absl::StatusOr<SessionPtr> session) mutable {
    if (session.ok()) changes_.Report(id);
    done(std::move(session));
  };
}

void Engine::ListSessions(ListQuery query, SessionDone<ListPage> done) {
  sessions_->List(std::move(query), std::move(done));
}

void Engine::UpdateSession(std::string id, SessionPatch patch, SessionDone<SessionPtr> done) {
  std::string read = id;
  // Parameter lengths depend on the spec, which never changes while the session keeps its uid.
  sessions_->Get(std::move(read), absl::ZeroDuration(),
                 [this, id = std::move(id), patch = std::move(patch),
                  done = std::move(done)](absl::StatusOr<SessionPtr> session) mutable {
                   if (!session.ok()) return done(session.status());
                   const absl::Status valid = ValidatePatch(**session, patch);
                   if (!valid.ok()) return done(PrefixField(valid, kSessionField));
                   patch.uid = (*session)->uid;
                   // The store copies the whole session, however little changes.
                   const int64_t bytes = QuotaBytes(**session);
                   resources_->work_pool.RunIfLarge(
                       bytes, [this, id = std::move(id), patch = std::move(patch), done = std::move(done)]() mutable {
                         auto reporting = Reporting(id, std::move(done));
                         sessions_->Update(std::move(id), std::move(patch), std::move(reporting));
                       });
                 });
}

void Engine::ResetSession(std::string id, std::optional<uint64_t> expected_version, SessionDone<SessionPtr> done) {
  // Only the store knows how large the session is.
  resources_->work_pool.Run([this, id = std::move(id), expected_version, done = std::move(done)]() mutable {
    auto reporting = Reporting(id, std::move(done));
    sessions_->Reset(std::move(id), expected_version, std::move(reporting));
  });
}

void Engine::ForkSession(std::string id, Fork fork, SessionStore::Reserve reserve, SessionDone<SessionPtr> done) {
  sessions_->Get(std::move(id), absl::ZeroDuration(),
                 [this, fork = std::move(fork), reserve = std::move(reserve),
                  done = std::move(done)](absl::StatusOr<SessionPtr> origin) mutable {
                   if (!origin.ok()) return done(origin.status());
                   const int64_t bytes = QuotaBytes(**origin);
                   const absl::Status held = ReserveForNew(reserve, bytes);
                   if (!held.ok()) return done(held);
                   resources_->work_pool.RunIfLarge(bytes, [this, origin = *std::move(origin), fork = std::move(fork),
                                                            done = std::move(done)]() mutable {
                     Session session = *origin;
                     session.id = std::move(fork.id);
                     session.frozen = fork.frozen;
                     session.version = 0;
                     session.parameters_version = 0;
                     sessions_->Create(std::move(session), std::move(done));
                   });
                 });
}

void Engine::DeleteSession(std::string id, std::optional<uint64_t> expected_version, SessionDone<SessionPtr> done) {
  auto reporting = Reporting(id, std::move(done));
  sessions_->Delete(std::move(id), expected_version, std::move(reporting));
}

void Engine::ReadCommitted(const Session& before, CommitResult result, SessionDone<PooledReply> done) {
  // The uid says whether it is still the same life of the session.
  GetKnownSession(before.id,
                  [result = std::move(result), done = std::move(done)](absl::StatusOr<SessionPtr> session) mutable {
                    // A reply without the state says that the session is gone. Where the store cannot say that, the
                    // step is sent again and answered as a replay.
                    if (!session.ok() && !absl::IsNotFound(session.status())) return done(session.status());
                    PooledReply reply = {.result = std::move(result), .session = nullptr};
                    if (session.ok() && (*session)->uid == reply.result.uid) reply.session = *std::move(session);
                    done(std::move(reply));
                  });
}

void Engine::CommitMoments(PooledStep step, SessionDone<PooledReply> done) {
  std::string id = step.session;
  SessionStore::Cancelled cancelled = step.cancelled;
  sessions_->Get(
      std::move(id), absl::ZeroDuration(), std::move(cancelled),
      [this, step = std::move(step), done = std::move(done)](absl::StatusOr<SessionPtr> session) mutable {
        if (!session.ok()) return done(session.status());
        const int64_t bytes = WorkOf(step.parts);
        // Not on the store's callback thread.
        resources_->work_pool.RunIfLarge(bytes, [this, session = *std::move(session), step = std::move(step),
                                                 done = std::move(done)]() mutable {
          const bool want_state = step.want_state;
          absl::StatusOr<StateUpdate> update = UpdateOf(*session, std::move(step));
          if (!update.ok()) return done(update.status());
          if (observer_.on_not_finite != nullptr && !AllFinite(update->moments)) observer_.on_not_finite();
          // The store takes what the report needs.
          auto reported = std::make_shared<const MomentsPart>(
              MomentsPart{.moments = update->moments, .details = {.extremes = {}, .samples = update->details.samples}});
          sessions_->Commit(*std::move(update), [this, session = std::move(session), reported, want_state,
                                                 done = std::move(done)](absl::StatusOr<CommitResult> result) mutable {
            if (!result.ok()) return done(result.status());
            ReportStep(observer_, *session, reported->moments, reported->details.samples, *result);
            if (result->applied) changes_.Report(session->id);
            if (want_state) return ReadCommitted(*session, *std::move(result), std::move(done));
            done(PooledReply{.result = *std::move(result), .session = nullptr});
          });
        });
      });
}

void Engine::ExportSession(std::string id, SessionStore::Reserve reserve, SessionDone<std::string> done) {
  resources_->work_pool.Run([this, id = std::move(id), reserve = std::move(reserve), done = std::move(done)]() mutable {
    sessions_->Export(std::move(id), std::move(reserve), std::move(done));
  });
}

void Engine::ImportSession(std::string id, std::string record, SessionDone<SessionPtr> done) {
  const auto bytes = static_cast<int64_t>(record.size());
  resources_->work_pool.RunIfLarge(
      bytes, [this, id = std::move(id), record = std::move(record), done = std::move(done)]() mutable {
        sessions_->Import(std::move(id), std::move(record), std::move(done));
      });
}

}  // namespace normd
