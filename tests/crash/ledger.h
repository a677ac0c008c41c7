// What a store owes to its clients: every step that was attempted and every one that was acknowledged, and the checks
// of what a store holds against it. Each client has one step on its way at a time, with sequences 1, 2, 3...; so of
// each client exactly the steps up to its last acknowledged one, and perhaps one more, may have been applied.
// In the path: the parent's. It is fed by the child's reports or by gRPC clients, and asked after every restart.
// Threads: safe from any thread.
#ifndef NORMD_TESTS_CRASH_LEDGER_H_
#define NORMD_TESTS_CRASH_LEDGER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "normd/store/v1/record.pb.h"
#include "server/base/mutex.h"
#include "tests/crash/steps.h"

namespace normd::crash {

struct Tally {
  int64_t acknowledged = 0;
  int64_t replays = 0;     // unacknowledged steps that were sent again and had been applied
  int64_t sent_again = 0;  // acknowledged steps that were sent again, to see that they are known
  int64_t created = 0;     // sessions, each with an epoch of its own
  int64_t reads = 0;       // versions that readers saw
  int64_t states = 0;      // that replies to steps carried, compared
  int64_t checks = 0;      // sessions compared
  int64_t lost = 0;        // violations, by what they mean
  int64_t doubled = 0;
  int64_t mismatches = 0;

  Tally& operator+=(const Tally& other);
  int64_t violations() const { return lost + doubled + mismatches; }
};

// A session's state as GetSession tells it, or the reply to a step that asked for it.
struct PublishedState {
  uint64_t version = 0;
  std::string uid;
  Content content;
};

struct Acknowledgement {
  uint64_t version = 0;
  std::string uid;
  bool replayed = false;
  std::optional<PublishedState> state;  // the newest, which is no older than `version`
};

class Ledger {
 public:
  Ledger();

  // ---- what clients did
  void Created(int session, const std::string& uid);
  void Attempted(const StepKey& step);
  void Acknowledged(const StepKey& step, const Acknowledgement& ack);
  // A reader was given this version, which must therefore be durable. `known` is from before it asked.
  void Seen(int session, uint64_t version, uint64_t known);

  // ---- what they know
  bool IsCreated(int session) const;
  uint64_t LastAttempted(int session, int client) const;
  uint64_t LastAcknowledged(int session, int client) const;
  int64_t TotalAcknowledged() const;
  int64_t InFlight() const;  // attempted and not acknowledged

  // ---- checks
  // What a store has to know by now: taken before a session is read, given to Check afterwards.
  struct Known {
    std::vector<uint64_t> acknowledged;  // the last sequence of every client
    uint64_t version = 0;                // that was acknowledged or read
  };
  Known KnownOf(int session) const;
  // What was read of a session after `known` was taken: first `state`, if any, then `record`, an export.
  struct Found {
    Known known;
    std::optional<PublishedState> state;
    std::string record;
    bool at_rest = false;  // no client was at work: what was found was applied before
  };
  void Check(int session, const Found& found);
  // The store does not have the session.
  void CheckAbsent(int session);
  // Nobody is at work: everything attempted was acknowledged.
  void CheckSettled();
  // Level memory: the server was restarted. Steps are forgotten, epochs are not: none may come again.
  void StartAnew();
  // A violation that somebody else saw.
  void ReportLost(const std::string& text);
  void ReportDoubled(const std::string& text);
  void ReportMismatch(const std::string& text);

  Tally tally() const;
  std::vector<std::string> evidence() const;
  bool ok() const { return tally().violations() == 0; }

 private:
  struct ClientLedger {
    uint64_t attempted = 0;
    uint64_t acknowledged = 0;
    uint64_t recovered = 0;                 // the last sequence that a check has found
    uint64_t recovered_at_rest = 0;         // the same, of checks while no client was at work
    std::map<uint64_t, uint64_t> versions;  // by sequence: of the latest steps known to be applied
  };
  struct SessionLedger {
    std::string uid;  // empty: no creation was acknowledged, no record seen
    std::vector<ClientLedger> clients;
    std::map<uint64_t, StepKey> order;  // by version: steps known to be applied and not folded yet
    uint64_t known = 0;                 // the highest version that was acknowledged or read
    uint64_t folded = 0;                // the version that `content` is of
    Content content;
    std::map<uint64_t, Content> stated;  // by version above `folded`: what replies to steps carried
  };

  void Lost(const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Doubled(const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Mismatch(const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteEpoch(int session, const std::string& uid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteApplied(const StepKey& step, uint64_t version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A state can be compared only when every step before it is known; it is kept until then.
  void NoteStated(int session, const Acknowledgement& ack) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckClients(int session, const std::vector<uint64_t>& acknowledged, const store::v1::SessionRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckClient(const StepKey& floor, const store::v1::ClientRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckOutcomes(int session, int client, const store::v1::ClientRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Folds one step more, and compares with what replies carried of the version that it made. False: it is not known.
  bool FoldNext(int session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Folds up to `version` and compares.
  void CheckContent(int session, uint64_t version, const Content& actual, const char* source)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  std::vector<SessionLedger> sessions_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> old_epochs_ ABSL_GUARDED_BY(mu_);
  Tally tally_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> evidence_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd::crash

#endif  // NORMD_TESTS_CRASH_LEDGER_H_
