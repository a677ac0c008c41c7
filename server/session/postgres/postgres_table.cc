#include "server/session/postgres/postgres_table.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/session/session_key.h"

namespace normd {
namespace {

// Entry i makes schema version i + 1 out of version i. A released entry never changes: a new version is a new entry.
constexpr std::array<const char*, kPostgresSchema> kMigrations = {
    // Ids and labels are compared bytewise ("C"), as the contract of Page says, whatever the database's language.
    // The foreign key costs one look-up per creation and deletion and nothing per step, which keeps its key; it keeps a
    // manual DELETE by an operator from leaving half a session.
    // States are f64 vectors, which do not compress (EXTERNAL), and mostly stand in the TOAST table, so that a row of
    // `states` is small; half of each page is left free so that the next version of a row finds room beside it and no
    // index is written (a HOT update).
    R"sql(
      CREATE TABLE sessions (
        key bigserial PRIMARY KEY,
        id text COLLATE "C" NOT NULL UNIQUE,
        labels text COLLATE "C" NOT NULL,
        bytes bigint NOT NULL,
        head bytea NOT NULL
      );
      CREATE TABLE states (
        key bigint PRIMARY KEY REFERENCES sessions (key) ON DELETE CASCADE,
        revision bigint NOT NULL,
        expires_at bigint,
        state bytea NOT NULL
      ) WITH (fillfactor = 50);
      ALTER TABLE states ALTER COLUMN state SET STORAGE EXTERNAL;
      COMMENT ON COLUMN states.expires_at IS 'microseconds since 1970';
      CREATE INDEX states_expires_at ON states (expires_at) WHERE expires_at IS NOT NULL;
    )sql",
    // Lets Totals read the index alone instead of every head.
    "CREATE INDEX sessions_bytes ON sessions (bytes);",
    // As in `states`, the next version of a row finds room beside it.
    R"sql(
      CREATE TABLE clients (
        key bigint REFERENCES sessions (key) ON DELETE CASCADE,
        slot bigint,
        record bytea NOT NULL,
        PRIMARY KEY (key, slot)
      ) WITH (fillfactor = 50);
    )sql",
};

// Locks the states with the keys $1 and revisions $2, in the order given; $3 and $4 are their new expiry times and
// states.
#define NORMD_LOCK_STATES                                                                                         \
  "WITH locked AS MATERIALIZED (SELECT t.key, w.expires_at, w.state "                                             \
  "FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[]) WITH ORDINALITY "                           \
  "AS w (key, revision, expires_at, state, position) JOIN states t ON t.key = w.key AND t.revision = w.revision " \
  "ORDER BY w.position FOR NO KEY UPDATE OF t)"

// Writes the clients that $K, $S and $R name (key, slot, record; an empty record deletes) of the sessions in `won`,
// which are those that this statement itself has changed: nothing is written of a session whose row somebody else has
// changed. IS TRUE keeps the planner from a join, which would be a nested loop; the planner hashes `won` instead.
#define NORMD_WRITE_CLIENTS(K, S, R)                                                                                 \
  "changed AS MATERIALIZED (SELECT c.key, c.slot, c.record FROM unnest(" K "::bigint[], " S "::bigint[], " R         \
  "::bytea[]) AS c (key, slot, record) WHERE (c.key IN (SELECT won.key FROM won)) IS TRUE), "                        \
  "put AS (INSERT INTO clients (key, slot, record) SELECT key, slot, record FROM changed WHERE record <> '' "        \
  "ON CONFLICT (key, slot) DO UPDATE SET record = excluded.record), "                                                \
  "forgotten AS (DELETE FROM clients USING changed WHERE clients.key = changed.key AND clients.slot = changed.slot " \
  "AND changed.record = '') "

// Each statement changes and returns its row, or does neither.
static_assert(kHeadSummaryBytes == 16384 && kStateSummaryBytes == 128, "as the statement \"page\" says");

constexpr std::array<PostgresStatement, 11> kStatements = {{
    {"insert", R"sql(
      WITH made AS (
        INSERT INTO sessions (id, labels, bytes, head) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING RETURNING key
      ), put AS (
        INSERT INTO clients (key, slot, record)
        SELECT made.key, c.slot, c.record FROM made, unnest($7::bigint[], $8::bytea[]) AS c (slot, record)
      )
      INSERT INTO states (key, revision, expires_at, state) SELECT key, 1, $5, $6 FROM made RETURNING key, revision)sql"},
    // Many changes: rows are locked in the order given, whatever the plan, and only when all the bytes have arrived.
    {"states", NORMD_LOCK_STATES R"sql(
      UPDATE states SET revision = revision + 1, expires_at = locked.expires_at, state = locked.state
      FROM locked WHERE states.key = locked.key RETURNING states.key, states.revision)sql"},
    // The same, with step ids in rows of their own.
    {"states_clients", NORMD_LOCK_STATES R"sql(, won AS (
        UPDATE states SET revision = revision + 1, expires_at = locked.expires_at, state = locked.state
        FROM locked WHERE states.key = locked.key RETURNING states.key, states.revision
      ), )sql" NORMD_WRITE_CLIENTS("$5", "$6", "$7") R"sql(
      SELECT key, revision FROM won)sql"},
    {"all", R"sql(
      WITH won AS (
        UPDATE states SET revision = revision + 1, expires_at = $3, state = $4 WHERE key = $1 AND revision = $2
        RETURNING key, revision
      ), )sql" NORMD_WRITE_CLIENTS("$8", "$9", "$10") R"sql(
      UPDATE sessions SET labels = $5, bytes = $6, head = $7 FROM won WHERE sessions.key = won.key
      RETURNING won.key, won.revision)sql"},
    {"delete", R"sql(
      WITH gone AS (DELETE FROM states WHERE key = $1 AND revision = $2 RETURNING key)
      DELETE FROM sessions USING gone WHERE sessions.key = gone.key RETURNING 0::bigint, 0::bigint)sql"},
    // `size` is known without reading the large columns; `total` sums the sizes up to this row, left-out ones included.
    {"load", R"sql(
      SELECT id, key, revision,
             CASE WHEN same OR left_out THEN NULL ELSE head END, CASE WHEN same OR left_out THEN NULL ELSE state END,
             same::int::bigint, left_out::int::bigint,
             CASE WHEN same OR left_out THEN NULL ELSE (
               SELECT string_agg(int4send(octet_length(c.record)) || int8send(c.slot) || c.record, ''::bytea)
               FROM clients c WHERE c.key = sized.key) END,
             bytes, expires_at, labels
      FROM (SELECT *, NOT same AND total > $4 AND total > size AS left_out
            FROM (SELECT *, sum(size) OVER (ORDER BY position ROWS UNBOUNDED PRECEDING) AS total
                  FROM (SELECT s.id, s.key, t.revision, s.head, t.state, s.bytes, t.expires_at, s.labels, w.position,
                               w.key = t.key AND w.revision = t.revision AS same,
                               CASE WHEN w.key = t.key AND w.revision = t.revision THEN 0
                                    ELSE octet_length(s.head) + octet_length(t.state) END AS size
                        FROM unnest($1::text[], $2::bigint[], $3::bigint[]) WITH ORDINALITY
                             AS w (id, key, revision, position)
                        JOIN sessions s ON s.id = w.id JOIN states t ON t.key = s.key) AS found) AS summed) AS sized
      )sql"},
    {"page", R"sql(
      SELECT s.id, s.key, t.revision, substring(s.head FROM 1 FOR 16384), substring(t.state FROM 1 FOR 128)
      FROM sessions s JOIN states t ON t.key = s.key
      WHERE s.id > $1 AND s.id < $5 AND (t.expires_at IS NULL OR t.expires_at > $2)
        AND NOT EXISTS (SELECT FROM unnest($3::text[]) AS label WHERE strpos(s.labels, label COLLATE "C") = 0)
      ORDER BY s.id LIMIT $4)sql"},
    {"expired", R"sql(
      SELECT s.id FROM states t JOIN sessions s ON s.key = t.key
      WHERE t.expires_at <= $1 ORDER BY t.expires_at LIMIT $2)sql"},
    // A damaged number must not count.
    {"totals", R"sql(
      SELECT count(*), coalesce(sum(CASE WHEN bytes BETWEEN 0 AND 1099511627776 THEN bytes ELSE 0 END), 0)::bigint
      FROM sessions)sql"},
    // Keys below "0" begin with a tenant: see session_key.h.
    {"tenants", R"sql(
      SELECT split_part(id, '/', 2), count(*),
             coalesce(sum(CASE WHEN bytes BETWEEN 0 AND 1099511627776 THEN bytes ELSE 0 END), 0)::bigint
      FROM sessions WHERE id < '0' GROUP BY 1)sql"},
    {"time", "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"},
}};

// Bytes of one statement: its parameters are in memory several times, here and in the server.
constexpr size_t kMaxBatchBytes = size_t{8} << 20;

// One replica migrates at a time. The lock's number is normd's own; any other would do.
constexpr char kBeginMigration[] = R"sql(
    BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
    SET LOCAL statement_timeout = '10min'; SET LOCAL lock_timeout = '10min';
    SELECT pg_advisory_xact_lock(7881696);
    SET LOCAL client_min_messages = error;
    CREATE TABLE IF NOT EXISTS normd_schema (version integer NOT NULL))sql";
constexpr absl::Duration kMigrationLimit = absl::Minutes(11);

// Every statement here has one sensible plan, by index. PostgreSQL would choose another plan while the tables are small
// or were not analyzed yet, and keep it while they grow.
constexpr char kPlans[] =
    "SET work_mem = '64MB';"  // a batch of states is sorted and kept in memory
    "SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off; SET enable_hashjoin = off; "
    "SET enable_mergejoin = off;";

std::string SessionSettings(const PostgresOptions& options) {
  const auto setting = [](std::string_view name, absl::Duration value) {
    return Concat("SET ", name, " = ", absl::ToInt64Milliseconds(value), ";");
  };
  const char* const synchronous = options.durability == Durability::kPower ? "on" : "off";
  return Concat(setting("statement_timeout", options.statement_timeout), setting("lock_timeout", options.lock_timeout),
                setting("idle_in_transaction_session_timeout", options.idle_in_transaction_session_timeout), kPlans,
                "SELECT set_config('synchronous_commit', '", synchronous, "', false) WHERE '", synchronous,
                "' = 'off' OR current_setting('synchronous_commit') <> 'remote_apply'");
}

// Expiry times are rounded up and the current time is rounded down, so that a row never expires early.
int64_t FloorMicros(absl::Time time) { return absl::ToUnixMicros(time); }

std::optional<int64_t> CeilMicros(const std::optional<absl::Time>& time) {
  if (!time.has_value()) return std::nullopt;
  const int64_t micros = absl::ToUnixMicros(*time);
  return absl::FromUnixMicros(micros) < *time && *time != absl::InfiniteFuture() ? micros + 1 : micros;
}

// The changes of one statement, as positions in the list of all changes.
struct Batch {
  std::vector<size_t> positions;
  size_t bytes = 0;  // of states and clients
};

// The client rows of a batch's changes, as arrays.
struct ClientArrays {
  std::vector<std::optional<int64_t>> keys, slots;
  std::vector<std::string_view> records;

  void AddTo(bool with_keys, PostgresParameters* parameters) const {
    if (with_keys) parameters->Int64Array(keys);
    parameters->Int64Array(slots).ByteaArray(records);
  }
};

ClientArrays ClientsOf(absl::Span<const RowChange> changes, const Batch& batch) {
  ClientArrays arrays;
  for (const size_t position : batch.positions) {
    for (const ClientRow& client : changes[position].clients) {
      arrays.keys.push_back(changes[position].expected.key);
      arrays.slots.push_back(client.slot);
      arrays.records.push_back(client.record);
    }
  }
  return arrays;
}

PostgresCall StatesCall(absl::Span<const RowChange> changes, const Batch& batch) {
  std::vector<std::optional<int64_t>> keys, revisions, expiries;
  std::vector<std::string_view> states;
  for (const size_t position : batch.positions) {
    const RowChange& change = changes[position];
    keys.push_back(change.expected.key);
    revisions.push_back(change.expected.revision);
    expiries.push_back(CeilMicros(change.expires_at));
    states.push_back(change.state);
  }
  const ClientArrays clients = ClientsOf(changes, batch);
  PostgresCall call = {.statement = clients.slots.empty() ? "states" : "states_clients"};
  call.parameters.Int64Array(keys).Int64Array(revisions).Int64Array(expiries).ByteaArray(states);
  if (!clients.slots.empty()) clients.AddTo(/*with_keys=*/true, &call.parameters);
  return call;
}

PostgresCall CallFor(absl::Span<const RowChange> changes, const Batch& batch) {
  const RowChange& change = changes[batch.positions.front()];
  if (change.kind == RowChange::Kind::kState) return StatesCall(changes, batch);
  PostgresParameters values;
  const std::optional<int64_t> expires_at = CeilMicros(change.expires_at);
  if (change.kind == RowChange::Kind::kInsert) {
    values.Bytes(change.id).Bytes(change.labels).Int64(change.bytes).Bytes(change.head);
    values.OptionalInt64(expires_at).Bytes(change.state);
    ClientsOf(changes, batch).AddTo(/*with_keys=*/false, &values);
    return {.statement = "insert", .parameters = std::move(values)};
  }
  values.Int64(change.expected.key).Int64(change.expected.revision);
  if (change.kind == RowChange::Kind::kDelete) return {.statement = "delete", .parameters = std::move(values)};
  values.OptionalInt64(expires_at).Bytes(change.state);
  values.Bytes(change.labels).Int64(change.bytes).Bytes(change.head);
  ClientsOf(changes, batch).AddTo(/*with_keys=*/true, &values);
  return {.statement = "all", .parameters = std::move(values)};
}

// Puts the changes in the order of ids, so that every replica takes the locks of an id's rows and index entries before
// those of a higher id. A delete stays before the insert that follows it. Neighbours that write a state alone, as steps
// do, share a statement (groups of 64, 4 KiB each, durable: 28k updates/s, one by one 23k).
std::vector<Batch> Batches(absl::Span<const RowChange> changes) {
  std::vector<size_t> order(changes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return changes[a].id < changes[b].id; });
  std::vector<Batch> batches;
  bool open = false;
  for (const size_t position : order) {
    const bool joins = changes[position].kind == RowChange::Kind::kState;
    if (!joins || !open || batches.back().bytes >= kMaxBatchBytes) batches.emplace_back();
    open = joins;
    batches.back().positions.push_back(position);
    batches.back().bytes += changes[position].state.size();
    for (const ClientRow& client : changes[position].clients) batches.back().bytes += client.record.size();
  }
  return batches;
}

// Sets the new version of each change of `batch`. Rows are found by key, because after a conflict there are fewer rows
// than changes.
void SetVersions(absl::Span<const RowChange> changes, const Batch& batch, const PostgresResult& result,
                 std::vector<std::optional<RowVersion>>* versions) {
  std::map<int64_t, RowVersion> written;
  for (int i = 0; i < result.rows(); ++i) written[result.Int64(i, 0)] = {result.Int64(i, 0), result.Int64(i, 1)};
  for (const size_t position : batch.positions) {
    const RowChange& change = changes[position];
    const auto row = change.kind == RowChange::Kind::kState ? written.find(change.expected.key) : written.begin();
    if (row != written.end()) (*versions)[position] = row->second;
  }
}

std::vector<SessionRow> Rows(const PostgresResult& result) {
  std::vector<SessionRow> rows(static_cast<size_t>(result.rows()));
  for (int i = 0; i < result.rows(); ++i) {
    SessionRow& row = rows[static_cast<size_t>(i)];
    row.id = result.Bytes(i, 0);
    row.version = {.key = result.Int64(i, 1), .revision = result.Int64(i, 2)};
    row.head = result.Bytes(i, 3);
    row.state = result.Bytes(i, 4);
  }
  return rows;
}

uint64_t ReadBigEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

// Splits the concatenation of the statement "load": length, slot, record.
std::vector<ClientRow> Clients(std::string_view bytes) {
  constexpr size_t kLengthBytes = 4;
  constexpr size_t kSlotBytes = 8;
  std::vector<ClientRow> clients;
  while (bytes.size() >= kLengthBytes + kSlotBytes) {
    const uint64_t length = ReadBigEndian(bytes.substr(0, kLengthBytes));
    const auto slot = static_cast<int64_t>(ReadBigEndian(bytes.substr(kLengthBytes, kSlotBytes)));
    bytes.remove_prefix(kLengthBytes + kSlotBytes);
    clients.push_back({slot, std::string(bytes.substr(0, length))});
    bytes.remove_prefix(std::min<size_t>(length, bytes.size()));
  }
  return clients;
}

// Nothing if search_path finds no schema of normd.
absl::StatusOr<std::optional<int64_t>> SchemaVersion(PostgresConnection* connection) {
  NORMD_ASSIGN_OR_RETURN(const PostgresResult table, connection->Execute("SELECT to_regclass('normd_schema')"));
  if (table.IsNull(0, 0)) return std::nullopt;
  NORMD_ASSIGN_OR_RETURN(const PostgresResult row, connection->Execute("SELECT version FROM normd_schema"));
  return row.rows() == 1 ? std::optional<int64_t>(row.Int64(0, 0)) : std::nullopt;
}

absl::Status CheckNotNewer(int64_t version) {
  if (version <= kPostgresSchema) return absl::OkStatus();
  return absl::FailedPreconditionError(Concat("session store: the database has schema ", version,
                                              ", this server knows schemas up to ", kPostgresSchema));
}

absl::Status MigrateInTransaction(int version, PostgresConnection* connection) {
  NORMD_RETURN_IF_ERROR(connection->Execute(kBeginMigration).status());
  NORMD_ASSIGN_OR_RETURN(const std::optional<int64_t> found, SchemaVersion(connection));
  const int64_t from = found.value_or(0);
  NORMD_RETURN_IF_ERROR(CheckNotNewer(from));  // another replica was here first
  for (int64_t i = from; i < version; ++i) {
    NORMD_RETURN_IF_ERROR(connection->Execute(kMigrations[static_cast<size_t>(i)]).status());
  }
  const int64_t to = std::max<int64_t>(from, version);
  const std::string record = Concat("DELETE FROM normd_schema; INSERT INTO normd_schema VALUES (", to, "); COMMIT");
  return connection->Execute(record).status();
}

absl::Status CheckEncoding(PostgresConnection* connection) {
  NORMD_ASSIGN_OR_RETURN(const PostgresResult encoding, connection->Execute("SHOW server_encoding"));
  if (encoding.Bytes(0, 0) == "UTF8" || encoding.Bytes(0, 0) == "SQL_ASCII") return absl::OkStatus();
  return absl::FailedPreconditionError(
      Concat("session store: the database's encoding is ", encoding.Bytes(0, 0), ", it must be UTF8"));
}

}  // namespace

absl::Status MigratePostgres(int version, PostgresConnection* connection) {
  // Most starts find the right schema, and then need neither a lock nor the right to make tables.
  NORMD_ASSIGN_OR_RETURN(const std::optional<int64_t> found, SchemaVersion(connection));
  NORMD_RETURN_IF_ERROR(CheckNotNewer(found.value_or(0)));
  if (found.value_or(0) >= version) return absl::OkStatus();
  absl::Status status = MigrateInTransaction(version, connection);
  if (!status.ok()) connection->Close();
  return status;
}

absl::StatusOr<std::unique_ptr<PostgresTable>> PostgresTable::Open(const PostgresOptions& options) {
  // A server that has been silent for longer than any statement may take is lost.
  const absl::Duration silence_limit = options.statement_timeout + absl::Seconds(5);
  std::unique_ptr<PostgresTable> table(new PostgresTable(
      {.url = options.url, .setup = SessionSettings(options), .silence_limit = silence_limit, .log = options.log}));
  PostgresConnection* const connection = &table->connection_;
  NORMD_RETURN_IF_ERROR(connection->Connect());
  NORMD_RETURN_IF_ERROR(CheckEncoding(connection));
  connection->set_silence_limit(kMigrationLimit);
  NORMD_RETURN_IF_ERROR(MigratePostgres(kPostgresSchema, connection));
  connection->set_silence_limit(silence_limit);
  NORMD_RETURN_IF_ERROR(connection->Prepare(kStatements));
  table->on_time_ = options.on_time;
  NORMD_RETURN_IF_ERROR(table->TellTime());
  return table;
}

absl::Status PostgresTable::TellTime() {
  if (on_time_ == nullptr) return absl::OkStatus();
  NORMD_ASSIGN_OR_RETURN(const PostgresResult result, connection_.Run({.statement = "time", .parameters = {}}));
  on_time_(absl::FromUnixMicros(result.Int64(0, 0)));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> PostgresTable::Connect() {
  NORMD_RETURN_IF_ERROR(connection_.Connect());
  return connection_.connections();
}

absl::StatusOr<std::vector<SessionRow>> PostgresTable::Load(absl::Span<const RowRequest> requests, int64_t max_bytes) {
  if (requests.empty()) return std::vector<SessionRow>();
  std::vector<std::string_view> ids;
  std::vector<std::optional<int64_t>> keys, revisions;
  for (const RowRequest& request : requests) {
    ids.push_back(request.id);
    keys.push_back(request.known.key);
    revisions.push_back(request.known.revision);
  }
  PostgresCall call = {.statement = "load"};
  call.parameters.TextArray(ids).Int64Array(keys).Int64Array(revisions).Int64(max_bytes);
  NORMD_RETURN_IF_ERROR(connection_.Connect());
  NORMD_ASSIGN_OR_RETURN(const PostgresResult result, connection_.Run(call));
  std::vector<SessionRow> rows = Rows(result);
  for (int i = 0; i < result.rows(); ++i) {
    SessionRow& row = rows[static_cast<size_t>(i)];
    row.unchanged = result.Int64(i, 5) == 1;
    row.left_out = result.Int64(i, 6) == 1;
    row.clients = Clients(result.Bytes(i, 7));
    row.bytes = result.Int64(i, 8);
    if (!result.IsNull(i, 9)) row.expires_at = absl::FromUnixMicros(result.Int64(i, 9));
    row.labels = std::string(result.Bytes(i, 10));
  }
  return rows;
}

absl::StatusOr<std::vector<SessionRow>> PostgresTable::Page(const ListQuery& query, absl::Time now) {
  std::vector<std::string> labels;
  for (const auto& [key, value] : query.labels) labels.push_back(LabelText({{key, value}}));
  const std::vector<std::string_view> terms(labels.begin(), labels.end());
  PostgresCall call = {.statement = "page"};
  const KeyRange range = RangeOf(query);
  call.parameters.Bytes(range.after).Int64(FloorMicros(now)).TextArray(terms).Int64(query.page_size).Bytes(range.end);
  NORMD_RETURN_IF_ERROR(connection_.Connect());
  NORMD_ASSIGN_OR_RETURN(const PostgresResult result, connection_.Run(call));
  return Rows(result);
}

absl::StatusOr<std::vector<std::string>> PostgresTable::Expired(absl::Time now, int64_t limit) {
  PostgresCall call = {.statement = "expired"};
  call.parameters.Int64(FloorMicros(now)).Int64(limit);
  NORMD_RETURN_IF_ERROR(connection_.Connect());
  NORMD_RETURN_IF_ERROR(TellTime());  // here, because every sweep calls Expired
  NORMD_ASSIGN_OR_RETURN(const PostgresResult result, connection_.Run(call));
  std::vector<std::string> ids;
  ids.reserve(static_cast<size_t>(result.rows()));
  for (int i = 0; i < result.rows(); ++i) ids.emplace_back(result.Bytes(i, 0));
  return ids;
}

absl::StatusOr<TableTotals> PostgresTable::Totals() {
  NORMD_RETURN_IF_ERROR(connection_.Connect());
  NORMD_ASSIGN_OR_RETURN(const PostgresResult result, connection_.Run({.statement = "totals"}));
  TableTotals totals = {.all = {.sessions = result.Int64(0, 0), .bytes = result.Int64(0, 1)}, .tenants = {}};
  NORMD_ASSIGN_OR_RETURN(const PostgresResult tenants, connection_.Run({.statement = "tenants"}));
  for (int i = 0; i < tenants.rows(); ++i) {
    totals.tenants.emplace(tenants.Bytes(i, 0),
                           SessionTotals{.sessions = tenants.Int64(i, 1), .bytes = tenants.Int64(i, 2)});
  }
  return totals;
}

absl::StatusOr<SessionTable::Versions> PostgresTable::Write(NextPart next) {
  const absl::Span<const RowChange> changes = next();
  Versions versions(changes.size());
  if (changes.empty()) return versions;
  const std::vector<Batch> batches = Batches(changes);
  std::vector<PostgresCall> calls;
  calls.reserve(batches.size());
  for (const Batch& batch : batches) calls.push_back(CallFor(changes, batch));
  NORMD_ASSIGN_OR_RETURN(const std::vector<PostgresResult> results, connection_.RunTransaction(calls));
  for (size_t i = 0; i < batches.size(); ++i) SetVersions(changes, batches[i], results[i], &versions);
  return versions;
}

}  // namespace normd
