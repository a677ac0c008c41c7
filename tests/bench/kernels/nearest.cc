// exact-4 in the making: rows rounded to the nearest value, beside EXACT.
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/strings.h"
#include "tests/bench/kernels/kernel_comparison.h"

namespace normd::bench {

namespace {

// Rows of 1024 elements in L2 with ties, or with elements that are the mean.
std::vector<Workload> HardRows() {
  std::vector<Workload> rows;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Op op : {Op::kLayer, Op::kRms}) {
      for (const Fill fill : {Fill::kConstant, Fill::kZeros, Fill::kSteps, Fill::kSigns}) {
        Workload workload = {.op = op, .outer = 32, .row = 1024, .dtype = dtype, .regime = Regime::kL2, .fill = fill};
        if (fill == Fill::kSigns) workload.eps = 0;
        rows.push_back(workload);
      }
    }
  }
  return rows;
}

// The row of a workload, on one thread.
void AddRow(const Workload& workload, const Candidates& candidates, KernelComparison* comparison, Report* report) {
  std::vector<double> nanoseconds;  // an element
  for (const Timing& timing : comparison->Run(workload, 1, candidates)) {
    nanoseconds.push_back(timing->seconds * 1e9 / static_cast<double>(workload.Elements()));
  }
  std::string name = workload.FullName();
  if (workload.fill != Fill::kNormal) name = Concat(name, " ", FillName(workload.fill));
  report->Row(name, {Amount(nanoseconds[0]), Amount(nanoseconds[1]), Ratio(nanoseconds[0] / nanoseconds[1])});
}

}  // namespace

void MeasureNearest(const std::vector<Workload>& workloads, bool hardest, KernelComparison* comparison,
                    Report* report) {
  Candidates candidates;
  candidates.push_back(MakeNormd(Precision::kExact));
  candidates.push_back(MakeNearest());
  const std::vector<std::string> columns = {"EXACT", "NEAREST", "NEAREST's speed"};
  report->Table("ns an element, one thread: rows", columns);
  for (const Workload& workload : workloads) {
    if (workload.IsRows() && workload.regime != Regime::kBetween) AddRow(workload, candidates, comparison, report);
  }
  if (!hardest) return;
  report->Table("ns an element, one thread: the hardest rows", columns);
  for (const Workload& workload : HardRows()) AddRow(workload, candidates, comparison, report);
}

}  // namespace normd::bench
