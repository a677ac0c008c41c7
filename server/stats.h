// What the parts of normd say of themselves when somebody looks, and the metrics that are read from it: a row of
// stats.cc for each, which says its name, type, label, help and what to read.
// In the path: after it. The server takes Stats for a scrape, Metrics shows them.
#ifndef NORMD_SERVER_STATS_H_
#define NORMD_SERVER_STATS_H_

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"
#include "server/obs/metric_set.h"
#include "server/obs/process.h"
#include "server/rpc/transport/connection_stats.h"
#include "server/rpc/transport/queue_stats.h"
#include "server/session/session_store.h"
#include "server/shm/region_table.h"

namespace normd {

// At one moment. A part that does not serve (yet) leaves its figures at 0.
struct Stats {
  StoreStats store;
  ConnectionStats connections;
  QueueStats queues;
  RegionTable::Stats regions;
  ProcessStats process;
};

// Without a name there is none, and one series.
struct StatLabel {
  std::string_view name;
  absl::Span<const std::string_view> values;
};

// A gauge, or a counter of what was counted elsewhere since the start.
struct StatRow {
  // `reader` is a lambda from Stats to a number. With a label it takes the index of the label's value, too.
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

// Every row, in the groups in which the README's table has them.
absl::Span<const StatRow> StoreStatRows();
absl::Span<const StatRow> ListenerStatRows();  // connections, queues and shared memory
absl::Span<const StatRow> ProcessStatRows();

// The metrics of some rows. Set is called by one thread at a time.
class StatMetrics {
 public:
  // Makes them in `set`, which must outlive this, as the rows must.
  StatMetrics(MetricSet* set, absl::Span<const StatRow> rows);

  void Set(const Stats& stats);

 private:
  absl::Span<const StatRow> rows_;
  std::vector<MirrorTable> tables_;  // of each row
};

}  // namespace normd

#endif  // NORMD_SERVER_STATS_H_
