// The bench of the data path; tests/bench/run.sh datapath starts it.
//   bench_datapath [--quick | --smoke] [--only=SECTION,...] [cells] [--json=FILE] [--check=R] [--commit=TEXT]
// Sections: inline, calls, idle, memory, overload, shared.
// --before=PROGRAM: calls is measured against this bench of an earlier build, too.
// Cells of inline: --payloads=4KiB,1MiB --in_flight=1,16 --transports=tcp,unix --modes=unary,stream
//   --opponents=echo,normd,bytes,bytes_stock,bytes_sync,floats --rounds=N --round=1s
// --quick  3 short rounds of echo, normd and bytes; shorter sections.
// --smoke  only whether everything works, in a moment: its figures say nothing, and no floor is checked.
// --check  fails when a figure is below R times its floor, or above its ceiling divided by R.
// NORMD_QUEUES in the environment: completion queues of echo and normd, instead of normd's default.
// With --serve=KIND --listen=ADDRESS it is one of the servers that it measures.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/base/status_macros.h"
#include "server/process_setup.h"
#include "tests/bench/datapath/calls.h"
#include "tests/bench/datapath/idle.h"
#include "tests/bench/datapath/inline.h"
#include "tests/bench/datapath/memory.h"
#include "tests/bench/datapath/overload.h"
#include "tests/bench/datapath/serve.h"
#include "tests/bench/datapath/shared.h"
#include "tests/bench/machine.h"
#include "tests/bench/report.h"

namespace normd::bench {

namespace {

struct Options {
  bool smoke = false;
  std::vector<std::string> only = {"inline", "calls", "idle", "memory", "overload", "shared"};
  std::string json, commit = "unknown";
  double check = 0;
  InlineOptions cells;
  CallsOptions calls;
  IdleOptions idle;
  MemoryOptions memory;
  OverloadOptions overload;
  SharedOptions shared;
};

void MakeQuick(Options* options) {
  options->cells.rounds = 5;
  options->cells.round = absl::Milliseconds(80);
  options->cells.warm_up = absl::Milliseconds(20);
  options->cells.kinds = {"echo", "normd", "bytes"};
  options->calls.rounds = 5;
  options->calls.round = absl::Milliseconds(80);
  options->calls.in_flight = {4, 16};
  options->idle.silences = 3;  // one that the machine sleeps through is no median
  options->idle.transports = {"tcp"};
  options->overload.closed = options->overload.open = absl::Seconds(1);
  options->shared.rounds = 3;
  options->shared.round = absl::Milliseconds(60);
}

void MakeSmoke(Options* options) {
  options->smoke = true;
  options->cells.rounds = 1;
  options->cells.round = options->cells.warm_up = absl::Milliseconds(2);
  options->cells.payloads = {4 << 10, 1 << 20};
  options->cells.in_flight = {1, 4};
  options->calls.rounds = 1;
  options->calls.round = absl::Milliseconds(2);
  options->calls.in_flight = {4};
  options->idle.silences = 1;
  options->idle.silence = options->idle.pause = absl::Milliseconds(5);
  options->memory.requests = 8;
  options->memory.payload = 1 << 20;
  options->overload.closed = options->overload.open = absl::Milliseconds(20);
  options->shared.rounds = 1;
  options->shared.round = absl::Milliseconds(5);
}

// "4KiB" and "16MiB"; 0: not understood.
int64_t ParseBytes(const std::string& text) {
  int64_t number = 0;
  const bool mib = absl::EndsWith(text, "MiB");
  if (!mib && !absl::EndsWith(text, "KiB")) return 0;
  if (!absl::SimpleAtoi(text.substr(0, text.size() - 3), &number)) return 0;
  return number * (mib ? 1 << 20 : 1 << 10);
}

// False: not understood.
bool ParsePayloads(const std::string& value, std::vector<int64_t>* payloads) {
  payloads->clear();
  for (const std::string& text : std::vector<std::string>(absl::StrSplit(value, ','))) {
    payloads->push_back(ParseBytes(text));
    if (payloads->back() <= 0 || payloads->back() > int64_t{32} << 20) return false;
  }
  return true;
}

bool ParseNumbers(const std::string& value, int max, std::vector<int>* numbers) {
  numbers->clear();
  for (const std::string& text : std::vector<std::string>(absl::StrSplit(value, ','))) {
    numbers->push_back(0);
    if (!absl::SimpleAtoi(text, &numbers->back()) || numbers->back() < 1 || numbers->back() > max) return false;
  }
  return true;
}

// A list of words that are all among those that `words` had.
bool ParseWords(const std::string& value, std::vector<std::string>* words) {
  const std::vector<std::string> known = std::exchange(*words, absl::StrSplit(value, ','));
  for (const std::string& word : *words) {
    if (std::find(known.begin(), known.end(), word) == known.end()) return false;
  }
  return true;
}

bool ParseOption(const std::string& name, const std::string& value, Options* options) {
  if (name == "--only") return ParseWords(value, &options->only);
  if (name == "--payloads") return ParsePayloads(value, &options->cells.payloads);
  if (name == "--in_flight") {
    return ParseNumbers(value, 64, &options->cells.in_flight) && ParseNumbers(value, 64, &options->calls.in_flight);
  }
  if (name == "--transports") {
    options->idle.transports = {"tcp", "unix"};
    return ParseWords(value, &options->cells.transports) && ParseWords(value, &options->idle.transports);
  }
  if (name == "--modes") return ParseWords(value, &options->cells.modes);
  if (name == "--opponents") {
    options->cells.kinds = InlineOptions().kinds;
    return ParseWords(value, &options->cells.kinds);
  }
  if (name == "--rounds") {
    options->calls.rounds = 0;
    return absl::SimpleAtoi(value, &options->cells.rounds) && (options->calls.rounds = options->cells.rounds) > 0;
  }
  if (name == "--round") {
    return absl::ParseDuration(value, &options->cells.round) && absl::ParseDuration(value, &options->calls.round);
  }
  if (name == "--before") options->calls.before = value;
  if (name == "--check") return absl::SimpleAtod(value, &options->check);
  if (name == "--json") options->json = value;
  if (name == "--commit") options->commit = value;
  return name == "--json" || name == "--commit" || name == "--before";
}

// --quick and --smoke first, wherever they are: what else is said goes before them.
bool Parse(const std::vector<std::string>& arguments, Options* options) {
  for (const std::string& argument : arguments) {
    if (argument == "--quick") MakeQuick(options);
    if (argument == "--smoke") MakeSmoke(options);
  }
  for (const std::string& argument : arguments) {
    const std::pair<std::string, std::string> option = absl::StrSplit(argument, absl::MaxSplits('=', 1));
    if (argument == "--quick" || argument == "--smoke") continue;
    if (!absl::StrContains(argument, '=') || !ParseOption(option.first, option.second, options)) return false;
  }
  return true;
}

bool Has(const Options& options, const std::string& section) {
  return std::find(options.only.begin(), options.only.end(), section) != options.only.end();
}

void NoteRun(const Options& options, Report* report) {
  const InlineOptions& cells = options.cells;
  report->Note("machine", MachineText());
  report->Note("date", DateText());
  report->Note("commit", options.commit);
  report->Note("grpc", absl::StrCat(grpc::Version(), ", ", QueueCount(), " queues and threads in echo and normd"));
  report->Note("opponents", absl::StrJoin(cells.kinds, ", ") +
                                "; each a process, same channel arguments, malloc tuned but for bytes_stock");
  report->Note("client", "one thread, one connection; streams: one for each in flight, a message at a time");
  report->Note("rounds", absl::StrCat(cells.rounds, " of ", absl::FormatDuration(cells.round),
                                      " (bytes half, other peers a quarter), interleaved, medians"));
  absl::Duration estimate = absl::Seconds(2);
  if (Has(options, "inline")) estimate += EstimateInline(cells) * 1.2;  // what is in flight is waited for
  if (Has(options, "calls")) estimate += EstimateCalls(options.calls);
  if (Has(options, "idle")) estimate += EstimateIdle(options.idle);
  if (Has(options, "memory")) estimate += absl::Seconds(options.smoke ? 1 : 10);
  if (Has(options, "overload")) estimate += options.overload.closed * 3.3 + options.overload.open;
  if (Has(options, "shared")) estimate += EstimateShared(options.shared);
  report->Note("estimate", absl::FormatDuration(absl::Trunc(estimate, absl::Seconds(1))));
}

absl::Status MeasureSections(const Options& options, Report* report) {
  if (Has(options, "inline")) NORMD_RETURN_IF_ERROR(MeasureInline(options.cells, report));
  if (Has(options, "calls")) NORMD_RETURN_IF_ERROR(MeasureCalls(options.calls, report));
  if (Has(options, "idle")) NORMD_RETURN_IF_ERROR(MeasureIdle(options.idle, report));
  if (Has(options, "memory")) NORMD_RETURN_IF_ERROR(MeasureMemory(options.memory, report));
  if (Has(options, "overload")) NORMD_RETURN_IF_ERROR(MeasureOverload(options.overload, report));
  if (Has(options, "shared")) NORMD_RETURN_IF_ERROR(MeasureShared(options.shared, report));
  return absl::OkStatus();
}

int Measure(const Options& options) {
  TuneAllocator();  // the client pays no page faults either
  TuneTransport();
  Report report("datapath");
  const absl::Duration watch = options.smoke ? absl::Milliseconds(20) : absl::Seconds(1);
  NoteRun(options, &report);
  NoteForeignCpu("before", watch, &report);
  if (const absl::Status status = MeasureSections(options, &report); !status.ok()) {
    std::fprintf(stderr, "bench_datapath: %s\n", status.ToString().c_str());
    return 1;
  }
  NoteForeignCpu("after", watch, &report);
  if (!options.json.empty() && !report.WriteJson(options.json)) {
    std::fprintf(stderr, "bench_datapath: cannot write %s\n", options.json.c_str());
    return 1;
  }
  if (options.smoke) return 0;
  std::printf("%s\n", report.FloorsLine().c_str());
  return report.Below(options.check) > 0 ? 1 : 0;
}

int Run(const std::vector<std::string>& arguments) {
  constexpr std::string_view kServe = "--serve=", kListen = "--listen=";
  if (arguments.size() == 2 && arguments[0].starts_with(kServe) && arguments[1].starts_with(kListen)) {
    return Serve(arguments[0].substr(kServe.size()), arguments[1].substr(kListen.size()));
  }
  Options options;
  if (Parse(arguments, &options)) return Measure(options);
  std::fprintf(stderr,
               "usage: bench_datapath [--quick | --smoke] [--only=inline,calls,idle,memory,overload,shared]\n"
               "  [--payloads=4KiB,64KiB,1MiB,16MiB] [--in_flight=1,4,16] [--transports=tcp,unix]\n"
               "  [--modes=unary,stream] [--opponents=echo,normd,bytes,bytes_stock,bytes_sync,floats]\n"
               "  [--rounds=N] [--round=1s] [--before=PROGRAM] [--json=FILE] [--check=R] [--commit=TEXT]\n");
  return 2;
}

}  // namespace

}  // namespace normd::bench

int main(int argc, char** argv) { return normd::bench::Run({argv + 1, argv + argc}); }
