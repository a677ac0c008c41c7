// crash_parent: kills stores and servers again and again, and proves after each kill that nothing acknowledged is lost,
// nothing is applied twice, and every bit of every session is what its steps make it. run.sh calls it.
//   crash_parent --mode=kills --level=memory|process|power --child=PROGRAM --normd=PROGRAM --folder=DIR --kills=N
//                --server_kills=N [--seed=N]
//   crash_parent --mode=canary --level=process|power ...    the child has a planted error, which must be caught
//   crash_parent --mode=postgres --url=URL --postgres_script=FILE --postgres_folder=DIR --postmaster_kills=N ...
//   crash_parent --mode=replicas --url=URL --pauses=N ...
// Prints one line "row|LEVEL|KILLS|OF_NORMD|ACKNOWLEDGED|REPLAYS|LOST|DOUBLED|MISMATCHES|SECONDS" (canary:
// "canary|LEVEL|text"), and what it did to standard error. Exit code: 0, or 1 after a violation (canary: without one).
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/crash/child_rounds.h"
#include "tests/crash/flags.h"
#include "tests/crash/ledger.h"
#include "tests/crash/replica_rounds.h"
#include "tests/crash/server_rounds.h"

namespace normd::crash {

namespace {

struct Result {
  int64_t kills = 0;
  int64_t server_kills = 0;
  Tally tally;
  std::vector<std::string> evidence;

  void Add(const Ledger& ledger) {
    tally += ledger.tally();
    const std::vector<std::string> more = ledger.evidence();
    evidence.insert(evidence.end(), more.begin(), more.end());
  }
};

std::string NewFolder(const Flags& flags, const std::string& name) {
  std::string folder = flags.Get("folder") + "/" + name;
  std::filesystem::create_directories(folder);
  return folder;
}

PostgresControl PostgresOf(const Flags& flags) { return {flags.Get("postgres_script"), flags.Get("postgres_folder")}; }

ChildOptions ChildOptionsOf(const Flags& flags) {
  ChildOptions options;
  options.program = flags.Get("child");
  options.level = flags.Get("level", "power");
  options.store = options.level == "memory" ? "memory" : "sqlite";
  options.kills = flags.Number("kills");
  return options;
}

Result RunKills(const Flags& flags, std::mt19937_64* random) {
  Result result;
  const std::string level = flags.Get("level");
  {
    ChildOptions options = ChildOptionsOf(flags);
    options.at = NewFolder(flags, "child-" + level);
    Ledger ledger;
    result.kills = ChildRounds(options, random, &ledger).Run();
    result.Add(ledger);
  }
  if (!result.evidence.empty()) return result;
  ServerOptions options;
  options.program = flags.Get("normd");
  options.folder = NewFolder(flags, "normd-" + level);
  options.level = level;
  options.kills = flags.Number("server_kills");
  Ledger ledger;
  result.server_kills = ServerRounds(options, random, &ledger).Run();
  result.kills += result.server_kills;
  result.Add(ledger);
  return result;
}

Result RunCanary(const Flags& flags, std::mt19937_64* random) {
  ChildOptions options = ChildOptionsOf(flags);
  options.at = NewFolder(flags, "canary-" + options.level);
  options.acknowledge_early = true;
  Ledger ledger;
  Result result;
  result.kills = ChildRounds(options, random, &ledger).Run();
  result.Add(ledger);
  return result;
}

Result RunPostgres(const Flags& flags, std::mt19937_64* random) {
  ChildOptions options = ChildOptionsOf(flags);
  options.store = "postgres";
  options.at = flags.Get("url");
  options.postgres = PostgresOf(flags);
  options.postmaster_kills = flags.Number("postmaster_kills");
  Ledger ledger;
  Result result;
  ChildRounds rounds(options, random, &ledger);
  result.kills = rounds.Run();
  std::cerr << "  PostgreSQL was killed " << rounds.postmaster_kills() << " times\n";
  result.Add(ledger);
  if (rounds.postmaster_kills() < options.postmaster_kills && ledger.ok()) {
    result.evidence.emplace_back("PostgreSQL was not killed as often as asked for");
  }
  return result;
}

Result RunReplicas(const Flags& flags, std::mt19937_64* random) {
  ReplicaOptions options;
  options.program = flags.Get("normd");
  options.url = flags.Get("url");
  options.folder = NewFolder(flags, "replicas");
  options.postgres = PostgresOf(flags);
  options.pauses = flags.Number("pauses");
  Ledger ledger;
  Result result;
  result.server_kills = result.kills = ReplicaRounds(options, random, &ledger).Run();
  result.Add(ledger);
  return result;
}

void PrintRow(const std::string& name, const Result& result, absl::Duration elapsed) {
  const Tally& t = result.tally;
  std::printf("row|%s|%lld|%lld|%lld|%lld|%lld|%lld|%lld|%.1f\n", name.c_str(), static_cast<long long>(result.kills),
              static_cast<long long>(result.server_kills), static_cast<long long>(t.acknowledged),
              static_cast<long long>(t.replays), static_cast<long long>(t.lost), static_cast<long long>(t.doubled),
              static_cast<long long>(t.mismatches), absl::ToDoubleSeconds(elapsed));
}

int PrintResult(const std::string& mode, const Flags& flags, const Result& result, absl::Duration elapsed) {
  const std::string level = flags.Get("level", "power");
  if (mode == "canary") {
    const bool caught = result.tally.lost > 0;
    const std::string after = std::to_string(result.kills) + " kills";
    std::cout << "canary|" << level << "|"
              << (caught ? "caught after " + after + ": " + result.evidence.front() : "NOT CAUGHT in " + after) << "\n";
    return caught ? 0 : 1;
  }
  const Tally& tally = result.tally;
  std::cerr << "  " << tally.created << " sessions created, " << tally.checks << " times compared, " << tally.reads
            << " reads, " << tally.states << " states in replies; " << tally.sent_again
            << " acknowledged steps sent again and known\n";
  PrintRow(mode == "kills" ? level : mode, result, elapsed);
  for (const std::string& text : result.evidence) std::cerr << "VIOLATION: " << text << "\n";
  return result.evidence.empty() ? 0 : 1;
}

int Main(int argc, char** argv) {
  // gRPC looks after a channel in which no call waits every 5 s. These clients live faster: one whose server was killed
  // would be that late to connect again, and a server that drains waits until an idle client has said goodbye.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is no other thread yet.
  setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "20", 1);
  const Flags flags(argc, argv);
  const std::string mode = flags.Get("mode");
  const uint64_t seed = flags.Has("seed") ? static_cast<uint64_t>(flags.Number("seed")) : std::random_device()();
  std::cerr << "crash_parent --mode=" << mode << " --level=" << flags.Get("level", "power") << " --seed=" << seed
            << "\n";
  std::mt19937_64 random(seed);
  const absl::Time start = absl::Now();
  Result (*run)(const Flags&, std::mt19937_64*) = nullptr;
  if (mode == "kills") run = RunKills;
  if (mode == "canary") run = RunCanary;
  if (mode == "postgres") run = RunPostgres;
  if (mode == "replicas") run = RunReplicas;
  if (run == nullptr) {
    std::cerr << "crash_parent: --mode must be kills, canary, postgres or replicas\n";
    return 2;
  }
  const Result result = run(flags, &random);
  const int status = PrintResult(mode, flags, result, absl::Now() - start);
  if (status != 0) std::cerr << "crash_parent: seed " << seed << "\n";
  return status;
}

}  // namespace

}  // namespace normd::crash

int main(int argc, char** argv) { return normd::crash::Main(argc, argv); }
