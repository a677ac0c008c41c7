// The denominator of the store's figures: a loop on one thread that writes the same rows with the same statements in
// transactions of the same size, at the same durability and with the same rule for checkpoints, and does nothing else.
//
// It is fair to both. Whatever a store does, its bytes must reach the database like this; and the loop has its states
// ready, in the cache, knows key and revision of each row, needs no thread, no queue and no look-up, and hands nothing
// to anybody. So it is what the database alone allows, and a ratio says how much of that the store leaves to its users:
// below 1 is what checking, applying, serialising, publishing and answering cost, above 1 what folding saves.
#ifndef NORMD_TESTS_BENCH_STORE_BARE_LOOP_H_
#define NORMD_TESTS_BENCH_STORE_BARE_LOOP_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "server/session/session_store.h"
#include "server/session/session_table.h"

namespace normd::bench {

struct BareUpdate {
  size_t row = 0;
  std::string_view state;
};

class BareLoop {
 public:
  virtual ~BareLoop() = default;

  // One transaction, durable when this returns. REQUIRES: rows are distinct.
  virtual void Write(absl::Span<const BareUpdate> updates) = 0;
};

// All rows, as a table of the store has read them; the loops of one table share them and keep their versions true.
using BareRows = std::vector<SessionRow>;

// Each borrows `rows`.
std::unique_ptr<BareLoop> OpenBareSqlite(const std::string& path, Durability durability, BareRows* rows);
// A prepared UPDATE for each row, sent as one pipeline.
std::unique_ptr<BareLoop> OpenBarePostgres(const std::string& url, Durability durability, BareRows* rows);
// PostgresTable's own statement, one for all rows of a transaction.
std::unique_ptr<BareLoop> OpenBatchedPostgres(const std::string& url, Durability durability, BareRows* rows);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_STORE_BARE_LOOP_H_
