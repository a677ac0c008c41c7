#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <type_traits>

#include "kernels/base/strings.h"
#include "tests/bench/machine.h"
#include "tests/bench/or_die.h"
#include "tests/bench/store/database.h"
#include "tests/bench/store/sections.h"
#include "tests/bench/store/trainer.h"

namespace normd::bench {

namespace {

constexpr int64_t kChannels = 64;
// A tenth for page trees that fill and hash tables that double.
constexpr double kLinearFloor = 0.9;

// After a quarter, a half and all of the sessions.
struct Stage {
  int64_t sessions = 0;
  double creates_per_s = 0, file_bytes = 0, resident_bytes = 0;  // the last two for each session
};

struct Costs {
  std::array<Stage, 3> stages;
  double open_seconds = 0;
};
static_assert(std::is_trivially_copyable_v<Costs>);

double SecondsSince(absl::Time start) { return absl::ToDoubleSeconds(SteadyNow() - start); }

double ResidentBytes() { return static_cast<double>(MemoryOf(getpid(), "VmRSS")); }

void CreateAll(const Database& database, const DurableStoreOptions& options, Clock* clock, Costs* costs) {
  const std::unique_ptr<DurableStore> store = database.OpenStore(options, clock);
  const double empty = ResidentBytes();
  int64_t made = 0;
  for (size_t i = 0; i < costs->stages.size(); ++i) {
    const int64_t until = options.limits.max_sessions >> (costs->stages.size() - 1 - i);
    const absl::Time start = SteadyNow();
    CreateSessions(store.get(), made, until, kChannels);
    const double seconds = SecondsSince(start);
    const auto count = static_cast<double>(until);
    costs->stages[i] = {.sessions = until,
                        .creates_per_s = static_cast<double>(until - made) / seconds,
                        .file_bytes = static_cast<double>(database.FileBytes()) / count,
                        .resident_bytes = (ResidentBytes() - empty) / count};
    made = until;
  }
}

void MeasureCosts(int64_t sessions, int64_t max_resident_bytes, Costs* costs) {
  SystemClock clock;
  const std::unique_ptr<Database> database = MakeSqlite(Durability::kPower);
  DurableStoreOptions options;
  options.limits.max_sessions = sessions;
  options.residency.max_bytes = max_resident_bytes;
  CreateAll(*database, options, &clock, costs);
  const absl::Time start = SteadyNow();
  const std::unique_ptr<DurableStore> store = database->OpenStore(options, &clock);
  costs->open_seconds = SecondsSince(start);
}

// In a process of its own, so that it finds no memory that another measurement has left.
Costs MeasureCostsInChild(int64_t sessions, int64_t max_resident_bytes) {
  void* const shared = mmap(nullptr, sizeof(Costs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) Die("no shared memory");
  auto* const costs = new (shared) Costs();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) Die("fork");
  if (child == 0) {
    MeasureCosts(sessions, max_resident_bytes, costs);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) Die("the child that makes sessions failed");
  const Costs result = *costs;
  munmap(shared, sizeof(Costs));
  return result;
}

}  // namespace

void MeasureManySessions(const Flags& flags, Report* report) {
  const int64_t sessions = flags.Pick(1'000'000, 20'000, 400);
  const Costs all = MeasureCostsInChild(sessions, int64_t{64} << 30);
  const Costs few = MeasureCostsInChild(sessions, int64_t{64} << 20);
  const std::vector<std::pair<std::string, const Costs*>> both = {{"all in memory", &all}, {"64 MiB in memory", &few}};
  report->Table("many sessions of C = 64, sqlite power; bytes for each session", {"creates/s", "file B", "resident B"});
  for (const auto& [name, costs] : both) {
    for (const Stage& stage : costs->stages) {
      report->Row(Concat(name, " N=", stage.sessions),
                  {Amount(stage.creates_per_s), Amount(stage.file_bytes), Amount(stage.resident_bytes)});
    }
  }
  // How much of a straight line through the origin the growth is.
  const Stage& first = all.stages.front();
  const Stage& last = all.stages.back();
  report->Row("first quarter / all", {Cell(), Ratio(first.file_bytes / last.file_bytes, kLinearFloor),
                                      Ratio(first.resident_bytes / last.resident_bytes, kLinearFloor)});
  report->Table("the store opened again", {"ms"});
  for (const auto& [name, costs] : both) report->Row(name, {Amount(costs->open_seconds * 1e3)});
}

}  // namespace normd::bench
