#include "tests/bench/store/many_sessions.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <utility>

#include "tests/bench/machine.h"
#include "tests/bench/store/in_flight.h"
#include "tests/bench/store/or_die.h"
#include "tests/bench/store/place.h"
#include "tests/bench/store/trainer.h"

namespace normd::bench {

namespace {

constexpr int64_t kChannels = 64;
constexpr int64_t kInFlight = 256;
constexpr int64_t kSmallCache = int64_t{64} << 20;
constexpr int64_t kLargeCache = int64_t{64} << 30;

// After a quarter, a half and all of the sessions.
struct Stage {
  double sessions = 0, creates_per_s = 0, file_bytes = 0, resident_bytes = 0;  // the last two for each session
};

struct Costs {
  std::array<Stage, 3> stages;
  double open_seconds = 0, first_get_micros = 0, get_micros = 0, opened_resident_bytes = 0;
};

double SecondsSince(absl::Time start) { return absl::ToDoubleSeconds(SteadyNow() - start); }

void Create(DurableStore* store, int64_t from, int64_t to) {
  BatchExecution flight(kInFlight);
  while (from < to) {
    int64_t free = flight.Take();
    for (; free > 0 && from < to; --free, ++from) {
      store->Create(NewBatchNormSession(SessionId(from), kChannels),
                    [&flight, start = SteadyNow()](const absl::StatusOr<SessionPtr>& created) {
                      OrDie(created.status());
                      flight.Finish(start);
                    });
    }
    flight.Return(free);
  }
  flight.Land();
}

double GetMicros(DurableStore* store, int64_t number) {
  BatchExecution flight(1);
  flight.Take();
  store->Get(SessionId(number), absl::ZeroDuration(), [&flight, start = SteadyNow()](absl::StatusOr<SessionPtr> got) {
    OrDie(got.status());
    flight.Finish(start);
  });
  return flight.Land().front();
}

void CreateAll(const Place& place, const DurableStoreOptions& options, Clock* clock, Costs* costs) {
  const std::unique_ptr<DurableStore> store = place.OpenStore(options, clock);
  const auto empty = static_cast<double>(ResidentBytes());
  const int64_t all = options.limits.max_sessions;
  int64_t made = 0;
  for (size_t i = 0; i < costs->stages.size(); ++i) {
    const int64_t until = all >> (costs->stages.size() - 1 - i);
    const absl::Time start = SteadyNow();
    Create(store.get(), made, until);
    const double seconds = SecondsSince(start);
    const auto count = static_cast<double>(until);
    costs->stages[i] = {.sessions = count,
                        .creates_per_s = static_cast<double>(until - made) / seconds,
                        .file_bytes = static_cast<double>(place.FileBytes()) / count,
                        .resident_bytes = (static_cast<double>(ResidentBytes()) - empty) / count};
    made = until;
  }
}

Costs MeasureCosts(const ManySessionsOptions& many, int64_t max_resident_bytes) {
  Costs costs;
  SystemClock clock;
  const std::unique_ptr<Place> place = MakeSqlitePlace(many.folder, Durability::kPower);
  DurableStoreOptions options;
  options.limits.max_sessions = many.sessions;
  options.max_resident_bytes = max_resident_bytes;
  CreateAll(*place, options, &clock, &costs);
  const int64_t before = ResidentBytes();
  const absl::Time start = SteadyNow();
  const std::unique_ptr<DurableStore> store = place->OpenStore(options, &clock);
  costs.open_seconds = SecondsSince(start);
  costs.first_get_micros = GetMicros(store.get(), many.sessions / 2);
  std::vector<double> micros;
  for (int64_t i = 0; i < 500; ++i) micros.push_back(GetMicros(store.get(), i * 7919 % many.sessions));
  costs.get_micros = Median(micros);
  costs.opened_resident_bytes = static_cast<double>(ResidentBytes() - before);
  return costs;
}

// `work` in a child, its result through a pipe.
Costs InChild(const std::function<Costs()>& work) {
  std::array<int, 2> ends = {};
  if (pipe(ends.data()) != 0) Die("pipe");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) Die("fork");
  if (child == 0) {
    const Costs costs = work();
    const bool sent = write(ends[1], &costs, sizeof(costs)) == sizeof(costs);
    _exit(sent ? 0 : 1);
  }
  close(ends[1]);
  Costs costs;
  const bool received = read(ends[0], &costs, sizeof(costs)) == sizeof(costs);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!received || status != 0) Die("the child that makes sessions failed");
  return costs;
}

void Show(const std::string& name, const Costs& costs, Report* report) {
  for (const Stage& stage : costs.stages) {
    const std::string row = name + " N=" + Short(stage.sessions);
    report->Row({row, Short(stage.creates_per_s), Short(stage.file_bytes), Short(stage.resident_bytes)});
    report->Add({row + " creates", stage.creates_per_s, "1/s", {}});
    report->Add({row + " file", stage.file_bytes, "bytes/session", {}});
    report->Add({row + " resident", stage.resident_bytes, "bytes/session", {}});
  }
  const std::string row = name + " opened again";
  report->Note(row, Fixed(costs.open_seconds * 1e3, 1) + " ms; first Get " + Fixed(costs.first_get_micros, 0) +
                        " us, median of 500 more " + Fixed(costs.get_micros, 0) + " us; resident + " +
                        Fixed(costs.opened_resident_bytes / (1 << 20), 1) + " MiB");
  report->Add({row, costs.open_seconds, "s", {}});
  report->Add({row + " first get", costs.first_get_micros, "us", {}});
  report->Add({row + " get", costs.get_micros, "us", {}});
}

// How much of a straight line through the origin the growth is: a session's bytes among the first quarter against among
// all.
double Linearity(const Costs& costs, double Stage::*bytes) {
  return costs.stages.front().*bytes / (costs.stages.back().*bytes);
}

}  // namespace

void MeasureManySessions(const ManySessionsOptions& options, Report* report) {
  report->Table("many sessions of C = " + std::to_string(kChannels) + ", sqlite power, " + std::to_string(kInFlight) +
                    " in flight; bytes for each session",
                {"", "creates/s", "file B", "resident B"});
  const Costs all = InChild([&] { return MeasureCosts(options, kLargeCache); });
  Show("all in memory", all, report);
  const Costs few = InChild([&] { return MeasureCosts(options, kSmallCache); });
  Show("64 MiB in memory", few, report);
  // A tenth for page trees that fill and hash tables that double.
  report->Add({"file linear", Linearity(all, &Stage::file_bytes), "first quarter / all", 0.9});
  report->Add({"memory linear", Linearity(all, &Stage::resident_bytes), "first quarter / all", 0.9});
}

}  // namespace normd::bench
