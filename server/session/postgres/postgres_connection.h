// One connection to PostgreSQL through libpq, opened again after a loss: parameters and results are binary, statements
// are prepared by name, and a transaction is one pipeline without waiting between statements. The connection knows
// SQLSTATEs, not sessions.
// In the path: used by PostgresTable only. Every call waits for the network, but never longer than `silence_limit`
// without a byte. Statuses name a SQLSTATE and a class, never a host, path, user or password: libpq's messages go to
// `log` alone.
// Ownership: parameters borrow their bytes, results own their values.
// Threads: one at a time.
#ifndef NORMD_SERVER_SESSION_POSTGRES_POSTGRES_CONNECTION_H_
#define NORMD_SERVER_SESSION_POSTGRES_POSTGRES_CONNECTION_H_

#include <libpq-fe.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace normd {

// The status for an error of PostgreSQL: RESOURCE_EXHAUSTED for a full disk, DATA_LOSS for damage that PostgreSQL
// found, FAILED_PRECONDITION for a pooler that does not lend sessions, UNAVAILABLE for errors that may pass (locks,
// cancels, shutdowns, lost connections), INTERNAL for everything else.
absl::Status PostgresError(std::string_view sqlstate);

// The values of $1, $2, ... in order.
class PostgresParameters {
 public:
  PostgresParameters() = default;
  PostgresParameters(PostgresParameters&&) = default;  // the elements of a deque stay where they are when it is moved
  PostgresParameters& operator=(PostgresParameters&&) = default;

  PostgresParameters& Bytes(std::string_view bytes);  // text or bytea; borrowed until the call is made
  PostgresParameters& Int64(int64_t value);
  PostgresParameters& OptionalInt64(std::optional<int64_t> value);
  PostgresParameters& TextArray(absl::Span<const std::string_view> values);  // arrays are copied
  PostgresParameters& ByteaArray(absl::Span<const std::string_view> values);
  PostgresParameters& Int64Array(absl::Span<const std::optional<int64_t>> values);

 private:
  friend class PostgresConnection;
  PostgresParameters& Own(std::string value);
  PostgresParameters& StringArray(uint32_t element_oid, absl::Span<const std::string_view> values);

  std::deque<std::string> owned_;
  std::vector<const char*> values_;
  std::vector<int> lengths_, formats_;
};

class PostgresResult {
 public:
  explicit PostgresResult(PGresult* result) : result_(result) {}

  int rows() const { return PQntuples(result_.get()); }
  bool IsNull(int row, int column) const { return PQgetisnull(result_.get(), row, column) == 1; }
  std::string_view Bytes(int row, int column) const;  // borrowed from the result
  int64_t Int64(int row, int column) const;           // REQUIRES: a column of type bigint

 private:
  friend class PostgresConnection;
  struct Clear {
    void operator()(PGresult* result) const { PQclear(result); }
  };
  std::unique_ptr<PGresult, Clear> result_;
};

struct PostgresStatement {
  const char* name;
  const char* sql;
};

// One execution of a prepared statement.
struct PostgresCall {
  const char* statement;
  PostgresParameters parameters;
};

struct PostgresConnectionOptions {
  std::string url;
  std::string setup;  // SQL that every new connection runs first
  absl::Duration silence_limit = absl::Seconds(15);
  std::function<void(std::string_view)> log;  // full messages of libpq and the server, for the operator; may be null
};

class PostgresConnection {
 public:
  explicit PostgresConnection(PostgresConnectionOptions options) : options_(std::move(options)) {}
  ~PostgresConnection() { Close(); }
  PostgresConnection(const PostgresConnection&) = delete;
  PostgresConnection& operator=(const PostgresConnection&) = delete;

  // Connects, runs the setup and prepares the statements, unless there is a connection. INVALID_ARGUMENT if the URL is
  // no URL of PostgreSQL. FAILED_PRECONDITION if it leads to a pooler that lends connections for one transaction, which
  // then has nothing of this connection's left. UNAVAILABLE if the server cannot be reached; at once and without a try
  // shortly after a failed try. The calls below never connect, so a transaction in several calls is lost with its
  // connection and never goes on in another.
  absl::Status Connect();
  void Close();
  // Number of connections opened so far, including the current one.
  int64_t connections() const { return connections_; }

  // Prepares `statements` now and on every later connection. REQUIRES: the statements outlive this object.
  absl::Status Prepare(absl::Span<const PostgresStatement> statements);

  // Executes any SQL without parameters and returns the last statement's result. Transactions are read-only unless they
  // say READ WRITE.
  absl::StatusOr<PostgresResult> Execute(const std::string& sql);

  // Executes one prepared statement in a read-only transaction of its own.
  absl::StatusOr<PostgresResult> Run(const PostgresCall& call);

  // Executes all of `calls` in one read-write transaction, sent without waiting, and returns a result for each. On an
  // error nothing was written, except that the outcome is unknown if the connection was lost or PostgreSQL committed
  // with a warning (UNAVAILABLE).
  absl::StatusOr<std::vector<PostgresResult>> RunTransaction(absl::Span<const PostgresCall> calls);

  void set_silence_limit(absl::Duration limit) { options_.silence_limit = limit; }

 private:
  bool IsAlive();
  absl::Status ConnectNow();
  absl::Status ConnectSocket();
  void ForgetSession();
  absl::StatusOr<int64_t> BackendPid();
  absl::Status PrepareAll(absl::Span<const PostgresStatement> statements);
  absl::Status SendPrepared(const PostgresCall& call);
  absl::Status SendInPipeline(const PostgresCall& call);
  absl::Status Flush();
  absl::Status WaitFor(short events);
  absl::Status AwaitAnswer();
  absl::StatusOr<PostgresResult> TakeResults();
  absl::StatusOr<PostgresResult> TakePipelined();
  absl::StatusOr<std::vector<PostgresResult>> TakeTransaction(size_t calls);
  absl::Status Check(const PostgresResult& result);
  absl::Status Lost(std::string_view what);
  void Log(std::string_view message) const;
  static void OnNotice(void* self, const PGresult* notice);

  PostgresConnectionOptions options_;
  absl::Span<const PostgresStatement> statements_;
  PGconn* conn_ = nullptr;    // null: none, or lost
  bool pooled_ = false;       // whether a pooler stands between
  bool has_session_ = false;  // whether settings and statements of this connection are in its session
  int64_t connections_ = 0;
  int warnings_ = 0;  // since the transaction began
  std::optional<std::chrono::steady_clock::time_point> last_failure_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_POSTGRES_POSTGRES_CONNECTION_H_
