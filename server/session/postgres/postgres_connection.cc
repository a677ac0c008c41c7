#include "server/session/postgres/postgres_connection.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/errors.h"
#include "server/session/postgres/pooler.h"

namespace normd {
namespace {

// A server that is down is tried at this interval and not in a busy loop; a restarting server is found again within a
// request's patience.
constexpr std::chrono::milliseconds kRetryAfter(200);
constexpr int kBinary = 1;
constexpr uint32_t kByteaOid = 17, kInt8Oid = 20, kTextOid = 25;  // pg_type.dat; never change
constexpr uint64_t kNullLength = 0xffffffff;

void AppendBigEndian(uint64_t value, int bytes, std::string* out) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) out->push_back(static_cast<char>(value >> shift));
}

// The header of an array in PostgreSQL's binary form; the elements follow, each after its length.
std::string ArrayHeader(uint32_t element_oid, size_t size) {
  std::string header;
  AppendBigEndian(size == 0 ? 0 : 1, 4, &header);  // dimensions
  AppendBigEndian(1, 4, &header);                  // nulls are allowed
  AppendBigEndian(element_oid, 4, &header);
  if (size == 0) return header;
  AppendBigEndian(size, 4, &header);
  AppendBigEndian(1, 4, &header);  // the first index
  return header;
}

std::string_view OrEmpty(const char* text) { return text == nullptr ? "" : text; }

// Every connection executes this first; RunTransaction relies on it.
constexpr char kReadOnlyByDefault[] = "SET default_transaction_read_only = on;";
constexpr std::array<PostgresStatement, 2> kTransactionStatements = {{
    {"begin", "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"},
    {"commit", "COMMIT"},
}};

bool IsUnavailable(std::string_view sqlstate) {
  static constexpr std::array<std::string_view, 6> kClasses = {
      "08",  // connection exceptions
      "40",  // serialization failures, deadlocks
      "53",  // out of memory, too many connections (the full disk is not asked for here)
      "57",  // cancelled by a timeout or an operator, shutting down, starting up
      "25",  // a transaction ended by its timeout, or on a server that became read-only
      "58",  // I/O errors of the server's system
  };
  if (sqlstate == "55P03") return true;   // lock_timeout
  if (sqlstate == "08P01") return false;  // of the protocol: a mistake of ours
  return std::any_of(kClasses.begin(), kClasses.end(), [&](auto prefix) { return sqlstate.starts_with(prefix); });
}

}  // namespace

absl::Status PostgresError(std::string_view sqlstate) {
  if (sqlstate == "53100") return StoreFullError("PostgreSQL's disk (SQLSTATE 53100)");
  if (sqlstate == "XX001" || sqlstate == "XX002") {
    return DataLossError(Concat("PostgreSQL found damage (SQLSTATE ", sqlstate, ")"));
  }
  if (sqlstate.empty()) return StoreUnavailableError("the connection to PostgreSQL was lost");  // libpq's own error
  if (IsUnavailable(sqlstate)) {
    return StoreUnavailableError(Concat("PostgreSQL cannot do it now (SQLSTATE ", sqlstate, ")"));
  }
  // A statement that this connection has prepared is not there, or one is there before it is prepared.
  if (sqlstate == "26000" || sqlstate == "42P05") return TransactionPoolingError();
  return absl::InternalError(Concat("session store: PostgreSQL refused a statement (SQLSTATE ", sqlstate, ")"));
}

PostgresParameters& PostgresParameters::Bytes(std::string_view bytes) {
  values_.push_back(bytes.data() == nullptr ? "" : bytes.data());  // libpq takes a null pointer for NULL
  lengths_.push_back(static_cast<int>(bytes.size()));
  formats_.push_back(kBinary);
  return *this;
}

PostgresParameters& PostgresParameters::Own(std::string value) {
  owned_.push_back(std::move(value));
  return Bytes(owned_.back());
}

PostgresParameters& PostgresParameters::Int64(int64_t value) {
  std::string bytes;
  AppendBigEndian(static_cast<uint64_t>(value), 8, &bytes);
  return Own(std::move(bytes));
}

PostgresParameters& PostgresParameters::OptionalInt64(std::optional<int64_t> value) {
  if (value.has_value()) return Int64(*value);
  values_.push_back(nullptr);
  lengths_.push_back(0);
  formats_.push_back(kBinary);
  return *this;
}

PostgresParameters& PostgresParameters::TextArray(absl::Span<const std::string_view> values) {
  return StringArray(kTextOid, values);
}

PostgresParameters& PostgresParameters::ByteaArray(absl::Span<const std::string_view> values) {
  return StringArray(kByteaOid, values);
}

PostgresParameters& PostgresParameters::StringArray(uint32_t element_oid, absl::Span<const std::string_view> values) {
  std::string array = ArrayHeader(element_oid, values.size());
  for (const std::string_view value : values) {
    AppendBigEndian(value.size(), 4, &array);
    array += value;
  }
  return Own(std::move(array));
}

PostgresParameters& PostgresParameters::Int64Array(absl::Span<const std::optional<int64_t>> values) {
  std::string array = ArrayHeader(kInt8Oid, values.size());
  for (const std::optional<int64_t> value : values) {
    AppendBigEndian(value.has_value() ? 8 : kNullLength, 4, &array);
    if (value.has_value()) AppendBigEndian(static_cast<uint64_t>(*value), 8, &array);
  }
  return Own(std::move(array));
}

std::string_view PostgresResult::Bytes(int row, int column) const {
  return {PQgetvalue(result_.get(), row, column), static_cast<size_t>(PQgetlength(result_.get(), row, column))};
}

int64_t PostgresResult::Int64(int row, int column) const {
  const std::string_view bytes = Bytes(row, column);
  uint64_t value = 0;
  if (PQfformat(result_.get(), column) == kBinary) {
    for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
    return static_cast<int64_t>(value);
  }
  int64_t number = 0;  // Execute's results are text
  return absl::SimpleAtoi(absl::string_view(bytes.data(), bytes.size()), &number) ? number : 0;
}

absl::Status PostgresConnection::Connect() {
  if (conn_ != nullptr && IsAlive()) return absl::OkStatus();
  Close();
  const auto now = std::chrono::steady_clock::now();
  if (last_failure_.has_value() && now - *last_failure_ < kRetryAfter) {
    return StoreUnavailableError("there is no connection to PostgreSQL");
  }
  absl::Status status = ConnectNow();
  if (status.ok()) {
    ++connections_;
    last_failure_.reset();
  } else {
    Close();
    last_failure_ = std::chrono::steady_clock::now();
  }
  return status;
}

void PostgresConnection::Close() {
  if (std::exchange(has_session_, false) && pooled_) ForgetSession();
  PQfinish(std::exchange(conn_, nullptr));
}

// A pool may be told not to do this itself when a session ends (PgBouncer: server_reset_query).
void PostgresConnection::ForgetSession() {
  if (PQstatus(conn_) != CONNECTION_OK || PQtransactionStatus(conn_) != PQTRANS_IDLE) return;
  if (PQsendQuery(conn_, "DISCARD ALL") == 0) return;
  constexpr int kPatienceMs = 1000;
  pollfd poller = {.fd = PQsocket(conn_), .events = POLLIN, .revents = 0};
  while (PQflush(conn_) >= 0 && PQisBusy(conn_) == 1 && poll(&poller, 1, kPatienceMs) > 0) {
    if (PQconsumeInput(conn_) == 0) return;
  }
}

absl::StatusOr<int64_t> PostgresConnection::BackendPid() {
  NORMD_ASSIGN_OR_RETURN(const PostgresResult result, Execute("SELECT pg_backend_pid()"));
  return result.Int64(0, 0);
}

// A server that went away while the connection was idle has said so, or closed the socket: learning this now, before
// anything is sent, saves the caller an update of unknown outcome.
bool PostgresConnection::IsAlive() {
  pollfd poller = {.fd = PQsocket(conn_), .events = POLLIN, .revents = 0};
  while (poll(&poller, 1, 0) > 0) {
    if (PQconsumeInput(conn_) == 0 || PQstatus(conn_) != CONNECTION_OK) return false;
    PQisBusy(conn_);  // processes notices
  }
  return PQtransactionStatus(conn_) == PQTRANS_IDLE;
}

absl::Status PostgresConnection::ConnectSocket() {
  char* mistake = nullptr;
  PQconninfoOption* const parsed = PQconninfoParse(options_.url.c_str(), &mistake);
  if (parsed == nullptr) {
    PQfreemem(mistake);  // not logged, because it quotes the URL, which may hold a password
    return absl::InvalidArgumentError("session store: not a PostgreSQL URL");
  }
  PQconninfoFree(parsed);
  // Keywords before dbname are defaults that the URL may change; keywords after dbname override the URL. A standby
  // would serve stale reads.
  static constexpr std::array<const char*, 10> kKeywords = {
      "connect_timeout",  "keepalives_idle", "keepalives_interval",  "keepalives_count", "tcp_user_timeout",
      "application_name", "dbname",          "target_session_attrs", "client_encoding",  nullptr};
  const std::array<const char*, 10> values = {"5",       "10",   "5",    "3", "15000", "normd", options_.url.c_str(),
                                              "primary", "UTF8", nullptr};
  conn_ = PQconnectdbParams(kKeywords.data(), values.data(), /*expand_dbname=*/1);
  if (PQstatus(conn_) != CONNECTION_OK || PQsetnonblocking(conn_, 1) != 0) return Lost("cannot connect to PostgreSQL");
  PQsetNoticeReceiver(conn_, &PostgresConnection::OnNotice, this);
  return absl::OkStatus();
}

// Sets up the session, which a pooler must lend to this connection alone.
absl::Status PostgresConnection::ConnectNow() {
  NORMD_RETURN_IF_ERROR(ConnectSocket());
  NORMD_ASSIGN_OR_RETURN(const int64_t pid, BackendPid());
  pooled_ = pid > 0 && pid != PQbackendPID(conn_);
  if (pooled_) {
    PostgresConnection other(options_);
    NORMD_RETURN_IF_ERROR(other.ConnectSocket());
    NORMD_RETURN_IF_ERROR(CheckPooling([this] { return BackendPid(); }, [&other] { return other.BackendPid(); }));
  }
  has_session_ = true;
  NORMD_RETURN_IF_ERROR(Execute(kReadOnlyByDefault + options_.setup).status());
  NORMD_RETURN_IF_ERROR(PrepareAll(kTransactionStatements));
  return PrepareAll(statements_);
}

absl::Status PostgresConnection::Prepare(absl::Span<const PostgresStatement> statements) {
  statements_ = statements;
  return PrepareAll(statements);
}

absl::Status PostgresConnection::PrepareAll(absl::Span<const PostgresStatement> statements) {
  if (conn_ == nullptr) return Lost("no connection to PostgreSQL");
  for (const PostgresStatement& statement : statements) {
    if (PQsendPrepare(conn_, statement.name, statement.sql, 0, nullptr) == 0) return Lost("cannot send to PostgreSQL");
    NORMD_RETURN_IF_ERROR(TakeResults().status());
  }
  return absl::OkStatus();
}

absl::StatusOr<PostgresResult> PostgresConnection::Execute(const std::string& sql) {
  if (conn_ == nullptr) return Lost("no connection to PostgreSQL");
  if (PQsendQuery(conn_, sql.c_str()) == 0) return Lost("cannot send to PostgreSQL");
  return TakeResults();
}

absl::StatusOr<PostgresResult> PostgresConnection::Run(const PostgresCall& call) {
  if (conn_ == nullptr) return Lost("no connection to PostgreSQL");
  NORMD_RETURN_IF_ERROR(SendPrepared(call));
  return TakeResults();
}

// BEGIN, the calls and COMMIT go out without waiting for an answer. A sync point follows each of them, because only a
// server that is ready for the next command runs idle_in_transaction_session_timeout: without sync points, a process
// that is stopped while it sends keeps its row locks for ever. Sync points are safe although an error then no longer
// skips the statements that follow: a failed transaction refuses the rest and COMMIT rolls it back; and should BEGIN
// itself fail, kReadOnlyByDefault makes the server refuse the rest.
absl::StatusOr<std::vector<PostgresResult>> PostgresConnection::RunTransaction(absl::Span<const PostgresCall> calls) {
  if (conn_ == nullptr || PQenterPipelineMode(conn_) == 0) return Lost("no connection to PostgreSQL");
  warnings_ = 0;
  NORMD_RETURN_IF_ERROR(SendInPipeline({.statement = "begin"}));
  for (const PostgresCall& call : calls) NORMD_RETURN_IF_ERROR(SendInPipeline(call));
  NORMD_RETURN_IF_ERROR(SendInPipeline({.statement = "commit"}));
  return TakeTransaction(calls.size());
}

absl::Status PostgresConnection::SendPrepared(const PostgresCall& call) {
  const PostgresParameters& given = call.parameters;
  const int sent = PQsendQueryPrepared(conn_, call.statement, static_cast<int>(given.values_.size()),
                                       given.values_.data(), given.lengths_.data(), given.formats_.data(), kBinary);
  return sent == 0 ? Lost("cannot send to PostgreSQL") : absl::OkStatus();
}

// Each call is flushed before the next is added, so libpq never holds more than one change.
absl::Status PostgresConnection::SendInPipeline(const PostgresCall& call) {
  NORMD_RETURN_IF_ERROR(SendPrepared(call));
  if (PQpipelineSync(conn_) == 0) return Lost("cannot send to PostgreSQL");
  return Flush();
}

// Reads while it writes, because a server whose answers nobody takes stops reading.
absl::Status PostgresConnection::Flush() {
  for (;;) {
    const int unsent = PQflush(conn_);
    if (unsent < 0) return Lost("cannot send to PostgreSQL");
    if (unsent == 0) return absl::OkStatus();
    NORMD_RETURN_IF_ERROR(WaitFor(POLLIN | POLLOUT));
  }
}

absl::Status PostgresConnection::WaitFor(short events) {
  pollfd poller = {.fd = PQsocket(conn_), .events = events, .revents = 0};
  const auto limit = absl::ToChronoMilliseconds(options_.silence_limit).count();
  const int limit_ms = static_cast<int>(std::min<int64_t>(limit, 24 * 3600 * 1000));
  int ready = 0;
  do {
    ready = poll(&poller, 1, limit_ms);
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) return Lost("PostgreSQL does not answer");
  if ((poller.revents & ~POLLOUT) != 0 && PQconsumeInput(conn_) == 0) return Lost("the connection to PostgreSQL broke");
  return absl::OkStatus();
}

absl::Status PostgresConnection::AwaitAnswer() {
  NORMD_RETURN_IF_ERROR(Flush());
  while (PQisBusy(conn_) == 1) NORMD_RETURN_IF_ERROR(WaitFor(POLLIN));
  return absl::OkStatus();
}

absl::StatusOr<PostgresResult> PostgresConnection::TakeResults() {
  PostgresResult last(nullptr);
  absl::Status first_error;
  for (;;) {
    NORMD_RETURN_IF_ERROR(AwaitAnswer());
    PostgresResult result(PQgetResult(conn_));
    if (result.result_ == nullptr) break;
    first_error.Update(Check(result));
    last = std::move(result);
  }
  if (PQstatus(conn_) != CONNECTION_OK) Close();
  NORMD_RETURN_IF_ERROR(first_error);
  return last;
}

// The result of one statement in a pipeline; its end and its sync point follow.
absl::StatusOr<PostgresResult> PostgresConnection::TakePipelined() {
  PostgresResult answer(nullptr);
  for (int ends = 0;;) {
    NORMD_RETURN_IF_ERROR(AwaitAnswer());
    PostgresResult result(PQgetResult(conn_));
    if (result.result_ == nullptr && ++ends > 1) return Lost("the connection to PostgreSQL broke");
    if (result.result_ == nullptr) continue;
    if (PQresultStatus(result.result_.get()) == PGRES_PIPELINE_SYNC) return answer;
    answer = std::move(result);
  }
}

absl::StatusOr<std::vector<PostgresResult>> PostgresConnection::TakeTransaction(size_t calls) {
  std::vector<PostgresResult> results;
  absl::Status first_error;
  bool committed = false;
  for (size_t i = 0; i < calls + 2; ++i) {
    NORMD_ASSIGN_OR_RETURN(PostgresResult result, TakePipelined());
    first_error.Update(Check(result));
    committed = OrEmpty(PQcmdStatus(result.result_.get())) == "COMMIT";  // a failed transaction answers "ROLLBACK"
    if (i > 0 && i <= calls) results.push_back(std::move(result));
  }
  if (PQstatus(conn_) != CONNECTION_OK || PQexitPipelineMode(conn_) == 0) Close();
  NORMD_RETURN_IF_ERROR(first_error);
  if (!committed) return absl::InternalError("PostgreSQL did not commit");
  // A cancelled wait for the synchronous standby is a mere warning: the transaction is committed here, perhaps nowhere
  // else.
  if (warnings_ > 0) return StoreUnavailableError("PostgreSQL committed with a warning");
  return results;
}

absl::Status PostgresConnection::Check(const PostgresResult& result) {
  const PGresult* const raw = result.result_.get();
  switch (PQresultStatus(raw)) {
    case PGRES_COMMAND_OK:
    case PGRES_TUPLES_OK:
    case PGRES_EMPTY_QUERY:
      return absl::OkStatus();
    default:
      Log(OrEmpty(PQresultErrorMessage(raw)));
      return PostgresError(OrEmpty(PQresultErrorField(raw, PG_DIAG_SQLSTATE)));
  }
}

absl::Status PostgresConnection::Lost(std::string_view what) {
  if (conn_ != nullptr) Log(OrEmpty(PQerrorMessage(conn_)));
  Close();
  return StoreUnavailableError(what);
}

void PostgresConnection::Log(std::string_view message) const {
  if (options_.log == nullptr) return;
  const absl::string_view stripped = absl::StripSuffix(absl::string_view(message.data(), message.size()), "\n");
  options_.log(std::string_view(stripped.data(), stripped.size()));
}

void PostgresConnection::OnNotice(void* self, const PGresult* notice) {
  auto* const connection = static_cast<PostgresConnection*>(self);
  if (OrEmpty(PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED)) != "WARNING") return;
  ++connection->warnings_;
  connection->Log(OrEmpty(PQresultErrorMessage(notice)));
}

}  // namespace normd
