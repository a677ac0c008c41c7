// The bare loop over SQLite. The C interface itself, not the server's wrapper of it: what is compared shares no code.
#include <sqlite3.h>

#include "tests/bench/or_die.h"
#include "tests/bench/store/bare_loop.h"

namespace normd::bench {

namespace {

// As SqliteTable has it.
constexpr int kCheckpointFrames = 4000;
constexpr char kUpdateRow[] =
    "UPDATE states SET revision = ?2 + 1, expires_at = ?3, state = ?4 WHERE key = ?1 AND revision = ?2";

int KeepFrames(void* frames, sqlite3* /*database*/, const char* /*schema*/, int count) {
  *static_cast<int*>(frames) = count;
  return SQLITE_OK;
}

class BareSqlite : public BareLoop {
 public:
  BareSqlite(const std::string& path, Durability durability, BareRows* rows) : rows_(*rows) {
    Check(sqlite3_open_v2(path.c_str(), &database_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr));
    Execute("PRAGMA journal_mode = WAL");
    Execute(durability == Durability::kPower ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
    sqlite3_wal_hook(database_, &KeepFrames, &frames_);
    begin_ = Prepare("BEGIN IMMEDIATE");
    commit_ = Prepare("COMMIT");
    update_ = Prepare(kUpdateRow);
    sqlite3_bind_null(update_, 3);  // no ttl
  }

  ~BareSqlite() override {
    for (sqlite3_stmt* statement : {begin_, commit_, update_}) sqlite3_finalize(statement);
    sqlite3_close_v2(database_);
  }

  void Write(absl::Span<const BareUpdate> updates) override {
    const sqlite3_int64 before = sqlite3_total_changes64(database_);
    Run(begin_);
    for (const BareUpdate& update : updates) {
      RowVersion& version = rows_[update.row].version;
      sqlite3_bind_int64(update_, 1, version.key);
      sqlite3_bind_int64(update_, 2, version.revision);
      sqlite3_bind_blob64(update_, 4, update.state.data(), update.state.size(), SQLITE_STATIC);
      Run(update_);
      ++version.revision;
    }
    Run(commit_);
    const auto count = static_cast<sqlite3_int64>(updates.size());
    if (sqlite3_total_changes64(database_) - before != count) Die("the bare loop missed a row");
    if (frames_ >= kCheckpointFrames) {
      Check(sqlite3_wal_checkpoint_v2(database_, nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr));
    }
  }

 private:
  void Check(int code) const {
    if (code != SQLITE_OK) Die(sqlite3_errmsg(database_));
  }
  void Execute(const char* sql) { Check(sqlite3_exec(database_, sql, nullptr, nullptr, nullptr)); }
  sqlite3_stmt* Prepare(const char* sql) {
    sqlite3_stmt* statement = nullptr;
    Check(sqlite3_prepare_v3(database_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr));
    return statement;
  }
  void Run(sqlite3_stmt* statement) {
    if (sqlite3_step(statement) != SQLITE_DONE) Die(sqlite3_errmsg(database_));
    sqlite3_reset(statement);
  }

  BareRows& rows_;
  sqlite3* database_ = nullptr;
  sqlite3_stmt *begin_ = nullptr, *commit_ = nullptr, *update_ = nullptr;
  int frames_ = 0;
};

}  // namespace

std::unique_ptr<BareLoop> OpenBareSqlite(const std::string& path, Durability durability, BareRows* rows) {
  return std::make_unique<BareSqlite>(path, durability, rows);
}

}  // namespace normd::bench
