#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_join.h"
#include "kernels/base/strings.h"
#include "tests/bench/kernels/kernel_comparison.h"

namespace normd::bench {

namespace {

struct Outcome {
  Workload workload;
  std::vector<Timing> timings;  // by candidate

  double Seconds(size_t candidate) const { return timings[candidate]->seconds; }
};

// Whom normd is compared with.
enum class Opponent { kCopy, kPeer, kTorch };

// By how much `candidate` beats the faster copy, the fastest peer that has the operation, or PyTorch.
std::optional<double> SpeedUp(const Outcome& outcome, size_t candidate, Opponent opponent,
                              const Candidates& candidates) {
  std::optional<double> best;
  for (size_t i = kCopy; i < candidates.size(); ++i) {
    const bool wanted = opponent == Opponent::kCopy   ? i < kFirstPeer
                        : opponent == Opponent::kPeer ? i >= kFirstPeer
                                                      : candidates[i]->name() == "PyTorch";
    if (!wanted || !outcome.timings[i].has_value()) continue;
    best = std::min(best.value_or(outcome.Seconds(i)), outcome.Seconds(i));
  }
  return best.has_value() ? std::optional(*best / outcome.Seconds(candidate)) : std::nullopt;
}

// What the worst of some shapes must reach.
struct Floor {
  const char* name;
  size_t candidate;
  Opponent opponent;
  double least;
  bool (*covers)(const Workload&);
};
template <Regime regime>
bool LiesIn(const Workload& workload) {
  return workload.regime == regime;
}
// EXACT converts f32 to f64 and back, which costs LayerNorm in L2 what it costs no other shape.
bool IsF32(const Workload& workload) { return workload.dtype == DType::kF32; }
template <Regime regime>
bool IsF32In(const Workload& workload) {
  return IsF32(workload) && workload.regime == regime;
}
constexpr Floor kFloors[] = {
    {"L2 EXACT f32 LayerNorm/peer", kExact, Opponent::kPeer, 0.65,
     [](const Workload& w) { return IsF32In<Regime::kL2>(w) && w.op == Op::kLayer; }},
    {"L2 EXACT f32 others/peer", kExact, Opponent::kPeer, 1.0,
     [](const Workload& w) { return IsF32In<Regime::kL2>(w) && w.op != Op::kLayer; }},
    {"L3 EXACT f32/peer", kExact, Opponent::kPeer, 0.95, IsF32In<Regime::kL3>},
    {"DRAM EXACT f32/peer", kExact, Opponent::kPeer, 1.0, IsF32In<Regime::kDram>},
    {"EXACT 16-bit/peer", kExact, Opponent::kPeer, 1.0, [](const Workload& w) { return !IsF32(w); }},
    {"L2 FAST/peer", kFast, Opponent::kPeer, 1.0, LiesIn<Regime::kL2>},
    {"L3 FAST/peer", kFast, Opponent::kPeer, 1.2, LiesIn<Regime::kL3>},
    {"DRAM FAST/peer", kFast, Opponent::kPeer, 1.0, LiesIn<Regime::kDram>},
    {"DRAM FAST/copy", kFast, Opponent::kCopy, 0.85, LiesIn<Regime::kDram>},
    {"FAST BatchNorm training nchw/PyTorch", kFast, Opponent::kTorch, 2,
     [](const Workload& w) { return w.op == Op::kBatchTraining && w.layout == Layout::kChannelsFirst; }},
    {"FAST GroupNorm/PyTorch", kFast, Opponent::kTorch, 2, [](const Workload& w) { return w.op == Op::kGroup; }},
    {"FAST RMSNorm f32 in L2/peer", kFast, Opponent::kPeer, 1.5,
     [](const Workload& w) { return w.op == Op::kRms && w.dtype == DType::kF32 && w.regime == Regime::kL2; }},
};
// What the median of all shapes must reach beside the faster peer.
constexpr double kExactMedian = 1.5, kFastMedian = 2;
// 16-bit elements are half the bytes: from DRAM that shows as rows a second.
constexpr double kHalvesFloor = 1.5;
// Half a fault a call: what a thread of a runtime has now and then is not the call's.
constexpr double kPageFaultCeiling = 0.5;

int ThreadsIn(Regime regime) {
  return regime == Regime::kDram ? std::max(1, static_cast<int>(std::thread::hardware_concurrency())) : 1;
}

// Worst first, beside a peer, or beside a copy where no peer has the operation.
void PrintRegime(Regime regime, std::vector<Outcome> outcomes, const Candidates& candidates, Report* report) {
  std::erase_if(outcomes, [&](const Outcome& outcome) { return outcome.workload.regime != regime; });
  if (outcomes.empty()) return;
  const auto rank = [&](const Outcome& outcome) {
    const std::optional<double> peer = SpeedUp(outcome, kExact, Opponent::kPeer, candidates);
    return peer.has_value() ? *peer : *SpeedUp(outcome, kExact, Opponent::kCopy, candidates);
  };
  std::stable_sort(outcomes.begin(), outcomes.end(),
                   [&](const Outcome& a, const Outcome& b) { return rank(a) < rank(b); });
  std::vector<std::string> columns;
  for (const auto& candidate : candidates) columns.emplace_back(candidate->name());
  for (const char* const column : {"EXACT/peer", "FAST/peer", "EXACT/copy", "FAST/copy"}) columns.emplace_back(column);
  report->Table(Concat("GB/s read + written, ", RegimeName(regime), ", threads: ", ThreadsIn(regime), "; worst first"),
                columns);
  for (const Outcome& outcome : outcomes) {
    std::vector<Cell> cells;
    for (const Timing& timing : outcome.timings) {
      const auto bytes = static_cast<double>(outcome.workload.Bytes());
      cells.push_back(timing.has_value() ? Amount(bytes / timing->seconds * 1e-9) : Cell());
    }
    for (const Opponent opponent : {Opponent::kPeer, Opponent::kCopy}) {
      for (const size_t who : {kExact, kFast}) cells.push_back(Ratio(SpeedUp(outcome, who, opponent, candidates)));
    }
    report->Row(outcome.workload.FullName(), cells);
  }
}

void JudgeFloors(const std::vector<Outcome>& outcomes, const Candidates& candidates, Report* report) {
  report->Table("ratios of speeds, worst shape (floor)", {"worst", "median"});
  for (const Floor& floor : kFloors) {
    Worst worst;
    for (const Outcome& outcome : outcomes) {
      if (!floor.covers(outcome.workload)) continue;
      worst.Take(SpeedUp(outcome, floor.candidate, floor.opponent, candidates), outcome.workload.FullName());
    }
    worst.AddTo(report, floor.name, floor.least);
  }
  for (const auto& [who, median] : {std::pair(kExact, kExactMedian), std::pair(kFast, kFastMedian)}) {
    Worst all;
    for (const Outcome& outcome : outcomes) {
      all.Take(SpeedUp(outcome, who, Opponent::kPeer, candidates), outcome.workload.FullName());
    }
    all.AddMedianTo(report, Concat(candidates[who]->name(), "/peer, all shapes"), median);
  }
}

void JudgeHalves(const std::vector<Outcome>& outcomes, const Candidates& candidates, Report* report) {
  for (const size_t who : {kExact, kFast}) {
    std::map<std::string, double> wide;  // rows or images of f32 a second
    Worst worst;
    const auto rows_per_s = [&](const Outcome& outcome) {
      return static_cast<double>(outcome.workload.outer) / outcome.Seconds(who);
    };
    for (const Outcome& outcome : outcomes) {
      const Workload& workload = outcome.workload;
      if (workload.regime == Regime::kDram && workload.dtype == DType::kF32)
        wide[workload.Kind()] = rows_per_s(outcome);
    }
    for (const Outcome& outcome : outcomes) {
      const Workload& workload = outcome.workload;
      if (workload.regime != Regime::kDram || !wide.contains(workload.Kind()) || workload.dtype == DType::kF32)
        continue;
      worst.Take(rows_per_s(outcome) / wide.at(workload.Kind()), workload.Name());
    }
    worst.AddTo(report, Concat("DRAM ", candidates[who]->name(), " rows/s 16-bit/f32"), kHalvesFloor);
  }
}

void JudgePageFaults(const std::vector<Outcome>& outcomes, const Candidates& candidates, Report* report) {
  report->Table("page faults a call, the most", {"faults"});
  for (size_t i = 0; i < candidates.size(); ++i) {
    std::pair<double, std::string> most = {-1, ""};
    for (const Outcome& outcome : outcomes) {
      if (!outcome.timings[i].has_value() || outcome.timings[i]->page_faults <= most.first) continue;
      most = {outcome.timings[i]->page_faults, outcome.workload.FullName()};
    }
    Cell cell = Amount(most.first < 0 ? std::nullopt : std::optional(most.first));
    if (i < kFirstPeer) cell.ceiling = kPageFaultCeiling;
    report->Row(Concat(candidates[i]->name(), " (", most.second, ")"), {cell});
  }
}

}  // namespace

void MeasureShapes(const std::vector<Workload>& workloads, const Candidates& candidates, KernelComparison* comparison,
                   Report* report) {
  const bool terminal = isatty(STDERR_FILENO) != 0;  // tables come at the end: show that something goes on
  std::vector<Outcome> outcomes;
  std::set<std::string> left_out;
  for (const Workload& workload : workloads) {
    if (workload.regime == Regime::kBetween) {
      left_out.insert(Concat(workload.Kind(), " ", Name(workload.dtype)));
      continue;
    }
    if (terminal) std::fprintf(stderr, "\r%zu of %zu", outcomes.size() + 1, workloads.size());
    outcomes.push_back({workload, comparison->Run(workload, ThreadsIn(workload.regime), candidates)});
  }
  if (terminal) std::fprintf(stderr, "\n");
  if (outcomes.empty()) return;
  report->Note("one image too large for L2 (or, of 32 MiB, for L3), not measured there", absl::StrJoin(left_out, ", "));
  for (const Regime regime : {Regime::kL2, Regime::kL3, Regime::kDram}) {
    PrintRegime(regime, outcomes, candidates, report);
  }
  JudgeFloors(outcomes, candidates, report);
  JudgeHalves(outcomes, candidates, report);
  JudgePageFaults(outcomes, candidates, report);
}

}  // namespace normd::bench
