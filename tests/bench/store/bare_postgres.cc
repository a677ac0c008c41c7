// The bare loops over PostgreSQL: libpq itself with a statement for each row, and PostgresTable without a store around
// it, which has one statement for many rows. The faster one is the denominator.
#include <endian.h>
#include <libpq-fe.h>

#include <array>
#include <cstring>
#include <utility>

#include "server/session/postgres/postgres_table.h"
#include "tests/bench/or_die.h"
#include "tests/bench/store/bare_loop.h"

namespace normd::bench {

namespace {

constexpr char kUpdate[] =
    "UPDATE states SET revision = revision + 1, expires_at = $3::bigint, state = $4::bytea "
    "WHERE key = $1::bigint AND revision = $2::bigint";
// As PostgresTable sets them.
constexpr char kSettings[] =
    "SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off; SET enable_hashjoin = off; "
    "SET enable_mergejoin = off;";

class BarePostgres : public BareLoop {
 public:
  BarePostgres(const std::string& url, Durability durability, BareRows* rows) : rows_(*rows) {
    connection_ = PQconnectdb(url.c_str());
    if (PQstatus(connection_) != CONNECTION_OK) Fail();
    Check(PQexec(connection_, kSettings));
    Check(PQexec(connection_,
                 durability == Durability::kPower ? "SET synchronous_commit = on" : "SET synchronous_commit = off"));
    Check(PQprepare(connection_, "begin", "BEGIN", 0, nullptr));
    Check(PQprepare(connection_, "update", kUpdate, 0, nullptr));
    Check(PQprepare(connection_, "commit", "COMMIT", 0, nullptr));
    if (PQenterPipelineMode(connection_) == 0) Fail();
  }
  ~BarePostgres() override { PQfinish(connection_); }

  // The results of one transaction are small: the server never waits for somebody to take them while this sends.
  void Write(absl::Span<const BareUpdate> updates) override {
    Send("begin");
    for (const BareUpdate& update : updates) {
      RowVersion& version = rows_[update.row].version;
      SendUpdate(version, update.state);
      ++version.revision;
    }
    Send("commit");
    if (PQpipelineSync(connection_) == 0) Fail();
    Take("BEGIN");
    for (size_t i = 0; i < updates.size(); ++i) Take("UPDATE 1");
    Take("COMMIT");
    PGresult* const sync = PQgetResult(connection_);
    if (PQresultStatus(sync) != PGRES_PIPELINE_SYNC) Fail();
    PQclear(sync);
  }

 private:
  [[noreturn]] void Fail() const { Die(PQerrorMessage(connection_)); }

  void Check(PGresult* result) const {
    if (PQresultStatus(result) != PGRES_COMMAND_OK) Fail();
    PQclear(result);
  }

  void Send(const char* statement) {
    if (PQsendQueryPrepared(connection_, statement, 0, nullptr, nullptr, nullptr, 1) == 0) Fail();
  }

  void SendUpdate(const RowVersion& version, std::string_view state) {
    const std::array<uint64_t, 2> integers = {htobe64(static_cast<uint64_t>(version.key)),
                                              htobe64(static_cast<uint64_t>(version.revision))};
    const std::array<const char*, 4> values = {reinterpret_cast<const char*>(integers.data()),
                                               reinterpret_cast<const char*>(&integers[1]), nullptr, state.data()};
    const std::array<int, 4> lengths = {8, 8, 0, static_cast<int>(state.size())};
    const std::array<int, 4> binary = {1, 1, 1, 1};
    if (PQsendQueryPrepared(connection_, "update", 4, values.data(), lengths.data(), binary.data(), 1) == 0) Fail();
  }

  // A statement's result and the null that ends it.
  void Take(const char* expected) {
    PGresult* const result = PQgetResult(connection_);
    if (PQresultStatus(result) != PGRES_COMMAND_OK || std::strcmp(PQcmdStatus(result), expected) != 0) Fail();
    PQclear(result);
    if (PQgetResult(connection_) != nullptr) Die("more than one result of a statement");
  }

  BareRows& rows_;
  PGconn* connection_ = nullptr;
};

class BatchedPostgres : public BareLoop {
 public:
  BatchedPostgres(const std::string& url, Durability durability, BareRows* rows) : rows_(*rows) {
    PostgresOptions options;
    options.url = url;
    options.durability = durability;
    table_ = OrDie(PostgresTable::Open(options));
  }

  void Write(absl::Span<const BareUpdate> updates) override {
    changes_.resize(updates.size());
    for (size_t i = 0; i < updates.size(); ++i) {
      const SessionRow& row = rows_[updates[i].row];
      changes_[i].id = row.id;
      changes_[i].expected = row.version;
      changes_[i].state.assign(updates[i].state);
    }
    const std::vector<std::optional<RowVersion>> versions = OrDie(table_->Write(changes_));
    for (size_t i = 0; i < updates.size(); ++i) {
      if (!versions[i].has_value()) Die("the bare loop missed a row");
      rows_[updates[i].row].version = *versions[i];
    }
  }

 private:
  BareRows& rows_;
  std::vector<RowChange> changes_;
  std::unique_ptr<PostgresTable> table_;
};

}  // namespace

std::unique_ptr<BareLoop> OpenBarePostgres(const std::string& url, Durability durability, BareRows* rows) {
  return std::make_unique<BarePostgres>(url, durability, rows);
}

std::unique_ptr<BareLoop> OpenBatchedPostgres(const std::string& url, Durability durability, BareRows* rows) {
  return std::make_unique<BatchedPostgres>(url, durability, rows);
}

}  // namespace normd::bench
