#include "server/wiring/stats.h"

#include <string>

#include "absl/time/time.h"

namespace normd {
namespace {

constexpr MetricType kCounter = MetricType::kCounter;
constexpr MetricType kGauge = MetricType::kGauge;
constexpr StatLabel kNone = {};
constexpr StatLabel kDeniedFor = {"reason", kDenialNames};
constexpr StatLabel kRulesOf = {"file", kRulesFileNames};
constexpr StatLabel kStage = {"stage", kWaitStageNames};
constexpr StatLabel kClosedFor = {"reason", kRefusedForNames};
constexpr StatLabel kRefusedFor = {"reason", kTransportRefusalNames};
constexpr StatLabel kResetFor = {"reason", kStreamResetNames};
constexpr StatLabel kDecidedBy = {"rung", kRungNames};

constexpr StatRow kBackendRows[] = {
    {"normd_undecided_elements_total", kCounter, kDecidedBy,
     "Elements whose value lay so near to the middle between two numbers of their type that the kernels did not tell "
     "which is the nearest, by what told: pairs of f64, or exact integers. Those of PowerNorm are not counted.",
     [](const Stats& f, size_t rung) { return f.undecided[rung]; }},
};

constexpr StatRow kStoreRows[] = {
    {"normd_sessions", kGauge, kNone, "Sessions in the store.", [](const Stats& f) { return f.store.sessions; }},
    {"normd_session_bytes", kGauge, kNone, "What all sessions count against max_total_bytes.",
     [](const Stats& f) { return f.store.bytes; }},
    {"normd_resident_sessions", kGauge, kNone, "Sessions in memory; the others are read when they are used.",
     [](const Stats& f) { return f.store.resident_sessions; }},
    {"normd_resident_session_bytes", kGauge, kNone, "Memory of those, estimated.",
     [](const Stats& f) { return f.store.resident_bytes; }},
    {"normd_session_loads_total", kCounter, kNone, "Sessions read into memory.",
     [](const Stats& f) { return f.store.loads; }},
    {"normd_session_evictions_total", kCounter, kNone, "Sessions that left memory, idle or for want of room.",
     [](const Stats& f) { return f.store.evictions; }},
    {"normd_session_expiries_total", kCounter, kNone, "Sessions deleted because their ttl had ended.",
     [](const Stats& f) { return f.store.expired; }},
    {"normd_store_rows_total", kCounter, kNone, "Rows written; changes of one session in a group are one row.",
     [](const Stats& f) { return f.store.rows; }},
    {"normd_store_conflicts_total", kCounter, kNone,
     "Rows not written because another server was first; their changes were tried again.",
     [](const Stats& f) { return f.store.conflicts; }},
    {"normd_store_damaged_total", kCounter, kNone, "Damaged records that were read (DATA_LOSS).",
     [](const Stats& f) { return f.store.damaged; }},
    {"normd_store_failed_groups_total", kCounter, kNone, "Transactions that failed; nothing of them was kept.",
     [](const Stats& f) { return f.store.failed_groups; }},
    {"normd_store_log_bytes", kGauge, kNone,
     "Size of SQLite's write-ahead log on the disk, which is used again and again.",
     [](const Stats& f) { return f.store.log_bytes; }},
    {"normd_store_file_damaged", kGauge, kNone,
     "1: the check at the start found the store's file damaged; restore a backup.",
     [](const Stats& f) { return f.store.file_damaged; }},
};

constexpr StatRow kListenerRows[] = {
    {"normd_in_flight_bytes", kGauge, kNone, "Bytes of requests admitted and not yet answered.",
     [](const Stats& f) { return f.in_flight_bytes; }},
    {"normd_waiting", kGauge, kStage,
     "What waits now: for room to be read (reading), for a turn to be computed (turn), for a launch on a device "
     "(device), for a transaction of the session store (store_change), to be read from it (store_read).",
     [](const Stats& f, size_t stage) { return f.waiting[stage].waiting; }},
    {"normd_waiting_oldest_seconds", kGauge, kStage, "How long the oldest of those has waited; 0 if nothing waits.",
     [](const Stats& f, size_t stage) { return absl::ToDoubleSeconds(f.waiting[stage].oldest); }},
    {"normd_calls", kGauge, kNone, "Calls and streams under way, health checks and reflection among them.",
     [](const Stats& f) { return f.queues.calls; }},
    {"normd_watchers", kGauge, kNone, "Streams that watch a session.",
     [](const Stats& f) { return f.queues.watchers; }},
    {"normd_idle_streams_ended_total", kCounter, kNone,
     "Streams that only waited for a message and were ended, because new calls would soon have found no place.",
     [](const Stats& f) { return f.queues.idle_streams_ended; }},
    {"normd_connections", kGauge, kNone, "Open connections.", [](const Stats& f) { return f.connections.open; }},
    {"normd_connections_accepted_total", kCounter, kNone,
     "Connections that finished their set-up; with TLS, that sent their ClientHello.",
     [](const Stats& f) { return f.connections.accepted; }},
    {"normd_connections_closed_total", kCounter, kClosedFor,
     "Connections that the server closed, each once: too many in all (total) or of one peer (peer), no descriptors "
     "left, set-up not finished in time (setup), not HTTP/2 (foreign), plain text where TLS is spoken (plaintext), TLS "
     "where it is not (tls), calls opened or taken back in a flood, or much work for few bytes (flood), rules of "
     "HTTP/2 "
     "broken (protocol), replies not read or headers not ended in time (stalled), no answer to a PING (keepalive), "
     "--max_connection_age (age), --max_connection_idle (idle), idle where another peer needed the place (made_room); "
     "and those that their peers gave up before the set-up was finished (left).",
     [](const Stats& f, size_t reason) { return f.connections.refused[reason]; }},
    {"normd_transport_refusals_total", kCounter, kRefusedFor,
     "Calls that the native transport refused at their headers, before their method was looked at; no other metric of "
     "requests has them: a method or content type of HTTP that is not gRPC's (not_grpc), header fields over the limit "
     "(too_large), a timeout or binary value that cannot be decoded (malformed), compressed messages (compressed), "
     "header fields or frames that break HTTP's rules (http), of which the log tells at debug.",
     [](const Stats& f, size_t reason) { return f.queues.refused[reason]; }},
    {"normd_stream_resets_total", kCounter, kResetFor,
     "Calls that the native transport ended by RST_STREAM, by HTTP/2's error code: no_error and cancel are the "
     "server's "
     "own will, all others answer what the peer did.",
     [](const Stats& f, size_t reason) { return f.queues.resets[reason]; }},
    {"normd_connections_at_stream_limit", kGauge, kNone,
     "Connections with as many calls as --max_concurrent_streams allows: their callers' next calls wait in the client.",
     [](const Stats& f) { return f.queues.at_stream_limit; }},
    {"normd_waiting_bytes", kGauge, kNone,
     "Memory of metadata and messages that came before they were asked for, beside the bytes in flight.",
     [](const Stats& f) { return f.queues.waiting_bytes; }},
    {"normd_queues", kGauge, kNone, "Queues of the transport, one thread each.",
     [](const Stats& f) { return f.queues.queues; }},
    {"normd_queue_busy_seconds_total", kCounter, kNone,
     "Time that the queues' threads were busy; its rate divided by normd_queues is their load.",
     [](const Stats& f) { return absl::ToDoubleSeconds(f.queues.busy); }},
    {"normd_denied_total", kCounter, kDeniedFor,
     "Calls denied at their headers: without credentials, with malformed ones, with a token that is unknown, expired "
     "or came in plain text, or because the policy does not allow the method.",
     [](const Stats& f, size_t reason) { return f.access.denied[reason]; }},
    {"normd_rules_loads_total", kCounter, kRulesOf, "Contents of the tokens and policy files that were taken.",
     [](const Stats& f, size_t file) { return f.access.files[file].loads; }},
    {"normd_rules_failures_total", kCounter, kRulesOf, "Contents of these files that could not be used.",
     [](const Stats& f, size_t file) { return f.access.files[file].failures; }},
    {"normd_rules_stale", kGauge, kRulesOf,
     "1: the file cannot be used as it is now; what it said before stays in force.",
     [](const Stats& f, size_t file) { return f.access.files[file].stale; }},
    {"normd_config_reloads_total", kCounter, kNone, "Times that SIGHUP had the options read again and they were taken.",
     [](const Stats& f) { return f.config.reloads; }},
    {"normd_config_reload_failures_total", kCounter, kNone,
     "Times that they could not be used; the log says why, and those before stay.",
     [](const Stats& f) { return f.config.failures; }},
    {"normd_config_stale", kGauge, kNone, "1: the newest reload of the options failed; those before stay in force.",
     [](const Stats& f) { return f.config.stale; }},
    {"normd_tls_connections_without_call_total", kCounter, kNone,
     "TLS connections that ended before their first call: handshakes that failed, for which the log has the reason, "
     "and clients that wanted nothing.",
     [](const Stats& f) { return f.connections.without_call; }},
    {"normd_tls_certificate_expiry_timestamp_seconds", kGauge, kNone,
     "When the server's certificate, or one of its chain, expires, seconds since the Unix epoch; 0 without TLS.",
     [](const Stats& f) { return absl::ToUnixSeconds(f.certificates.expiry); }},
    {"normd_tls_reloads_total", kCounter, kNone, "New certificates that were taken without a restart.",
     [](const Stats& f) { return f.certificates.reloads; }},
    {"normd_tls_reload_failures_total", kCounter, kNone,
     "New certificates that could not be used; the log says why, and those before stay.",
     [](const Stats& f) { return f.certificates.failed_reloads; }},
    {"normd_queue_callback_longest_seconds", kGauge, kNone,
     "The longest that a queue's thread was busy with one event since the last scrape: a callback, or a connection's "
     "turn of reading or writing, with nghttp2 and TLS.",
     [](const Stats& f) { return absl::ToDoubleSeconds(f.queues.longest_callback); }},
    {"normd_queue_callbacks_slow_total", kCounter, kNone, "Events that kept a queue's thread over 5 ms.",
     [](const Stats& f) { return f.queues.slow_callbacks; }},
    {"normd_spans_exported_total", kCounter, kNone, "Spans that the collector of --trace_endpoint has taken.",
     [](const Stats& f) { return f.spans.exported; }},
    {"normd_spans_dropped_total", kCounter, kNone,
     "Spans that no collector got: it was away, too slow, or refused them. No request waits for it.",
     [](const Stats& f) { return f.spans.dropped; }},
    {"normd_shared_memory_regions", kGauge, kNone, "Shared-memory regions that are mapped.",
     [](const Stats& f) { return f.regions.regions; }},
    {"normd_shared_memory_bytes", kGauge, kNone, "Bytes of those, mapped and not copied.",
     [](const Stats& f) { return f.regions.bytes; }},
};

constexpr StatRow kProcessRows[] = {
    {"process_resident_memory_bytes", kGauge, kNone, "Resident memory of the process.",
     [](const Stats& f) { return f.process.resident_bytes; }},
    {"process_open_fds", kGauge, kNone, "Open file descriptors.", [](const Stats& f) { return f.process.open_fds; }},
    {"process_max_fds", kGauge, kNone, "The limit of open file descriptors.",
     [](const Stats& f) { return f.process.max_fds; }},
    {"process_threads", kGauge, kNone, "Threads of the process.", [](const Stats& f) { return f.process.threads; }},
    {"process_cpu_seconds_total", kCounter, kNone, "User and system CPU time spent.",
     [](const Stats& f) { return f.process.cpu_seconds; }},
    {"process_start_time_seconds", kGauge, kNone, "Start of the process, seconds since the Unix epoch.",
     [](const Stats& f) { return f.process.start_time_seconds; }},
};

std::vector<Label> LabelsOf(const StatRow& row) {
  if (row.label.name.empty()) return {};
  return {Label(row.label.name, row.label.values)};
}

}  // namespace

absl::Span<const StatRow> BackendStatRows() { return kBackendRows; }
absl::Span<const StatRow> StoreStatRows() { return kStoreRows; }
absl::Span<const StatRow> ListenerStatRows() { return kListenerRows; }
absl::Span<const StatRow> ProcessStatRows() { return kProcessRows; }

StatMetrics::StatMetrics(MetricSet* set, absl::Span<const StatRow> rows) : rows_(rows) {
  for (const StatRow& row : rows) tables_.emplace_back(set, row.name, row.type, LabelsOf(row), row.help);
}

void StatMetrics::Set(const Stats& stats) {
  for (size_t row = 0; row < rows_.size(); ++row) {
    for (size_t value = 0; value < tables_[row].size(); ++value) {
      tables_[row].Set(value, rows_[row].read(stats, value));
    }
  }
}

}  // namespace normd
