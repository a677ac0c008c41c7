// Sessions that outlive the process: the SessionStore over a SessionTable. Wires three classes that have a thread and a
// connection each: SessionWriter (group commit), SessionReader (sessions that memory cannot answer) and SessionLister
// (pages of lists). What the three share is in store_parts.h. Readers see only what is published, and so nothing that
// could still be lost.
// In the path: the engine's SessionStore. Ownership: owns the three, their tables and the parts.
// Threads: every method is safe from any thread. Threads of its own: the writer, one that writes rows for it, the
// reader, the lister, one that checks a large file, and those that run the callbacks, so that the next group need not
// wait for callbacks.
#ifndef NORMD_SERVER_SESSION_DURABLE_DURABLE_STORE_H_
#define NORMD_SERVER_SESSION_DURABLE_DURABLE_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/session/durable/durable_options.h"
#include "server/session/durable/session_lister.h"
#include "server/session/durable/session_reader.h"
#include "server/session/durable/session_writer.h"
#include "server/session/durable/store_parts.h"
#include "server/session/session_store.h"
#include "server/session/session_table.h"
#include "server/session/stored_session.h"

namespace normd {

class DurableStore : public SessionStore {
 public:
  // Borrows `clock`, which must outlive the store. Errors are those of reading the totals.
  static absl::StatusOr<std::unique_ptr<DurableStore>> Open(DurableStoreOptions options, StoreTables tables,
                                                            Clock* clock);

  // Writes what is queued and runs its callbacks first.
  ~DurableStore() override;

  Durability durability() const override { return parts_.options.durability; }
  SessionLimits limits() const override { return writer_.limits(); }
  void SetLimits(const SessionLimits& limits, const ResidencyLimits& residency) override;
  StoreStats stats() const override;
  TotalsByTenant tenant_totals() const override { return parts_.totals.by_tenant(); }

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
  DurableStore(DurableStoreOptions options, StoreTables tables, Clock* clock, const TableTotals& totals);

  void AddNew(StoredSession stored, Done<SessionPtr> done);

  StoreParts parts_;
  SessionWriter writer_;  // its connection is closed after those of the others
  SessionReader reader_;
  SessionLister lister_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_DURABLE_STORE_H_
