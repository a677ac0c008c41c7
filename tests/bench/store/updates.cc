#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/strings.h"
#include "tests/bench/comparison.h"
#include "tests/bench/machine.h"
#include "tests/bench/or_die.h"
#include "tests/bench/store/database.h"
#include "tests/bench/store/sections.h"
#include "tests/bench/store/trainer.h"
#include "tests/support/environment.h"

namespace normd::bench {

namespace {

constexpr int64_t kHotSessions = 16;
// How many real states a bare loop takes turns with, because SQLite does not write a page whose bytes stay: few, so
// that they stay in the cache; no factor of 1,000 or 16, so that no row gets the bytes that it has.
constexpr size_t kStates = 3;

// What the updates of a store must come to, as a share of the bare loop's, at 64 in flight.
struct Target {
  const char* name;
  std::unique_ptr<Database> (*make)(Durability);
  double floor, hot_floor;  // hot: 16 sessions, by folding
};
constexpr Target kSqlite = {"sqlite", &MakeSqlite, 0.85, 2};
constexpr Target kPostgres = {"postgres", &MakePostgres, 0.7, 2};

// One row of the table.
struct Load {
  std::string name;
  int64_t sessions, in_flight;
};

// The sessions of the bare loops, made and trained by a store so that their rows are those that a store writes: with
// full replay windows.
class BareSessions {
 public:
  BareSessions(std::unique_ptr<Database> database, int64_t sessions, int64_t channels)
      : database_(std::move(database)) {
    SystemClock clock;
    Trainer(database_->OpenStore({}, &clock).get(), sessions, channels);
    std::vector<RowRequest> requests;
    for (int64_t i = 0; i < sessions; ++i) requests.push_back({SessionId(i), {}});
    rows_ = OrDie(database_->OpenTable(true)->Load(requests, int64_t{1} << 40));
    std::sort(rows_.begin(), rows_.end(), [](const SessionRow& a, const SessionRow& b) { return a.id < b.id; });
    loops_ = database_->OpenBare(&rows_);
    for (size_t i = 0; i < kStates; ++i) states_.push_back(rows_[i].state);
  }

  size_t loops() const { return loops_.size(); }

  // Transactions of `group` rows each over all rows in ShuffledOrder, again and again. Returns rows a second.
  double Run(size_t loop, int64_t group, absl::Duration duration) const {
    const std::vector<size_t> order = ShuffledOrder(static_cast<int64_t>(rows_.size()));
    std::vector<BareUpdate> updates(static_cast<size_t>(group));
    size_t written = 0;
    const absl::Time begin = SteadyNow();
    while (SteadyNow() < begin + duration) {
      for (BareUpdate& update : updates) {
        update = {order[written % order.size()], states_[written % states_.size()]};
        ++written;
      }
      loops_[loop]->Write(updates);
    }
    return static_cast<double>(written) / absl::ToDoubleSeconds(SteadyNow() - begin);
  }

 private:
  const std::unique_ptr<Database> database_;
  BareRows rows_;
  std::vector<std::unique_ptr<BareLoop>> loops_;
  std::vector<std::string> states_;
};

class Updates {
 public:
  Updates(const Flags& flags, Report* report) : flags_(flags), report_(report) {}

  // Every load of one store on tensors of `channels`.
  void Measure(const Target& target, Durability level, int64_t channels) const {
    std::vector<Load> loads;
    const char* const level_name = level == Durability::kPower ? "power" : "process";
    for (const bool hot : {false, true}) {
      for (const int64_t in_flight : {1, 64}) {
        Load load = {.name = Concat(target.name, " ", level_name, " C=", channels, " n=", in_flight, hot ? " hot" : ""),
                     .sessions = hot ? kHotSessions : sessions_,
                     .in_flight = in_flight};
        if (flags_.Chosen(load.name)) loads.push_back(std::move(load));
      }
    }
    if (loads.empty()) return;
    SystemClock clock;
    const std::unique_ptr<Database> database = target.make(level);
    const std::unique_ptr<DurableStore> store = database->OpenStore({}, &clock);
    Trainer trainer(store.get(), sessions_, channels);
    const BareSessions bare(target.make(level), sessions_, channels);
    for (const Load& load : loads) MeasureLoad(target, load, &trainer, bare);
  }

 private:
  // The store and the bare loops take turns. The bare loop writes a row for each update, as many in a transaction as
  // are in flight, none twice: SQLite folds what is written twice in one transaction in its own page cache. So for hot
  // sessions, too, it goes over all rows.
  void MeasureLoad(const Target& target, const Load& load, Trainer* trainer, const BareSessions& bare) const {
    const BackgroundCpu foreign;
    const auto run = [&](size_t candidate, bool warm_up) -> absl::StatusOr<double> {
      const absl::Duration duration = warm_up ? round_ * 0.3 : round_;
      if (candidate == 0) return trainer->Run(load.sessions, load.in_flight, duration);
      return bare.Run(candidate - 1, load.in_flight, duration);
    };
    const auto rounds = OrDie(Interleave<double>(1 + bare.loops(), flags_.Pick(5, 3, 1), run));
    size_t fastest = 1;
    std::vector<double> medians;
    for (const std::vector<double>& one : rounds) medians.push_back(Median(one));
    for (size_t i = 2; i < medians.size(); ++i) fastest = medians[i] > medians[fastest] ? i : fastest;
    Cell ratio = Ratio(MedianRatio(rounds[0], rounds[fastest]));
    if (load.in_flight > 1) ratio.floor = load.sessions == kHotSessions ? target.hot_floor : target.floor;
    report_->Row(load.name, {Amount(medians[0]), Amount(medians[fastest]), ratio, Ratio(foreign.Read())});
  }

  const Flags& flags_;
  Report* const report_;
  const absl::Duration round_ = flags_.Pick(absl::Seconds(1), absl::Milliseconds(300), absl::Milliseconds(5));
  const int64_t sessions_ = flags_.Pick(1000, 1000, 100);
};

}  // namespace

void MeasureUpdates(const Flags& flags, Report* report) {
  const bool has_postgres = !flags.smoke && !Environment("NORMD_TEST_POSTGRES").empty();
  if (!has_postgres) report->NotMeasured("postgres", "NORMD_TEST_POSTGRES names no server");
  report->Table(
      "updates/s, n in flight over 1000 sessions, hot: over 16 (floor); others: cores busy with other processes",
      {"store", "bare", "ratio", "others"});
  const Updates updates(flags, report);
  for (const Target* target : {&kSqlite, &kPostgres}) {
    if (target == &kPostgres && !has_postgres) continue;
    for (const Durability level : {Durability::kProcess, Durability::kPower}) {
      for (const int64_t channels : flags.Pick<std::vector<int64_t>>({256, 2048}, {256, 2048}, {16})) {
        updates.Measure(*target, level, channels);
      }
    }
  }
}

}  // namespace normd::bench
