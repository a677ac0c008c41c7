// The stats that the parts of normd report at a scrape, and the metrics that show them. Each metric is a row of
// stats.cc, which gives its name, type, label, help and the value to read.
// In the path: beside it. The server fills a Stats for each scrape, and Metrics shows it.
// Threads: plain values, constant rows; StatMetrics is safe from any thread.
#ifndef NORMD_SERVER_WIRING_STATS_H_
#define NORMD_SERVER_WIRING_STATS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"
#include "server/base/wait_stats.h"
#include "server/obs/metric_set.h"
#include "server/obs/process.h"
#include "server/rpc/edge/connection_stats.h"
#include "server/rpc/edge/queue_stats.h"
#include "server/security/access_stats.h"
#include "server/security/server_certificates.h"
#include "server/session/session_store.h"
#include "server/shm/region_table.h"
#include "server/traces/span_exporter.h"

namespace normd {

// Where requests wait.
enum class WaitStage : uint8_t { kReading, kTurn, kDevice, kStoreChange, kStoreRead };
inline constexpr size_t kWaitStages = 5;
inline constexpr std::array<std::string_view, kWaitStages> kWaitStageNames = {"reading", "turn", "device",
                                                                              "store_change", "store_read"};

// What decided the elements that kernels left undecided.
enum class Rung : uint8_t { kPairs, kIntegers };
inline constexpr std::array<std::string_view, 2> kRungNames = {"pairs", "integers"};

// By tenant; tenants with nothing to count are left out, and the default one has the empty name.
struct TenantStats {
  std::map<std::string, int64_t> sessions;
  std::map<std::string, int64_t> session_bytes;
  std::map<std::string, int64_t> in_flight_bytes;
  std::map<std::string, int64_t> refusals;
};

// What became of the options that SIGHUP had read again.
struct ReloadStats {
  int64_t reloads = 0;   // taken
  int64_t failures = 0;  // refused
  int64_t stale = 0;     // 1: the newest were refused, and those before are in force
};

// The stats of all parts at one moment. Those of a part that is off or does not serve yet are 0.
struct Stats {
  StoreStats store;
  ConnectionStats connections;
  QueueStats queues;
  CertificateStats certificates;
  int64_t in_flight_bytes = 0;
  std::array<WaitStats, kWaitStages> waiting;             // by WaitStage
  std::array<int64_t, kRungNames.size()> undecided = {};  // by Rung
  RegionTable::Stats regions;
  ProcessStats process;
  AccessStats access;
  TenantStats tenants;
  SpanExporterStats spans;
  ReloadStats config;
};

// The label of a metric. An empty name means no label and a single series.
struct StatLabel {
  std::string_view name;
  absl::Span<const std::string_view> values;
};

// A gauge, or a counter whose value is counted elsewhere since the start.
struct StatRow {
  // `Reader` is a lambda without captures from Stats to a number. With a label, the lambda also takes the index of the
  // label's value.
  template <typename Reader>
  constexpr StatRow(std::string_view row_name, MetricType row_type, StatLabel row_label, std::string_view row_help,
                    Reader /*reader*/)
      : name(row_name),
        type(row_type),
        label(row_label),
        help(row_help),
        read([](const Stats& stats, [[maybe_unused]] size_t value) {
          if constexpr (std::is_invocable_v<Reader, const Stats&, size_t>) {
            return static_cast<double>(Reader()(stats, value));
          } else {
            return static_cast<double>(Reader()(stats));
          }
        }) {}

  std::string_view name;
  MetricType type;
  StatLabel label;
  std::string_view help;
  double (*read)(const Stats& stats, size_t value);
};

// Every row, in the groups in which the table in server/README.md has them.
absl::Span<const StatRow> BackendStatRows();
absl::Span<const StatRow> StoreStatRows();
absl::Span<const StatRow> ListenerStatRows();  // connections, queues and shared memory
absl::Span<const StatRow> ProcessStatRows();

// The metrics of a group of rows.
class StatMetrics {
 public:
  // Makes the metrics in `set`. `set` and `rows` must outlive this object.
  StatMetrics(MetricSet* set, absl::Span<const StatRow> rows);

  void Set(const Stats& stats);

 private:
  absl::Span<const StatRow> rows_;
  std::deque<MirrorTable> tables_;  // one for each row
};

}  // namespace normd

#endif  // NORMD_SERVER_WIRING_STATS_H_
