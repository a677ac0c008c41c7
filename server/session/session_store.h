// Versioned state of sessions: the contract that MemoryStore and DurableStore (over SQLite or PostgreSQL) implement,
// and that one conformance suite tests for all of them.
// In the path: the engine reads published snapshots and commits updates; nothing else touches state. The rules behind
// Commit are listed in stored_session.h.
// Threads: every method is safe from any thread and none waits for a disk or a network. Done callbacks run exactly
// once, without locks held, inline or on a store thread.
#ifndef NORMD_SERVER_SESSION_SESSION_STORE_H_
#define NORMD_SERVER_SESSION_SESSION_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/exact_sums/group_sums.h"
#include "kernels/moments.h"
#include "kernels/plan.h"
#include "kernels/tensor.h"
#include "server/base/tenant_quotas.h"
#include "server/base/wait_stats.h"

namespace normd {

enum class Durability : uint8_t { kMemory = 1, kProcess = 2, kPower = 3 };  // the wire's numbers
enum class Reason : uint8_t { kApplied = 1, kNonFinite = 2, kValidateOnly = 3, kInference = 4 };

// A tensor that owns its bytes: a parameter of a session.
struct OwnedTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::string bytes;

  // The view borrows from this tensor.
  TensorView View() const;
};

struct OwnedParameters {
  std::optional<OwnedTensor> weight;
  std::optional<OwnedTensor> bias;
};

// Running state of one session, in f64. The spec decides which vectors are used; the others are empty.
struct RunningState {
  std::vector<double> mean, var;  // BatchNorm, tracking InstanceNorm
  std::vector<double> phi;        // PowerNorm
  // Weighting::kSamples, whose `var` follows from count and m2 (DeriveVariance).
  std::vector<double> count, m2;
  // What rounding count, mean and m2 to f64 left out of the statistics: these are count + count_low and so on, to
  // 2^-100 of the samples, so that the order of contributions does not show. Stored, and not on the wire. Empty: 0.
  std::vector<double> count_low, mean_low, m2_low;
  std::vector<double> min, max;  // +Inf and -Inf while there is no sample; NaN: not known
  uint64_t num_batches = 0;      // steps counted; PowerNorm calls them iters
};

// The number of values in the vectors of `state`, without the low ones: sizes that stores have recorded stay as they
// were before there were low ones.
int64_t ValuesOf(const RunningState& state);
// The number of values in the low vectors.
int64_t LowValuesOf(const RunningState& state);
// The number of vectors that the state of `spec` has; 0 for a spec without running state.
int StateVectorsOf(const NormSpec& spec);

// The initial state of `spec` with `channels` channels: mean 0, var 1, phi 1; kSamples begins with its prior.
RunningState InitialState(const NormSpec& spec, int64_t channels);

// Identifies a training step. `sequence` rises from step to step of a client.
struct StepId {
  std::string client_id;
  uint64_t sequence = 0;
};

// A published, immutable snapshot of a session.
struct Session {
  std::string id;   // the session's key (session_key.h): for the default tenant, the id without "sessions/"
  std::string uid;  // one life of the id: a session that is deleted and created again has another uid
  uint64_t version = 0;
  uint64_t parameters_version = 0;  // +1 when parameters change; (uid, parameters_version) keys prepared parameters
  NormSpec spec;
  int64_t num_channels = 0;
  std::optional<DType> default_dtype;
  std::map<std::string, std::string> labels;
  std::shared_ptr<const OwnedParameters> parameters;  // never null
  // One for each channel, or none. Shared, because all versions of a session have the same; null: none.
  std::shared_ptr<const std::vector<std::string>> channel_names;
  bool frozen = false;  // refuses every change but its deletion
  RunningState state;
  absl::Time create_time, update_time;
  std::optional<absl::Duration> ttl;
  std::string numerics;
};
using SessionPtr = std::shared_ptr<const Session>;

// What a step has besides its moments.
struct SampleDetails {
  Extremes extremes;  // kSamples alone; empty: not known
  // How many samples the moments of each channel are of, where their count is a sum of weights (RunningStatistics.decay
  // of proto/normd/v1/norm.proto). kSamples alone; empty: as many as the count.
  std::vector<double> samples;
  // The exact sums of the batch, one for each of the moments, which are the nearest to them: the step makes the nearest
  // running statistics. Null: it makes them of the moments, in f64.
  std::shared_ptr<const GroupSums> exact = nullptr;
};

// The contribution of one training step, in the form that the method of the session needs.
// BatchNorm: one Moment per channel over the batch. InstanceNorm: one per instance, N * C in the order (n, c).
// PowerNorm: one per channel, with mean 0 and m2 the sum of squares of the group-scaled values.
// kSamples: one per channel. A channel without samples (count 0) may have anything.
struct StateUpdate {
  std::string id;
  // The uid of the session that the moments were computed for: NOT_FOUND if another session has the id now. Empty: any.
  std::string uid;
  Moments moments;
  // PowerNorm: v of each channel, rounded once, for the output of the step. NaN, or empty: m2 / count of the moments.
  std::vector<double> mean_squares = {};
  SampleDetails details;
  std::optional<StepId> step;
  std::optional<uint64_t> expected_version;
  std::optional<uint64_t> moments_hash;  // HashMoments(moments, details), if a store has computed it already
  // Asked before the update joins a group; true drops the update with CANCELLED. Later the update is applied, and a
  // caller that went away learns the outcome by sending its StepId again. Null: never cancelled.
  std::function<bool()> cancelled;
};

// The outcome of one training step.
struct CommitResult {
  uint64_t version = 0;
  std::string uid;
  bool applied = false;
  Reason reason = Reason::kApplied;
  bool replayed = false;
  Durability durability = Durability::kMemory;
  uint64_t num_batches = 0;
  // What the output of this step is normalised with, where the commit decides that (CommitGivesStatistics). Empty if a
  // replay is too old for it to be known; the output is then not available.
  // PowerNorm: the output is divided by sqrt(divisor + eps). The divisor is v while iters <= warmup_iters, then the phi
  // before the step. NormalizeWith::kRunning: the running mean and variance after the step.
  std::vector<double> mean, divisor;
  // kSamples: the channels with samples whose mean or m2 was not finite, which are as they were.
  std::vector<int64_t> skipped_channels;
};

struct SessionLimits {
  int64_t max_sessions = 100'000;
  int64_t max_parameter_bytes = 64 << 20;
  int64_t max_total_bytes = int64_t{64} << 30;                // QuotaBytes of all sessions
  std::string_view total_bytes_option = "--max_total_bytes";  // which sets it; a literal
  int64_t max_clients = 1024;            // per session, with their outcomes; the longest silent retire
  int64_t max_retired_clients = 65'536;  // per session, with their last sequence
  int64_t replay_window = 16;            // K outcomes kept per client
  TenantQuotaTable* quotas = nullptr;    // of tenants; borrowed. Null: tenants have no limits of their own
};

// How much of a store is kept in memory; a MemoryStore keeps everything.
struct ResidencyLimits {
  int64_t max_bytes = int64_t{1} << 30;             // beyond it the least recently used sessions leave memory
  absl::Duration idle_timeout = absl::Minutes(10);  // a session that is not used for this long leaves memory
};

struct ListQuery {
  int page_size = 100;
  std::string after_id;                       // exclusive, a key; a page lists keys in rising order
  std::map<std::string, std::string> labels;  // all must match
  bool whole = false;                         // with parameters and statistics
  int64_t max_bytes = int64_t{3} << 20;       // if `whole`: of one page, which has one session in any case
  std::string tenant;                         // whose sessions; empty: the default tenant's
  bool all_tenants = false;                   // everybody's, whatever `tenant` says
};

struct ListPage {
  std::vector<SessionPtr> sessions;  // may lack parameters and statistics unless the query was for `whole`
  std::string next_after;            // after_id of the next page; empty: this is the last page
  int64_t damaged = 0;               // records of the page that could not be read and are left out
};

// Changes to a session. An absent field leaves its value as it is.
struct SessionPatch {
  std::string uid;  // of the session that the patch was validated against, as in StateUpdate; empty: any
  std::optional<std::optional<OwnedTensor>> weight, bias;  // the inner one absent: removes the parameter
  std::optional<std::map<std::string, std::string>> labels;
  std::optional<std::optional<absl::Duration>> ttl;
  bool freeze = false;
  std::optional<uint64_t> expected_version;
};

// The sessions of one tenant.
struct SessionTotals {
  int64_t sessions = 0;
  int64_t bytes = 0;  // QuotaBytes of these sessions
};
using TotalsByTenant = std::map<std::string, SessionTotals, std::less<>>;

// Statistics of a store; those of its parts are moments apart. Counters count since the store was opened.
struct StoreStats {
  int64_t sessions = 0;
  int64_t bytes = 0;  // QuotaBytes of all sessions
  int64_t resident_sessions = 0;
  int64_t resident_bytes = 0;
  int64_t loads = 0;          // sessions read into memory
  int64_t evictions = 0;      // sessions that left memory but not the store
  int64_t expired = 0;        // sessions deleted because their ttl ended
  int64_t groups = 0;         // transactions committed
  int64_t rows = 0;           // rows written by them
  int64_t conflicts = 0;      // changes tried again because another replica wrote first
  int64_t damaged = 0;        // records read with a wrong checksum or wrong content
  int64_t log_bytes = 0;      // of the write-ahead log's file
  WaitStats changes;          // waiting for a transaction
  WaitStats reads;            // sessions and lists waiting to be read
  bool file_damaged = false;  // the file that holds the records is damaged: unknown sessions may be lost ones
  int64_t failed_groups = 0;
};

class SessionStore {
 public:
  template <typename T>
  using Done = absl::AnyInvocable<void(absl::StatusOr<T>)>;
  using Cancelled = std::function<bool()>;                     // as in StateUpdate
  using Reserve = std::function<absl::Status(int64_t bytes)>;  // asked before memory is taken; null: always OK

  virtual ~SessionStore() = default;
  virtual Durability durability() const = 0;
  // As they are now; SetLimits changes them.
  virtual SessionLimits limits() const = 0;
  // Changes the limits of later requests; sessions that are over a new limit stay. A step log is cut to a smaller limit
  // with its session's next step.
  virtual void SetLimits(const SessionLimits& limits, const ResidencyLimits& residency) = 0;
  virtual StoreStats stats() const = 0;
  // The sessions of each tenant that has some; those of the default tenant are under the empty name. Where several
  // servers share a store, recent changes by others may be missing.
  virtual TotalsByTenant tenant_totals() const = 0;

  // The published snapshot, at most `max_staleness` behind what any replica has published. NOT_FOUND for unknown and
  // expired ids, DATA_LOSS for a damaged record, UNAVAILABLE if the store cannot be read, RESOURCE_EXHAUSTED if too
  // many reads wait. A read that is cancelled before it is made ends with CANCELLED.
  virtual void Get(std::string id, absl::Duration max_staleness, Cancelled cancelled, Done<SessionPtr> done) = 0;
  void Get(std::string id, absl::Duration max_staleness, Done<SessionPtr> done) {
    Get(std::move(id), max_staleness, /*cancelled=*/nullptr, std::move(done));
  }
  // A page of sessions in the order of their ids. Damaged records are left out and counted. UNAVAILABLE if the store
  // cannot be read, RESOURCE_EXHAUSTED if too many lists wait.
  virtual void List(ListQuery query, Done<ListPage> done) = 0;

  // Creates a session. `session` carries id (a SessionKey without an id: the store chooses one), spec, channels,
  // labels, parameters, ttl and, where it does not start anew, state, versions and numerics; the store sets uid and
  // times. ALREADY_EXISTS for a taken id, RESOURCE_EXHAUSTED over the limits or the tenant's quotas or with a full
  // queue or disk, INVALID_ARGUMENT for an id, labels or state that cannot be, DATA_LOSS if the id may be that of a
  // session lost with a damaged file, UNAVAILABLE as for Update.
  virtual void Create(Session session, Done<SessionPtr> done) = 0;
  // Applies all of `patch` at once: version + 1, parameters_version + 1 if `patch` names weight or bias, and a new
  // update_time, from which the ttl counts. Uid, state and step ids stay. Done gets the new snapshot when it is
  // durable; on an error other than UNAVAILABLE nothing has changed. NOT_FOUND for unknown and expired ids, ABORTED
  // (expected_version, or another session than that of patch.uid has the id), RESOURCE_EXHAUSTED (parameters or totals
  // over the limits; a full queue or disk), DATA_LOSS for a damaged record, UNAVAILABLE if the store could not be
  // written: the change may have been made. REQUIRES: labels, ttl and the lengths of parameters are valid
  // (Engine::ValidatePatch, ValidateLabels); the store checks sizes only. FAILED_PRECONDITION for a frozen session; so
  // do Reset and Commit.
  virtual void Update(std::string id, SessionPatch patch, Done<SessionPtr> done) = 0;
  // Sets the initial state: version + 1; uid, parameters and step ids stay. Errors as for Update.
  virtual void Reset(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) = 0;
  // Deletes the session with its parameters, state and step ids. Done gets the last snapshot when the deletion is
  // durable, null for a session whose record is damaged. Snapshots that callers hold stay valid; a session created
  // later under the same id is another one, with another uid. NOT_FOUND for unknown and expired ids, ABORTED
  // (expected_version), DATA_LOSS if a version is expected of a damaged record or the id may be that of a session lost
  // with a damaged file, RESOURCE_EXHAUSTED (a full queue or disk), UNAVAILABLE as for Update.
  virtual void Delete(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) = 0;

  // Applies one step exactly once for each StepId; see the guarantees in server/session/README.md. Done runs when the
  // update is durable. NOT_FOUND, FAILED_PRECONDITION (a step id older than the replay window), ABORTED
  // (expected_version), INVALID_ARGUMENT (the same step id with other moments; moments that no batch has; one value per
  // channel), CANCELLED (update.cancelled), RESOURCE_EXHAUSTED (a full queue or disk), DATA_LOSS (a damaged record),
  // UNAVAILABLE (the store could not be written: a step with an id may be sent again, whatever became of it).
  virtual void Commit(StateUpdate update, Done<CommitResult> done) = 0;

  // Export returns the whole session, step ids included, as a serialised normd.store.v1.SessionRecord. `reserve` is
  // asked before the record is made, for the bytes that making it takes. The record does not say whose the session
  // was. Errors as for Get, and those of `reserve`.
  // Import creates a session from such a record, under `id` or, if that is a SessionKey without an id, under the
  // record's id for the same tenant; the session gets a new uid, and keeps version, state and step ids. DATA_LOSS for a
  // wrong checksum, FAILED_PRECONDITION for an unknown schema; otherwise errors as for Create.
  virtual void Export(std::string id, Reserve reserve, Done<std::string> done) = 0;
  virtual void Import(std::string id, std::string record, Done<SessionPtr> done) = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_SESSION_STORE_H_
