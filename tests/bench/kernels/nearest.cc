// exact-4 in the making: elements rounded to the nearest value, beside EXACT.
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/strings.h"
#include "tests/bench/kernels/kernel_comparison.h"

namespace normd::bench {

namespace {

// Rows of 1024 elements, and columns and channels of 256, in L2 with ties, or with elements that are the mean.
std::vector<Workload> HardOnes() {
  std::vector<Workload> list;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Op op : {Op::kLayer, Op::kRms}) {
      for (const Fill fill : {Fill::kConstant, Fill::kZeros, Fill::kSteps, Fill::kSigns}) {
        Workload workload = {.op = op, .outer = 32, .row = 1024, .dtype = dtype, .regime = Regime::kL2, .fill = fill};
        if (fill == Fill::kSigns) workload.eps = 0;
        list.push_back(workload);
      }
    }
    for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
      for (const Fill fill : {Fill::kConstant, Fill::kZeros, Fill::kSteps, Fill::kSigns}) {
        Workload workload = {.op = Op::kBatchTraining, .layout = layout, .outer = 4, .channels = 127, .side = 8};
        workload.dtype = dtype;
        workload.regime = Regime::kL2;
        workload.fill = fill;
        workload.keeps_moments = false;
        if (fill == Fill::kSigns) workload.eps = 0;
        list.push_back(workload);
      }
    }
  }
  return list;
}

// f64 elements, which are calculated in pairs: rows, columns and channels in L2.
std::vector<Workload> WideElements() {
  std::vector<Workload> list = {{.op = Op::kLayer, .outer = 32, .row = 1024},
                                {.op = Op::kRms, .outer = 32, .row = 1024}};
  for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
    for (const Op op : {Op::kBatchTraining, Op::kBatchInference, Op::kGroup}) {
      list.push_back({.op = op, .layout = layout, .outer = 2, .channels = 256, .side = 8});
    }
  }
  for (Workload& workload : list) {
    workload.dtype = DType::kF64;
    workload.regime = Regime::kL2;
    workload.keeps_moments = false;
  }
  return list;
}

// The row of a workload, on one thread.
void AddRow(const Workload& workload, const Candidates& candidates, KernelComparison* comparison, Report* report) {
  std::vector<double> nanoseconds;  // an element
  for (const Timing& timing : comparison->Run(workload, 1, candidates)) {
    nanoseconds.push_back(timing->seconds * 1e9 / static_cast<double>(workload.Elements()));
  }
  std::string name = workload.FullName();
  if (workload.fill != Fill::kNormal) name = Concat(name, " ", FillName(workload.fill));
  if (workload.op == Op::kBatchTraining && workload.keeps_moments) name += " with moments";
  report->Row(name, {Amount(nanoseconds[0]), Amount(nanoseconds[1]), Ratio(nanoseconds[0] / nanoseconds[1])});
}

}  // namespace

void MeasureNearest(const std::vector<Workload>& workloads, const NearestParts& parts, KernelComparison* comparison,
                    Report* report) {
  Candidates candidates;
  candidates.push_back(MakeNormd(Precision::kExact));
  candidates.push_back(MakeNearest());
  const auto table = [&](const char* what, const std::vector<Workload>& list) {
    report->Table(Concat("ns an element, one thread: ", what), {"EXACT", "NEAREST", "NEAREST's speed"});
    for (const Workload& workload : list) AddRow(workload, candidates, comparison, report);
  };
  std::vector<Workload> rows, images, moments;
  for (Workload workload : workloads) {
    if (workload.regime == Regime::kBetween) continue;
    if (workload.op == Op::kBatchTraining && workload.regime == Regime::kL2) moments.push_back(workload);
    workload.keeps_moments = false;
    (workload.IsRows() ? rows : images).push_back(workload);
  }
  table("rows", rows);
  table("columns (nhwc) and channels (nchw), without moments", images);
  table("with moments", moments);
  if (parts.wide) table("f64", WideElements());
  if (parts.hardest) table("the hardest", HardOnes());
}

}  // namespace normd::bench
