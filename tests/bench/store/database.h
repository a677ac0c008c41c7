// Where the rows of one measurement are: a folder with an SQLite file, or a schema of a PostgreSQL database. Removed
// with the object.
#ifndef NORMD_TESTS_BENCH_STORE_DATABASE_H_
#define NORMD_TESTS_BENCH_STORE_DATABASE_H_

#include <memory>
#include <string>
#include <vector>

#include "server/base/clock.h"
#include "server/session/durable/durable_store.h"
#include "server/session/session_table.h"
#include "tests/bench/store/bare_loop.h"

namespace normd::bench {

class Database {
 public:
  explicit Database(Durability durability) : durability_(durability) {}
  virtual ~Database() = default;

  virtual std::unique_ptr<SessionTable> OpenTable(bool read_only) const = 0;
  // Every bare loop that there is; they borrow `rows`. REQUIRES: no store is open here.
  virtual std::vector<std::unique_ptr<BareLoop>> OpenBare(BareRows* rows) const = 0;
  // Of files in a folder; 0 where there is none.
  virtual int64_t FileBytes() const { return 0; }

  // Sets the durability of `options`. `clock` must outlive the store.
  std::unique_ptr<DurableStore> OpenStore(DurableStoreOptions options, Clock* clock) const;

 protected:
  const Durability durability_;
};

// In a new folder in that for temporary files.
std::unique_ptr<Database> MakeSqlite(Durability durability);
// In a new schema of the database that NORMD_TEST_POSTGRES names.
std::unique_ptr<Database> MakePostgres(Durability durability);

// "PostgreSQL 15.18", or "none" where NORMD_TEST_POSTGRES names no server.
std::string PostgresText();

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_STORE_DATABASE_H_
