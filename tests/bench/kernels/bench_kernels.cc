// The bench of the kernels; tests/bench/run.sh kernels starts it. Its command line is that of suite.h and
// --peers=PYTHON, a Python that has torch; --only takes shapes by "REGIME NAME" ("L3 LN f32", "^DRAM RMS") and the
// parts "threads", "operations", "roots", "hardest", "f64" and "exact sums".
// --quick leaves few shapes from DRAM (see workload.h).
#include <algorithm>
#include <cstdio>
#include <string>

#include "kernels/base/strings.h"
#include "kernels/cpu/targets.h"
#include "server/process_setup.h"
#include "tests/bench/kernels/kernel_comparison.h"

namespace normd::bench {

namespace {

absl::Status Measure(const Flags& flags, Report* report) {
  const std::vector<Workload> workloads = Workloads(flags);
  int64_t bytes = kOperationBytes;
  for (const Workload& workload : workloads) {
    if (workload.regime != Regime::kBetween) bytes = std::max(bytes, workload.Bytes());
  }
  KernelComparison comparison(flags, bytes);
  Candidates candidates;
  candidates.push_back(MakeNormd(Precision::kExact));
  candidates.push_back(MakeNormd(Precision::kFast));
  candidates.push_back(MakeCopy(false));
  candidates.push_back(MakeCopy(true));
  if (auto onednn = MakeOneDnn()) candidates.push_back(std::move(onednn));
  std::string torch = "no PyTorch (--peers)";
  if (!flags.peers.empty()) candidates.push_back(StartTorch(flags.peers, comparison.buffers(), &torch));
  report->Note("instruction set", std::string(ActiveCpuTargetName()));
  report->Note("peers", Concat(OneDnnText(), "; ", torch));
  report->Note("regimes, bytes of x + y",
               Concat("L2 to 512 KiB, L3 1 to 24 MiB (one thread); DRAM from ", DramBytes() >> 20, " MiB (all cores)"));
  report->Note("rounds", comparison.RoundsText());
  MeasureShapes(workloads, candidates, &comparison, report);
  if (flags.Chosen("threads")) MeasureThreads(&comparison, report);
  if (flags.Chosen("operations")) MeasureOperations(&comparison, report);
  if (flags.Chosen("roots")) MeasureRoots(&comparison, report);
  if (flags.Chosen("hardest")) MeasureHardElements(&comparison, report);
  if (flags.Chosen("f64")) MeasureWide(&comparison, report);
  if (flags.Chosen("exact sums")) MeasureExactSums(flags, report);
  return absl::OkStatus();
}

}  // namespace

}  // namespace normd::bench

int main(int argc, char** argv) {
  normd::TuneAllocator();  // as the server does
  const std::optional<normd::bench::Flags> flags = normd::bench::ParseFlags(argc, argv, {"--peers", "--max_isa"});
  if (!flags.has_value()) return 2;
  if (const absl::Status status = normd::LimitCpuTargets(flags->max_isa); !status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 2;
  }
  return normd::bench::RunSuite("kernels", *flags,
                                [&](normd::bench::Report* report) { return normd::bench::Measure(*flags, report); });
}
