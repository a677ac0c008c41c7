// What the parts of normd say of themselves when somebody looks, and the metrics that are read from it: a row of
// figures.cc for each, which says its name, type, label, help and what to read.
// In the path: after it. The server takes Figures for a scrape, Metrics shows them.
#ifndef NORMD_SERVER_FIGURES_H_
#define NORMD_SERVER_FIGURES_H_

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"
#include "server/obs/metric_set.h"
#include "server/obs/process.h"
#include "server/rpc/transport/connection_figures.h"
#include "server/rpc/transport/queue_figures.h"
#include "server/session/session_store.h"
#include "server/shm/region_table.h"

namespace normd {

// At one moment. A part that does not serve (yet) leaves its figures at 0.
struct Figures {
  StoreFigures store;
  ConnectionFigures connections;
  QueueFigures queues;
  RegionTable::Figures regions;
  ProcessFigures process;
};

// Without a name there is none, and one series.
struct FigureLabel {
  std::string_view name;
  absl::Span<const std::string_view> values;
};

// A gauge, or a counter of what was counted elsewhere since the start.
struct FigureRow {
  // `reader` is a lambda from Figures to a number. With a label it takes the index of the label's value, too.
  template <typename Reader>
  constexpr FigureRow(std::string_view row_name, MetricType row_type, FigureLabel row_label, std::string_view row_help,
                      Reader /*reader*/)
      : name(row_name),
        type(row_type),
        label(row_label),
        help(row_help),
        read([](const Figures& figures, [[maybe_unused]] size_t value) {
          if constexpr (std::is_invocable_v<Reader, const Figures&, size_t>) {
            return static_cast<double>(Reader()(figures, value));
          } else {
            return static_cast<double>(Reader()(figures));
          }
        }) {}

  std::string_view name;
  MetricType type;
  FigureLabel label;
  std::string_view help;
  double (*read)(const Figures& figures, size_t value);
};

// Every row, in the groups in which the README's table has them.
absl::Span<const FigureRow> StoreFigureRows();
absl::Span<const FigureRow> ListenerFigureRows();  // connections, queues and shared memory
absl::Span<const FigureRow> ProcessFigureRows();

// The metrics of some rows. Set is called by one thread at a time.
class FigureMetrics {
 public:
  // Makes them in `set`, which must outlive this, as the rows must.
  FigureMetrics(MetricSet* set, absl::Span<const FigureRow> rows);

  void Set(const Figures& figures);

 private:
  absl::Span<const FigureRow> rows_;
  std::vector<MirrorTable> tables_;  // of each row
};

}  // namespace normd

#endif  // NORMD_SERVER_FIGURES_H_
