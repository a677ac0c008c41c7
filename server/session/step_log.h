// The step ids of one session, which make training exactly-once however often a step is sent.
// The rule that this file holds: the log keeps the last outcomes of the clients that stepped lately, for replays. When
// there are too many clients, the one that was silent longest retires: only its last sequence is kept, so that an
// earlier step is refused as too old and a later one is taken. When too many have retired, the first of them is
// forgotten, and the session keeps one floor for all forgotten clients: the steps of a client that the log does not
// know begin above the floor. So no step is ever applied twice, and no client is refused for good. stored_session.h
// lists the other rules of a step.
// A log also knows what has changed since it was last stored, for the client rows of record/record.h.
// Threads: plain values, thread-compatible; a store guards them.
#ifndef NORMD_SERVER_SESSION_STEP_LOG_H_
#define NORMD_SERVER_SESSION_STEP_LOG_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/session/session_store.h"

namespace normd {

// The outcome of one step, kept for its replay.
struct StepOutcome {
  uint64_t sequence = 0;
  uint64_t moments_hash = 0;  // HashMoments of the step
  uint64_t version = 0;
  bool applied = false;
  Reason reason = Reason::kApplied;
  uint64_t num_batches = 0;
};

// A client whose last outcomes are kept.
struct ClientSteps {
  uint64_t last_sequence = 0;
  std::deque<StepOutcome> outcomes;  // the last K, oldest first
  uint64_t used = 0;                 // rises with every step of the session
  int64_t slot = 0;                  // of the client's row, if it has one
  uint32_t row_checksum = 0;         // of the row's content; 0: there is no row
};

// A client of which only the last sequence is kept.
struct RetiredClient {
  uint64_t hash = 0;  // HashClientId; two ids with one hash, a chance of 1 in 2^64, count as one client
  uint64_t last_sequence = 0;
  uint64_t retired_at = 0;  // rises in the order of retirement
  int64_t slot = 0;
  uint32_t row_checksum = 0;
};

// What became of a slot since the log was last stored.
struct SlotChange {
  enum class Kind : uint8_t { kStepped, kRetired, kForgotten };
  Kind kind = Kind::kStepped;
  std::string client_id;  // kStepped
};

// The hash of one id never changes, because hashes are stored.
uint64_t HashClientId(std::string_view client_id);

class StepLog {
 public:
  // The outcome of a step that was taken before; null for a new step. FAILED_PRECONDITION if `step` is at or below the
  // client's last sequence without being among its last K outcomes, or if the client is not known and `step` is at or
  // below the floor. INVALID_ARGUMENT if the step was taken with other moments. The pointer is valid until Add.
  absl::StatusOr<const StepOutcome*> Find(const StepId& step, uint64_t moments_hash) const;

  // Records the outcome of a new step. REQUIRES: Find returned null for `step`.
  void Add(const StepId& step, const StepOutcome& outcome, const SessionLimits& limits);

  // Retires and forgets clients until the log is within `limits`, and drops the oldest outcomes of each client.
  void Trim(const SessionLimits& limits);

  // Rebuild a log as it was stored: first the retired clients in the order of their retirement, then the others in the
  // order of their last steps. A slot or retired_at of 0 means a new one.
  void RestoreRetired(RetiredClient retired);
  void Restore(const std::string& client_id, ClientSteps steps);
  void RestoreFloor(uint64_t floor) { floor_ = floor; }

  const std::map<std::string, ClientSteps>& clients() const { return clients_; }
  const std::deque<RetiredClient>& retired() const { return retired_; }  // the next to be forgotten comes first
  uint64_t floor() const { return floor_; }
  bool empty() const { return clients_.empty() && retired_.empty() && floor_ == 0; }
  // Memory that the log takes, estimated.
  int64_t bytes() const;

  // ---- for record/record.h, which stores the clients in rows of their own

  bool in_rows() const { return in_rows_; }
  // The sum of the checksums of all rows. Changed slots are left out until StoreChanges.
  uint32_t rows_digest() const { return rows_digest_; }
  const std::map<int64_t, SlotChange>& changes() const { return changes_; }
  // From now on the clients are in rows; all of them count as changed.
  void MoveToRows();
  // The same for a log whose every client was restored from a row.
  void RestoreInRows() { in_rows_ = true; }
  // Calls `on_client` (client id, ClientSteps) or `on_retired` (RetiredClient) for each changed slot that still has a
  // client; the function returns the checksum of the new row. Nothing counts as changed afterwards.
  template <typename OnClient, typename OnRetired>
  void StoreChanges(OnClient on_client, OnRetired on_retired);
  void ForgetChanges() { changes_.clear(); }

 private:
  using Clients = std::map<std::string, ClientSteps>;

  std::deque<RetiredClient>::const_iterator FindRetired(std::string_view client_id) const;
  // The entry of a client that is stepping now, whether known, retired or new.
  ClientSteps& Use(const std::string& client_id, const SessionLimits& limits);
  void Retire(Clients::iterator client);
  void Cut(const SessionLimits& limits, ClientSteps* steps);
  // Counts a slot as changed. `row_checksum` is that of its stored row.
  void Touch(int64_t slot, uint32_t row_checksum, SlotChange change);
  void ForgetOverLimit(const SessionLimits& limits);

  Clients clients_;
  std::map<uint64_t, std::string> by_use_;  // ClientSteps::used -> client id
  std::deque<RetiredClient> retired_;
  uint64_t floor_ = 0;
  uint64_t uses_ = 0;
  int64_t last_slot_ = 0;
  int64_t outcomes_ = 0;  // of all clients
  bool in_rows_ = false;
  uint32_t rows_digest_ = 0;
  std::map<int64_t, SlotChange> changes_;
};

template <typename OnClient, typename OnRetired>
void StepLog::StoreChanges(OnClient on_client, OnRetired on_retired) {
  size_t retired = 0;
  for (const auto& [slot, change] : changes_) {
    if (change.kind == SlotChange::Kind::kRetired) ++retired;
    if (change.kind != SlotChange::Kind::kStepped) continue;
    ClientSteps& steps = clients_.at(change.client_id);
    steps.row_checksum = on_client(change.client_id, steps);
    rows_digest_ += steps.row_checksum;
  }
  // The clients that retired last are at the end.
  for (auto client = retired_.rbegin(); retired > 0 && client != retired_.rend(); ++client) {
    if (changes_.count(client->slot) == 0) continue;
    client->row_checksum = on_retired(*client);
    rows_digest_ += client->row_checksum;
    --retired;
  }
  changes_.clear();
}

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_STEP_LOG_H_
