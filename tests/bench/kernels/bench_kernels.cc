// The bench of the kernels; tests/bench/run.sh kernels starts it.
//   bench_kernels [--quick | --smoke] [--only=REGEX] [--peers=PYTHON] [--rounds=N] [--json=FILE] [--check=R]
//                 [--commit=TEXT]
// --quick   5 shorter rounds, and few shapes from DRAM (see workload.h).
// --smoke   only whether everything works, in a moment: its figures say nothing, and no floor is checked.
// --only    the shapes whose "REGIME NAME" has the regular expression ("L3 LN f32", "^DRAM RMS"), or "linear",
// "claims".
// --peers   a Python that has torch: PyTorch is raced, too.
// --check   fails when a figure is below R times its floor.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <string>

#include "kernels/cpu/targets.h"
#include "server/process_setup.h"
#include "tests/bench/kernels/claims.h"
#include "tests/bench/kernels/contestant.h"
#include "tests/bench/kernels/shapes.h"
#include "tests/bench/kernels/torch_peer.h"
#include "tests/bench/machine.h"
#include "tests/bench/report.h"
#include "tests/bench/store/or_die.h"

namespace normd::bench {

namespace {

struct Options {
  bool smoke = false;
  std::string json, commit = "unknown", peers;
  double check = 0;
  int rounds = 0;  // 0: as many as is usual
  WorkloadOptions workloads;
  RaceOptions race;
  int64_t linear_bytes = int64_t{4} << 30;
};

// False: not understood.
bool Parse(int count, char** arguments, Options* options) {
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (name == "--quick") {
      options->workloads.quick = true;
    } else if (name == "--smoke") {
      options->smoke = true;
    } else if (equals == std::string::npos) {
      return false;
    } else if (name == "--only") {
      options->workloads.only = value;
    } else if (name == "--peers") {
      options->peers = value;
    } else if (name == "--rounds") {
      options->rounds = std::atoi(value.c_str());
    } else if (name == "--json") {
      options->json = value;
    } else if (name == "--commit") {
      options->commit = value;
    } else if (name == "--check") {
      options->check = std::atof(value.c_str());
    } else {
      return false;
    }
  }
  return options->rounds >= 0;
}

void Scale(Options* options) {
  if (options->workloads.quick) {
    options->race = {.rounds = 5, .batch = absl::Milliseconds(2), .patience = absl::Milliseconds(100)};
    options->linear_bytes = 64 << 20;
  }
  if (options->smoke) {
    options->linear_bytes = 64 << 10;
    options->race = {.rounds = 1, .batch = absl::Microseconds(1), .patience = absl::ZeroDuration()};
    options->workloads.only = "^L2|linear|threads|operations|roots";
  }
  if (options->rounds > 0) options->race.rounds = options->rounds;
}

void NoteRun(const Options& options, Report* report) {
  report->Note("machine", MachineText());
  report->Note("date", DateText());
  report->Note("commit", options.commit);
  report->Note("instruction set", ActiveCpuTargetName());
  report->Note("peers", OneDnnText());
  report->Note("regimes, bytes of x + y", "L2 to 512 KiB, L3 1 to 24 MiB (one thread); DRAM from " +
                                              std::to_string(DramBytes() >> 20) + " MiB (all cores)");
  report->Note("memory",
               "one shared file, pages of 4 KiB, y " + std::to_string(Buffers::kYPhase) + " past a page of x");
  report->Note("rounds", std::to_string(options.race.rounds) + " of " + absl::FormatDuration(options.race.batch) +
                             " or one call, interleaved; batches in which others had a core for over " +
                             Fixed(100 * kDisturbed, 0) + " % are repeated for up to " +
                             absl::FormatDuration(options.race.patience));
}

void MeasureClaims(const Options& options, Buffers* buffers, Report* report) {
  const std::regex only(options.workloads.only);
  const auto chosen = [&](const char* part) { return std::regex_search(part, only); };
  if (chosen("threads")) MeasureThreads(buffers, options.race, report);
  if (chosen("linear")) MeasureLinearity(options.linear_bytes, buffers, options.race, report);
  if (chosen("operations")) MeasureOperations(buffers, options.race, report);
  if (chosen("roots")) MeasureRoots(buffers, options.race, report);
}

int64_t MostBytes(const std::vector<Workload>& workloads) {
  int64_t most = 0;
  for (const Workload& workload : workloads) {
    if (workload.regime != Regime::kBetween) most = std::max(most, workload.Bytes());
  }
  return most;
}

int Run(int count, char** arguments) {
  TuneAllocator();  // as the server does
  Options options;
  if (!Parse(count, arguments, &options)) {
    std::fprintf(stderr,
                 "usage: bench_kernels [--quick | --smoke] [--only=REGEX] [--peers=PYTHON] [--rounds=N] [--json=FILE] "
                 "[--check=R] [--commit=TEXT]\n");
    return 2;
  }
  Scale(&options);
  Report report("kernels");
  NoteRun(options, &report);
  const std::vector<Workload> workloads = Workloads(options.workloads);
  const bool linear = std::regex_search("linear", std::regex(options.workloads.only));
  Buffers buffers(std::max(MostBytes(workloads), ClaimBytes(linear ? options.linear_bytes : 0)));
  std::vector<std::unique_ptr<Contestant>> contestants;
  contestants.push_back(MakeNormd(Precision::kExact));
  contestants.push_back(MakeNormd(Precision::kFast));
  contestants.push_back(MakeCopy(false));
  contestants.push_back(MakeCopy(true));
  if (auto onednn = MakeOneDnn()) contestants.push_back(std::move(onednn));
  if (!options.peers.empty()) {
    std::string text;
    contestants.push_back(StartTorch(options.peers, buffers, &text));
    report.Note("peers", text);
  }
  const absl::Duration watch = options.smoke ? absl::Milliseconds(20) : absl::Seconds(1);
  NoteForeignCpu("before", watch, &report);
  MeasureShapes(workloads, &buffers, options.race, contestants, &report);
  MeasureClaims(options, &buffers, &report);
  NoteForeignCpu("after", watch, &report);
  if (!options.json.empty() && !report.WriteJson(options.json)) Die("cannot write " + options.json);
  if (options.smoke) return 0;
  std::printf("%s\n", report.FloorsLine().c_str());
  return report.Below(options.check) > 0 ? 1 : 0;
}

}  // namespace

}  // namespace normd::bench

int main(int argc, char** argv) { return normd::bench::Run(argc, argv); }
