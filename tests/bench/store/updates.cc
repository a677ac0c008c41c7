#include "tests/bench/store/updates.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <regex>
#include <utility>

#include "server/session/memory/memory_store.h"
#include "tests/bench/machine.h"
#include "tests/bench/store/bare_loop.h"
#include "tests/bench/store/or_die.h"
#include "tests/bench/store/place.h"
#include "tests/bench/store/trainer.h"

namespace normd::bench {

namespace {

constexpr int64_t kHotSessions = 16;
// How many real states a bare loop takes turns with: few, so that they stay in the cache; no factor of 1,000 or 16.
constexpr size_t kStates = 3;

// A kind of table, and the least that a store makes of it.
struct Backend {
  std::string name;
  std::function<std::unique_ptr<Place>(Durability)> make_place;
  double floor = 0;      // at 64 in flight
  double hot_floor = 0;  // and 16 sessions, by folding
};

// One line of the table.
struct Load {
  std::string group;  // "sqlite power"
  int64_t channels, sessions, in_flight;
  std::string Name() const {
    return group + " C=" + std::to_string(channels) + " n=" + std::to_string(in_flight) +
           (sessions == kHotSessions ? " hot" : "");
  }
};

// A bare loop at one load: which rows it writes, and how many in a transaction.
struct Opponent {
  size_t loop = 0;
  int64_t sessions = 0, rows = 0;
};

// Rounds of one load, the store's and those of each opponent.
struct Rounds {
  std::vector<Round> store;
  std::vector<std::vector<Round>> bare;
  std::vector<std::vector<Round>> same_rows;  // hot sessions only
};

double MedianOf(const std::vector<Round>& rounds, double Round::*field) {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back(round.*field);
  return Median(values);
}

// The sessions of a bare loop, made and trained by a store so that its rows are those that a store writes.
class BareSessions {
 public:
  BareSessions(std::unique_ptr<Place> place, int64_t sessions, int64_t channels) : place_(std::move(place)) {
    SystemClock clock;
    std::vector<RowRequest> requests;
    {
      const std::unique_ptr<DurableStore> store = place_->OpenStore({}, &clock);
      Trainer trainer(store.get(), sessions, channels);
      trainer.Prepare();
      for (const std::string& id : trainer.ids()) requests.push_back({id, {}});
    }
    rows_ = OrDie(place_->OpenReader()->Load(requests, int64_t{1} << 40));
    std::sort(rows_.begin(), rows_.end(), [](const SessionRow& a, const SessionRow& b) { return a.id < b.id; });
    loops_ = place_->OpenBare(&rows_);
    for (size_t i = 0; i < kStates; ++i) states_.push_back(rows_[i].state);
  }

  size_t loops() const { return loops_.size(); }
  Round Run(const Opponent& opponent, absl::Duration duration) const {
    const std::vector<size_t> order = ShuffledOrder(opponent.sessions);
    return RunBare(loops_[opponent.loop].get(), order, states_, opponent.rows, duration);
  }

 private:
  const std::unique_ptr<Place> place_;
  BareRows rows_;
  std::vector<std::unique_ptr<BareLoop>> loops_;
  std::vector<std::string> states_;
};

// The store and its opponents take turns, the first one too, so that a slow moment of the machine hits both.
//
// The bare loop writes a row for each update, as many in a transaction as are in flight, none twice: SQLite folds what
// is written twice in one transaction in its own page cache. So for hot sessions, too, it goes over all rows. Beside it
// stands the loop over the hot rows alone, each once in a transaction.
Rounds Race(const UpdateOptions& options, const Load& load, Trainer* trainer, const BareSessions& bare) {
  const bool hot = load.sessions == kHotSessions;
  Rounds rounds;
  rounds.bare.resize(bare.loops());
  if (hot) rounds.same_rows.resize(bare.loops());
  for (int i = -1; i < options.rounds; ++i) {
    const bool warm_up = i < 0;
    const absl::Duration duration = warm_up ? options.warm_up : options.round;
    const auto race_store = [&] {
      const Round round = trainer->Run(load.sessions, load.in_flight, duration);
      if (!warm_up) rounds.store.push_back(round);
    };
    if (i % 2 == 0) race_store();
    for (size_t loop = 0; loop < bare.loops(); ++loop) {
      const Round round = bare.Run({loop, options.sessions, load.in_flight}, duration);
      if (!warm_up) rounds.bare[loop].push_back(round);
      if (!hot) continue;
      const Round same_rows = bare.Run({loop, kHotSessions, std::min(load.in_flight, kHotSessions)}, duration);
      if (!warm_up) rounds.same_rows[loop].push_back(same_rows);
    }
    if (i % 2 != 0) race_store();
  }
  return rounds;
}

// The fastest of the bare loops.
const std::vector<Round>& Fastest(const std::vector<std::vector<Round>>& loops) {
  const std::vector<Round>* best = nullptr;
  for (const std::vector<Round>& loop : loops) {
    const bool faster =
        best == nullptr || MedianOf(loop, &Round::updates_per_s) > MedianOf(*best, &Round::updates_per_s);
    if (faster) best = &loop;
  }
  return *best;
}

// Each round against the one beside it.
double MedianRatio(const std::vector<Round>& store, const std::vector<Round>& bare) {
  std::vector<double> ratios;
  for (size_t i = 0; i < store.size(); ++i) ratios.push_back(store[i].updates_per_s / bare[i].updates_per_s);
  return Median(ratios);
}

void AddRow(const std::string& name, const Rounds& rounds, std::optional<double> floor, double foreign,
            Report* report) {
  const double store = MedianOf(rounds.store, &Round::updates_per_s);
  const double p50 = MedianOf(rounds.store, &Round::p50_micros);
  const double p99 = MedianOf(rounds.store, &Round::p99_micros);
  const double group = MedianOf(rounds.store, &Round::group);
  std::vector<std::string> cells = {name, Short(store)};
  report->Add({name + " store", store, "updates/s", {}});
  report->Add({name + " p50", p50, "us", {}});
  report->Add({name + " p99", p99, "us", {}});
  if (rounds.bare.empty()) {
    cells.insert(cells.end(), {"", "", "", ""});
  } else {
    const std::vector<Round>& denominator = Fastest(rounds.bare);
    const double bare = MedianOf(denominator, &Round::updates_per_s);
    const double ratio = MedianRatio(rounds.store, denominator);
    cells.insert(cells.end(), {Short(bare), Fixed(ratio, 2), floor.has_value() ? Fixed(*floor, 2) : "", ""});
    if (!rounds.same_rows.empty()) {
      const double same_rows = MedianOf(Fastest(rounds.same_rows), &Round::updates_per_s);
      cells.back() = Short(same_rows);
      report->Add({name + " bare over the same rows", same_rows, "updates/s", {}});
    }
    report->Add({name + " bare", bare, "updates/s", {}});
    report->Add({name + " group", group, "updates", {}});
    report->Add({name, ratio, "store / bare", floor});
  }
  cells.insert(cells.end(), {Fixed(group, 1), Short(p50), Short(p99), Fixed(foreign, 2)});
  report->Row(cells);
}

const char* LevelName(Durability durability) {
  switch (durability) {
    case Durability::kMemory:
      return "memory";
    case Durability::kProcess:
      return "process";
    case Durability::kPower:
      break;
  }
  return "power";
}

// Those that were asked for.
std::vector<Load> LoadsOf(const UpdateOptions& options, const std::string& group, int64_t channels) {
  std::vector<Load> loads;
  for (const int64_t sessions : {options.sessions, kHotSessions}) {
    for (const int64_t in_flight : {1, 64}) {
      const Load load = {group, channels, sessions, in_flight};
      if (std::regex_search(load.Name(), std::regex(options.only))) loads.push_back(load);
    }
  }
  return loads;
}

void MeasureDurable(const UpdateOptions& options, const Backend& backend, Durability level, int64_t channels,
                    Report* report) {
  const std::vector<Load> loads = LoadsOf(options, backend.name + " " + LevelName(level), channels);
  if (loads.empty()) return;
  SystemClock clock;
  const std::unique_ptr<Place> place = backend.make_place(level);
  const std::unique_ptr<DurableStore> store = place->OpenStore({}, &clock);
  Trainer trainer(store.get(), options.sessions, channels);
  trainer.Prepare();
  const BareSessions bare(backend.make_place(level), options.sessions, channels);
  for (const Load& load : loads) {
    const BackgroundCpu foreign;
    const Rounds rounds = Race(options, load, &trainer, bare);
    std::optional<double> floor;
    if (load.in_flight > 1) floor = load.sessions == kHotSessions ? backend.hot_floor : backend.floor;
    AddRow(load.Name(), rounds, floor, foreign.Read(), report);
  }
}

void MeasureMemory(const UpdateOptions& options, int64_t channels, Report* report) {
  const std::vector<Load> loads = LoadsOf(options, "memory", channels);
  if (loads.empty()) return;
  SystemClock clock;
  MemoryStore store({}, &clock);
  Trainer trainer(&store, options.sessions, channels);
  trainer.Prepare();
  for (const Load& load : loads) {
    const BackgroundCpu foreign;
    Rounds rounds;
    trainer.Run(load.sessions, load.in_flight, options.warm_up);
    for (int i = 0; i < options.rounds; ++i) {
      rounds.store.push_back(trainer.Run(load.sessions, load.in_flight, options.round));
    }
    AddRow(load.Name(), rounds, {}, foreign.Read(), report);
  }
}

}  // namespace

void MeasureUpdates(const UpdateOptions& options, Report* report) {
  std::vector<Backend> backends;
  backends.push_back({"sqlite", [&](Durability level) { return MakeSqlitePlace(options.folder, level); }, 0.8, 2});
  if (options.postgres_url.empty()) {
    report->NotMeasured("postgres", "NORMD_TEST_POSTGRES names no server");
  } else {
    backends.push_back(
        {"postgres", [&](Durability level) { return MakePostgresPlace(options.postgres_url, level); }, 0.7, 2});
  }
  report->Table(
      "updates/s: n in flight over " + std::to_string(options.sessions) + " sessions, hot: over " +
          std::to_string(kHotSessions) +
          " (same rows: bare loop over those); times of a commit in us; others: cores busy with other processes",
      {"", "store", "bare", "ratio", "floor", "same rows", "group", "p50 us", "p99 us", "others"});
  for (const Backend& backend : backends) {
    for (const Durability level : {Durability::kProcess, Durability::kPower}) {
      for (const int64_t channels : options.channels) MeasureDurable(options, backend, level, channels, report);
    }
  }
  for (const int64_t channels : options.channels) MeasureMemory(options, channels, report);
}

}  // namespace normd::bench
