// Versioned state of sessions. One of the three virtual interfaces of normd: MemoryStore and DurableStore (over SQLite
// or PostgreSQL) implement the same contract and pass one conformance suite. In the path: the engine reads published
// snapshots and commits updates; nothing else touches state. Threads: every method is safe from any thread and none
// waits for a disk or a network. Done callbacks run exactly once, without locks held, inline or on a store thread.
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
#include "kernels/moments.h"
#include "kernels/plan.h"
#include "kernels/tensor.h"

namespace normd {

enum class Durability : uint8_t { kMemory = 1, kProcess = 2, kPower = 3 };  // the wire's numbers
enum class Reason : uint8_t { kApplied = 1, kNonFinite = 2, kValidateOnly = 3, kInference = 4 };

// A tensor that owns its bytes: parameters of a session.
struct OwnedTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::string bytes;

  TensorView View() const;
};

struct OwnedParameters {
  std::optional<OwnedTensor> weight;
  std::optional<OwnedTensor> bias;
};

// Running state of one session, f64. Which vectors are used depends on the method; the others are empty.
struct RunningState {
  std::vector<double> mean, var;  // BatchNorm, tracking InstanceNorm
  std::vector<double> phi;        // PowerNorm
  uint64_t num_batches = 0;       // PowerNorm: iters
};

// The initial state of `spec` with `channels` channels: mean 0, var 1, phi 1.
RunningState InitialState(const NormSpec& spec, int64_t channels);

// Identifies a training step. Sequence rises for each client.
struct StepId {
  std::string client_id;
  uint64_t sequence = 0;
};

// A published, immutable snapshot.
struct Session {
  std::string id;   // without "sessions/"
  std::string uid;  // the uid
  uint64_t version = 0;
  uint64_t parameters_version = 0;  // +1 when parameters change: (epoch, this) keys prepared parameters
  NormSpec spec;
  int64_t num_channels = 0;
  std::optional<DType> default_dtype;
  std::map<std::string, std::string> labels;
  std::shared_ptr<const OwnedParameters> parameters;  // never null
  RunningState state;
  absl::Time create_time, update_time;
  std::optional<absl::Duration> ttl;
  std::string numerics;
};
using SessionPtr = std::shared_ptr<const Session>;

// One training step's contribution. Exactly one of the forms the spec needs:
// BatchNorm: `moments`, one per channel over the batch. InstanceNorm: `moments`, N * C instances in order (n, c).
// PowerNorm: `moments` per channel (mean 0, m2 the sum of squares of the group-scaled values).
struct StateUpdate {
  std::string id;
  // The session the moments were computed for: one that was deleted and created again is another. Empty: any.
  std::string uid;
  Moments moments;
  std::optional<StepId> step;
  std::optional<uint64_t> expected_version;
  std::optional<uint64_t> moments_hash;  // HashMoments(moments), where a store has it already
  // Asked before the update joins a group: true drops it with CANCELLED. Later it is applied, and a caller that went
  // away learns by its StepId. Null: never.
  std::function<bool()> cancelled;
};

struct CommitResult {
  uint64_t version = 0;
  std::string uid;
  bool applied = false;
  Reason reason = Reason::kApplied;
  bool replayed = false;
  Durability durability = Durability::kMemory;
  uint64_t num_batches = 0;
  // PowerNorm: what the output of this step divides by, sqrt(divisor + eps): v while iters <= warmup_iters, else the
  // phi before the step. Empty when a replay is too old to know it; the output is then not available.
  std::vector<double> divisor;
};

struct SessionLimits {
  int64_t max_sessions = 100'000;
  int64_t max_parameter_bytes = 64 << 20;
  int64_t max_total_bytes = int64_t{64} << 30;  // QuotaBytes of all sessions
  int64_t max_clients = 1024;                   // of one session, whose outcomes are kept; older ones retire
  int64_t max_retired_clients = 65'536;         // of one session, whose last sequence is kept
  int64_t replay_window = 16;                   // K outcomes kept for each client
};

struct ListQuery {
  int page_size = 100;
  std::string after_id;                       // exclusive; ids rise
  std::map<std::string, std::string> labels;  // all must match
  bool whole = false;                         // with parameters and statistics
  int64_t max_bytes = int64_t{3} << 20;       // of those, in one page; one session comes in any case
};

struct ListPage {
  std::vector<SessionPtr> sessions;  // without parameters and statistics, unless the query was for the whole
  std::string next_after;            // after_id of the next page; empty: this was the last one
  int64_t damaged = 0;               // records within the page that could not be read, and are left out
};

struct SessionPatch {
  std::string uid;  // of the session that it was validated against, as in StateUpdate; empty: any
  std::optional<std::optional<OwnedTensor>> weight, bias;  // outer: named in the mask; inner absent: removed
  std::optional<std::map<std::string, std::string>> labels;
  std::optional<std::optional<absl::Duration>> ttl;
  std::optional<uint64_t> expected_version;
};

// What a store says of itself at one moment; counts since it was opened.
struct StoreStats {
  int64_t sessions = 0;
  int64_t bytes = 0;  // QuotaBytes of all sessions
  int64_t resident_sessions = 0;
  int64_t resident_bytes = 0;
  int64_t queued = 0;     // changes waiting for a group
  int64_t loads = 0;      // sessions read into memory
  int64_t evictions = 0;  // sessions that left memory, not the store
  int64_t expired = 0;    // sessions deleted by their ttl
  int64_t groups = 0;     // transactions
  int64_t rows = 0;       // written by them
  int64_t conflicts = 0;  // changes tried again because another replica was first
  int64_t damaged = 0;    // records read whose checksum or content was wrong
  int64_t queued_reads = 0;
  bool file_damaged = false;  // what holds the records is not whole: unknown sessions may be lost ones
  int64_t failed_groups = 0;
};

class SessionStore {
 public:
  template <typename T>
  using Done = absl::AnyInvocable<void(absl::StatusOr<T>)>;
  using Cancelled = std::function<bool()>;                     // as in StateUpdate
  using Reserve = std::function<absl::Status(int64_t bytes)>;  // asked before so much memory is taken; null: always

  virtual ~SessionStore() = default;
  virtual Durability durability() const = 0;
  virtual const SessionLimits& limits() const = 0;
  virtual StoreStats stats() const = 0;

  // The published snapshot, at most `max_staleness` behind what any replica has published. NOT_FOUND for unknown and
  // for expired ids, DATA_LOSS for a damaged record, UNAVAILABLE when the store cannot be read.
  // RESOURCE_EXHAUSTED: too many wait for a reading. A read that is cancelled before it is made ends with CANCELLED.
  virtual void Get(std::string id, absl::Duration max_staleness, Cancelled cancelled, Done<SessionPtr> done) = 0;
  void Get(std::string id, absl::Duration max_staleness, Done<SessionPtr> done) {
    Get(std::move(id), max_staleness, /*cancelled=*/nullptr, std::move(done));
  }
  // A page in the order of ids. Damaged records are left out, and counted.
  virtual void List(ListQuery query, Done<ListPage> done) = 0;

  // `session` carries id (empty: chosen), spec, channels, labels, parameters, ttl and, for imports, state, versions and
  // numerics; the store sets the epoch and times. ALREADY_EXISTS for a taken id, RESOURCE_EXHAUSTED over the limits.
  virtual void Create(Session session, Done<SessionPtr> done) = 0;
  virtual void Update(std::string id, SessionPatch patch, Done<SessionPtr> done) = 0;
  // The initial state, version + 1, same epoch, step ids kept.
  virtual void Reset(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) = 0;
  virtual void Delete(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) = 0;

  // Applies one step exactly once for each StepId; see the README's guarantees. Done runs when the update is durable.
  // NOT_FOUND, FAILED_PRECONDITION (a step id older than the window), ABORTED (expected_version), INVALID_ARGUMENT (the
  // same id with other moments; one value per channel), RESOURCE_EXHAUSTED (a full queue or disk), UNAVAILABLE (the
  // store could not be written: a step with an id may be sent again, whatever became of it).
  virtual void Commit(StateUpdate update, Done<CommitResult> done) = 0;

  // The whole session as a serialised normd.store.v1.SessionRecord, step ids included; and back. DATA_LOSS on a bad
  // checksum. Import creates: an empty id means the record's.
  // `hold` is asked before the record is made, for what making it takes.
  virtual void Export(std::string id, Reserve reserve, Done<std::string> done) = 0;
  virtual void Import(std::string id, std::string record, Done<SessionPtr> done) = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_SESSION_STORE_H_
