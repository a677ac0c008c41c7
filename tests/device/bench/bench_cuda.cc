// The bench of the CUDA backend; tests/device/run.sh bench starts it, on a machine that has a GPU. Its command line is
// that of suite.h and
// --list    prints the shapes as JSON and measures nothing.
// --probe   prints what the device is and measures nothing.
// --more    adds shapes that the standard table has not, here and to --list.
// --nearest measures whole requests, EXACT beside FAST, instead.
// --turns   times what standard input asks for, see sections.h.
// --peers   PyTorch's times on this machine, a file that tests/device/peers.py has written.
// --only takes shapes by name, and "requests" for whole requests. Without a device the program says why and exits with
// status 3.
#include <cstdio>
#include <string>

#include "tests/device/bench/sections.h"
#include "tests/device/bench/shapes.h"

namespace normd::bench {

namespace {

constexpr int kNoDevice = 3;  // exit status

absl::Status Measure(const GpuFacts& gpu, const Flags& flags, Report* report) {
  report->Note("device", gpu.text);
  if (flags.nearest) {
    MeasureNearest(report);
    return absl::OkStatus();
  }
  report->Note("kernels",
               "FAST, EXACT and two copies in turn, median of 7 rounds; a round is one CUDA graph of at least 20 "
               "launches between two events");
  report->Note("cache",
               "cold: launches take turns over tensors of together more than twice the L2 cache, or of more than 16 "
               "times it each");
  report->Note("copy", "the better of cudaMemcpyAsync and a kernel of 16-byte accesses, of the same bytes, as cold");
  MeasureGpuKernels(gpu, flags, report);
  if (flags.Chosen("requests")) MeasureRequests(gpu, report);
  return absl::OkStatus();
}

int Run(const Flags& flags) {
  if (flags.list) {
    std::printf("%s\n", GpuShapesJson(flags.more_shapes).c_str());
    return 0;
  }
  const absl::StatusOr<GpuFacts> gpu = FindGpu();
  if (!gpu.ok()) {
    std::printf("NOT RUN: %s\n", std::string(gpu.status().message()).c_str());
    return kNoDevice;
  }
  if (flags.probe) {
    std::printf("%s\n", gpu->text.c_str());
    return 0;
  }
  if (flags.turns) {
    ServeTurns(*gpu);
    return 0;
  }
  return RunSuite("cuda", flags, [&](Report* report) { return Measure(*gpu, flags, report); });
}

}  // namespace

}  // namespace normd::bench

int main(int argc, char** argv) {
  const std::optional<normd::bench::Flags> flags =
      normd::bench::ParseFlags(argc, argv, {"--list", "--probe", "--peers", "--more", "--turns", "--nearest"});
  return flags.has_value() ? normd::bench::Run(*flags) : 2;
}
