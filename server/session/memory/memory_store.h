// Sessions in memory, with durability `memory`: they are gone with the process. For tests, and for servers that need no
// durability.
// In the path: the engine's SessionStore. Every Done runs inline, after the lock is released.
// Threads: safe from any thread; one lock, held for at most the O(C) arithmetic of one session.
#ifndef NORMD_SERVER_SESSION_MEMORY_MEMORY_STORE_H_
#define NORMD_SERVER_SESSION_MEMORY_MEMORY_STORE_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/session/session_changes.h"
#include "server/session/session_store.h"
#include "server/session/stored_session.h"

namespace normd {

class MemoryStore : public SessionStore {
 public:
  // Borrows `clock`, which must outlive the store.
  MemoryStore(const SessionLimits& limits, Clock* clock);
  ~MemoryStore() override;

  Durability durability() const override { return Durability::kMemory; }
  SessionLimits limits() const override ABSL_LOCKS_EXCLUDED(mu_);
  void SetLimits(const SessionLimits& limits, const ResidencyLimits& residency) override ABSL_LOCKS_EXCLUDED(mu_);
  StoreStats stats() const override;
  TotalsByTenant tenant_totals() const override;

  using SessionStore::Get;
  void Get(std::string id, absl::Duration max_staleness, Cancelled cancelled, Done<SessionPtr> done) override;
  void List(ListQuery query, Done<ListPage> done) override;
  void Create(Session session, Done<SessionPtr> done) override;
  void Update(std::string id, SessionPatch patch, Done<SessionPtr> done) override;
  void Reset(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) override;
  void Delete(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) override;
  void Commit(StateUpdate update, Done<CommitResult> done) override;
  void Export(std::string id, Reserve reserve, Done<std::string> done) override;
  void Import(std::string id, std::string record, Done<SessionPtr> done) override;

 private:
  using Expiry = std::pair<absl::Time, std::string>;

  absl::StatusOr<StoredSession*> Find(std::string_view id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Deletes the sessions whose ttl has ended by `now`.
  void DropExpired(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Keeps expiries_, bytes_ and tenants_ true when the snapshot of a session changes; null: there is no session.
  void Account(const Session* before, const Session* after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // The snapshot alone, so that the time under the lock does not grow with the step ids.
  absl::StatusOr<SessionPtr> Published(std::string_view id) ABSL_LOCKS_EXCLUDED(mu_);
  // A copy of the stored session, step ids included.
  absl::StatusOr<StoredSession> Copy(std::string_view id) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<SessionPtr> Insert(absl::StatusOr<StoredSession> stored) ABSL_LOCKS_EXCLUDED(mu_);
  // The totals that a change of `id` is judged by.
  Totals TotalsFor(std::string_view id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Calls `change` (StoredSession*, now, totals) under the lock, keeps the session's accounts true and
  // returns the result of `change`.
  template <typename Result, typename Change>
  absl::StatusOr<Result> Apply(std::string_view id, Change change) ABSL_LOCKS_EXCLUDED(mu_);

  // Constant after construction.
  Clock* const clock_;

  mutable Mutex mu_;
  SessionLimits limits_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, StoredSession, std::less<>> sessions_ ABSL_GUARDED_BY(mu_);
  std::set<Expiry> expiries_ ABSL_GUARDED_BY(mu_);  // of sessions with a ttl, soonest first
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;          // QuotaBytes of all sessions
  TotalsByTenant tenants_ ABSL_GUARDED_BY(mu_);     // tenants with sessions
  int64_t expired_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_MEMORY_MEMORY_STORE_H_
