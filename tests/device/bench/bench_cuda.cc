// The bench of the CUDA backend; tests/device/run.sh bench starts it, on a machine that has a GPU.
//   bench_cuda [--list | --probe] [--only=REGEX] [--rounds=N] [--peers=FILE] [--json=FILE] [--check=R] [--commit=TEXT]
// --list    prints the shapes as JSON and measures nothing.
// --probe   prints what the device is and measures nothing.
// --only    the shapes whose names match; whole requests are "requests".
// --rounds  at least 5; 7 by default.
// --peers   PyTorch's times on this machine, from tests/device/peers.py.
// --check   fails when a figure is below R times its floor.
// Without a device it says why and exits with status 3.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <string>

#include "nlohmann/json.hpp"
#include "tests/bench/machine.h"
#include "tests/bench/report.h"
#include "tests/bench/store/or_die.h"
#include "tests/device/bench/end_to_end.h"
#include "tests/device/bench/kernels.h"

namespace normd::bench {

namespace {

constexpr int kNoDevice = 3;  // exit status

struct Options {
  bool list = false, probe = false;
  std::string json, peers, commit = "unknown";
  double check = 0;
  KernelBench kernels;
};

// False: not understood.
bool Parse(int count, char** arguments, Options* options) {
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (name == "--list") {
      options->list = true;
    } else if (name == "--probe") {
      options->probe = true;
    } else if (equals == std::string::npos) {
      return false;
    } else if (name == "--only") {
      options->kernels.only = value;
    } else if (name == "--rounds") {
      options->kernels.rounds = std::max(5, std::atoi(value.c_str()));
    } else if (name == "--peers") {
      options->peers = value;
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
  return true;
}

// {"text": "PyTorch 2.4, ...", "seconds": {NAME: {"eager": S, "compile": S}}}
void ReadPeers(const std::string& path, PeerTimes* times, Report* report) {
  std::ifstream file(path);
  const nlohmann::json all = nlohmann::json::parse(file, nullptr, false);
  if (all.is_discarded() || !all.contains("text")) Die("no times of a peer in " + path);
  report->Note("peers", all["text"].get<std::string>());
  for (const auto& [name, forms] : all["seconds"].items()) {
    for (const auto& [form, seconds] : forms.items()) (*times)[name][form] = seconds.get<double>();
  }
}

void NoteRun(const GpuFacts& gpu, const Options& options, Report* report) {
  report->Note("machine", MachineText());
  report->Note("device", gpu.text);
  report->Note("date", DateText());
  report->Note("commit", options.commit);
  report->Note("kernels", "FAST, EXACT and two copies in turn, median of " + std::to_string(options.kernels.rounds) +
                              " rounds; a round is one CUDA graph of at least 20 launches between two events");
  report->Note("cache",
               "cold: launches take turns over tensors of together more than twice the L2 cache, or of more "
               "than 16 times it each");
  report->Note("copy", "the better of cudaMemcpyAsync and a kernel of 16-byte accesses, of the same bytes, as cold");
}

int Run(int count, char** arguments) {
  Options options;
  if (!Parse(count, arguments, &options)) {
    std::fprintf(
        stderr,
        "usage: bench_cuda [--list | --probe] [--only=REGEX] [--rounds=N] [--peers=FILE] [--json=FILE] [--check=R] "
        "[--commit=TEXT]\n");
    return 2;
  }
  if (options.list) {
    std::printf("%s\n", GpuShapesJson().c_str());
    return 0;
  }
  const absl::StatusOr<GpuFacts> gpu = FindGpu();
  if (!gpu.ok()) {
    std::printf("NOT RUN: %s\n", std::string(gpu.status().message()).c_str());
    return kNoDevice;
  }
  if (options.probe) {
    std::printf("%s\n", gpu->text.c_str());
    return 0;
  }
  Report report("cuda");
  NoteRun(*gpu, options, &report);
  if (!options.peers.empty()) ReadPeers(options.peers, &options.kernels.peers, &report);
  MeasureGpuKernels(*gpu, options.kernels, &report);
  if (std::regex_search("requests", std::regex(options.kernels.only))) {
    MeasureEndToEnd(*gpu, options.kernels.rounds, &report);
  }
  if (!options.json.empty() && !report.WriteJson(options.json)) Die("cannot write " + options.json);
  std::printf("%s\n", report.FloorsLine().c_str());
  return report.Below(options.check) > 0 ? 1 : 0;
}

}  // namespace

}  // namespace normd::bench

int main(int argc, char** argv) { return normd::bench::Run(argc, argv); }
