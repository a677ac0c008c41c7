#include "tests/bench/store/bare_loop.h"

#include "tests/bench/machine.h"
#include "tests/bench/report.h"
#include "tests/bench/store/or_die.h"

namespace normd::bench {

Round RunBare(BareLoop* loop, const std::vector<size_t>& order, const std::vector<std::string>& states, int64_t group,
              absl::Duration duration) {
  // Else a row would get the bytes that it has.
  if (order.size() % states.size() == 0) Die("rows must not be a multiple of states");
  std::vector<BareUpdate> updates(static_cast<size_t>(group));
  std::vector<double> micros;
  size_t written = 0;
  const absl::Time begin = SteadyNow();
  absl::Time now = begin;
  while (now < begin + duration) {
    for (BareUpdate& update : updates) {
      update = {order[written % order.size()], states[written % states.size()]};
      ++written;
    }
    loop->Write(updates);
    const absl::Time end = SteadyNow();
    micros.push_back(absl::ToDoubleMicroseconds(end - now));
    now = end;
  }
  return {.updates_per_s = static_cast<double>(written) / absl::ToDoubleSeconds(now - begin),
          .group = static_cast<double>(group),
          .p50_micros = Percentile(micros, 0.5),
          .p99_micros = Percentile(micros, 0.99)};
}

}  // namespace normd::bench
