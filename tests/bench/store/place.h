// Where the rows of one measurement are: a folder with an SQLite file, or a schema of a PostgreSQL database. Removed
// with the object.
#ifndef NORMD_TESTS_BENCH_STORE_PLACE_H_
#define NORMD_TESTS_BENCH_STORE_PLACE_H_

#include <memory>
#include <string>
#include <vector>

#include "server/base/clock.h"
#include "server/session/durable/durable_store.h"
#include "server/session/session_table.h"
#include "tests/bench/store/bare_loop.h"

namespace normd::bench {

class Place {
 public:
  explicit Place(Durability durability) : durability_(durability) {}
  virtual ~Place() = default;

  virtual std::unique_ptr<SessionTable> OpenWriter() const = 0;
  virtual std::unique_ptr<SessionTable> OpenReader() const = 0;
  // Every bare loop that there is; they borrow `rows`. REQUIRES: no store is open here.
  virtual std::vector<std::unique_ptr<BareLoop>> OpenBare(BareRows* rows) const = 0;
  virtual int64_t FileBytes() const { return 0; }

  // Sets the durability of `options`. `clock` must outlive the store.
  std::unique_ptr<DurableStore> OpenStore(DurableStoreOptions options, Clock* clock) const;

 protected:
  const Durability durability_;
};

// A new folder in `parent`.
std::unique_ptr<Place> MakeSqlitePlace(const std::string& parent, Durability durability);
// A new schema in the database that `url` names.
std::unique_ptr<Place> MakePostgresPlace(const std::string& url, Durability durability);

// "PostgreSQL 15.18"
std::string PostgresVersion(const std::string& url);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_STORE_PLACE_H_
