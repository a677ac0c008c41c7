// What EXACT takes for elements that are hard to round to the nearest value, and for those of f64.
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

double Nanoseconds(const Workload& workload, const Timing& timing) {  // an element
  return timing->seconds * 1e9 / static_cast<double>(workload.Elements());
}

}  // namespace

void MeasureHardElements(KernelComparison* comparison, Report* report) {
  Candidates candidates;
  candidates.push_back(MakeNormd(Precision::kExact));
  report->Table("ns an element that is hard to round, EXACT, one thread", {"hard", "usual", "usual/hard"});
  for (const Workload& hard : HardOnes()) {
    Workload usual = hard;
    usual.fill = Fill::kNormal;
    const double seconds = Nanoseconds(hard, comparison->Run(hard, 1, candidates)[0]);
    const double of_usual = Nanoseconds(usual, comparison->Run(usual, 1, candidates)[0]);
    report->Row(Concat(hard.FullName(), " ", FillName(hard.fill)),
                {Amount(seconds), Amount(of_usual), Ratio(of_usual / seconds)});
  }
}

void MeasureWide(KernelComparison* comparison, Report* report) {
  Candidates candidates;
  candidates.push_back(MakeNormd(Precision::kExact));
  candidates.push_back(MakeCopy(false));
  report->Table("ns an element of f64, EXACT, one thread", {"EXACT", "copy", "copy/EXACT"});
  for (const Workload& workload : WideElements()) {
    const std::vector<Timing> timings = comparison->Run(workload, 1, candidates);
    const double exact = Nanoseconds(workload, timings[0]);
    const double copy = Nanoseconds(workload, timings[1]);
    report->Row(workload.FullName(), {Amount(exact), Amount(copy), Ratio(copy / exact)});
  }
}

}  // namespace normd::bench
