#include "tests/bench/kernels/shapes.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

namespace normd::bench {

namespace {

constexpr size_t kExact = 0, kFast = 1, kCopy = 2, kCopyNonTemporal = 3, kFirstPeer = 4;

struct Outcome {
  Workload workload;
  std::vector<Time> times;

  double Seconds(size_t who) const { return times[who].median_seconds; }
  double Copy() const { return std::min(Seconds(kCopy), Seconds(kCopyNonTemporal)); }
  // The fastest peer that has the operation; of the one called `name`, if that is not empty.
  std::optional<double> Peer(const std::vector<std::unique_ptr<Contestant>>& contestants,
                             std::string_view name = "") const {
    std::optional<double> best;
    for (size_t i = kFirstPeer; i < times.size(); ++i) {
      if (!times[i].took_part || (!name.empty() && contestants[i]->name() != name)) continue;
      best = std::min(best.value_or(Seconds(i)), Seconds(i));
    }
    return best;
  }
  std::string FullName() const { return std::string(RegimeName(workload.regime)) + " " + workload.Name(); }
};

using Contestants = std::vector<std::unique_ptr<Contestant>>;

std::string RatioText(std::optional<double> ratio) { return ratio.has_value() ? Fixed(*ratio, 2) : "-"; }

// By how much `who` beats the fastest peer; absent: there is none.
std::optional<double> AgainstPeer(const Outcome& outcome, size_t who, const Contestants& contestants,
                                  std::string_view name = "") {
  const std::optional<double> peer = outcome.Peer(contestants, name);
  if (!peer.has_value()) return std::nullopt;
  return *peer / outcome.Seconds(who);
}

void PrintRegime(Regime regime, int threads, std::vector<const Outcome*> outcomes, const Contestants& contestants,
                 Report* report) {
  // Worst first: beside a peer, or beside a copy where no peer has it.
  const auto rank = [&](const Outcome* outcome) {
    return AgainstPeer(*outcome, kExact, contestants).value_or(outcome->Copy() / outcome->Seconds(kExact));
  };
  std::stable_sort(outcomes.begin(), outcomes.end(),
                   [&](const Outcome* a, const Outcome* b) { return rank(a) < rank(b); });
  std::vector<std::string> columns = {std::string(RegimeName(regime))};
  for (const auto& contestant : contestants) columns.emplace_back(contestant->name());
  for (const char* column : {"EXACT/peer", "FAST/peer", "EXACT/copy", "FAST/copy"}) columns.emplace_back(column);
  report->Table("GB/s read + written (median/best), " + std::string(RegimeName(regime)) + ", " +
                    std::to_string(threads) + (threads == 1 ? " thread" : " threads") + ", worst first",
                columns);
  for (const Outcome* outcome : outcomes) {
    const int64_t bytes = outcome->workload.Bytes();
    std::vector<std::string> cells = {outcome->workload.Name()};
    for (const Time& time : outcome->times) cells.push_back(time.GbText(bytes));
    for (const size_t who : {kExact, kFast}) cells.push_back(RatioText(AgainstPeer(*outcome, who, contestants)));
    for (const size_t who : {kExact, kFast}) cells.push_back(Fixed(outcome->Copy() / outcome->Seconds(who), 2));
    report->Row(cells);
    for (size_t i = 0; i < outcome->times.size(); ++i) {
      if (!outcome->times[i].took_part) continue;
      report->Add({.name = outcome->FullName() + " " + std::string(contestants[i]->name()),
                   .value = static_cast<double>(bytes) / outcome->Seconds(i) * 1e-9,
                   .unit = "GB/s"});
    }
  }
}

// Keeps the least of many ratios and what it belongs to.
class Worst {
 public:
  void Take(std::optional<double> ratio, const std::string& name) {
    wanted_ = true;
    if (ratio.has_value() && *ratio < ratio_) {
      ratio_ = *ratio;
      name_ = name;
    }
  }
  // Says so if what it was to be compared with is not there; nothing if there was nothing to compare.
  void Judge(const std::string& what, double floor, Report* report) const {
    if (!wanted_) return;
    if (name_.empty()) return report->NotMeasured(what, "no peer that has it (see --peers)");
    report->Add({.name = what + " (" + name_ + ")", .value = ratio_, .unit = "x", .floor = floor});
  }

 private:
  bool wanted_ = false;
  double ratio_ = std::numeric_limits<double>::infinity();
  std::string name_;
};

void JudgeRegime(Regime regime, const std::vector<const Outcome*>& outcomes, const Contestants& contestants,
                 Report* report) {
  Worst exact, fast, copy;
  for (const Outcome* outcome : outcomes) {
    exact.Take(AgainstPeer(*outcome, kExact, contestants), outcome->workload.Name());
    fast.Take(AgainstPeer(*outcome, kFast, contestants), outcome->workload.Name());
    copy.Take(outcome->Copy() / outcome->Seconds(kFast), outcome->workload.Name());
  }
  const std::string name(RegimeName(regime));
  exact.Judge(name + " EXACT/peer", regime == Regime::kL2 ? 0.6 : regime == Regime::kL3 ? 0.85 : 1.0, report);
  fast.Judge(name + " FAST/peer", regime == Regime::kDram ? 1.0 : 1.2, report);
  if (regime == Regime::kDram) copy.Judge(name + " FAST/copy", 0.85, report);
}

// What is promised of single operations.
void JudgeOperations(const std::vector<Outcome>& outcomes, const Contestants& contestants, Report* report) {
  Worst batch, group, rms;
  for (const Outcome& outcome : outcomes) {
    const Workload& workload = outcome.workload;
    const std::optional<double> torch = AgainstPeer(outcome, kFast, contestants, "PyTorch");
    if (workload.op == Op::kBatchTraining && workload.layout == Layout::kChannelsFirst) {
      batch.Take(torch, outcome.FullName());
    }
    if (workload.op == Op::kGroup) group.Take(torch, outcome.FullName());
    if (workload.op == Op::kRms && workload.dtype == DType::kF32 && workload.regime == Regime::kL2) {
      rms.Take(AgainstPeer(outcome, kFast, contestants), outcome.FullName());
    }
  }
  batch.Judge("FAST BatchNorm training nchw/PyTorch", 2, report);
  group.Judge("FAST GroupNorm/PyTorch", 2, report);
  rms.Judge("FAST RMSNorm f32 in L2/peer", 1.5, report);
}

// 16-bit elements are half the bytes: from DRAM that shows as rows a second.
void JudgeHalves(const std::vector<Outcome>& outcomes, const Contestants& contestants, Report* report) {
  for (const size_t who : {kExact, kFast}) {
    std::map<std::string, double> wide;  // seconds a row or image of f32
    Worst worst;
    const auto one = [who](const Outcome& outcome) {
      return outcome.Seconds(who) / static_cast<double>(outcome.workload.outer);
    };
    for (const Outcome& outcome : outcomes) {
      if (outcome.workload.regime != Regime::kDram) continue;
      if (outcome.workload.dtype == DType::kF32) wide[outcome.workload.Kind()] = one(outcome);
    }
    for (const Outcome& outcome : outcomes) {
      if (outcome.workload.regime != Regime::kDram || outcome.workload.dtype == DType::kF32) continue;
      const auto found = wide.find(outcome.workload.Kind());
      if (found != wide.end()) worst.Take(found->second / one(outcome), outcome.workload.Name());
    }
    worst.Judge("DRAM " + std::string(contestants[who]->name()) + " rows/s 16-bit/f32", 1.5, report);
  }
}

void JudgePageFaults(const std::vector<Outcome>& outcomes, const Contestants& contestants, Report* report) {
  report->Table("page faults a call, the most", {"", "a call", "where"});
  for (size_t i = 0; i < contestants.size(); ++i) {
    const Outcome* most = &outcomes.front();
    for (const Outcome& outcome : outcomes) {
      if (outcome.times[i].page_faults > most->times[i].page_faults) most = &outcome;
    }
    const std::string name(contestants[i]->name());
    const double faults = most->times[i].page_faults;
    report->Row({name, Short(faults), faults > 0 ? most->FullName() : "-"});
    Figure figure = {.name = "page faults a call " + name, .value = faults, .unit = "faults"};
    // Half a fault: what a runtime's thread has now and then is not the call's.
    if (i < kFirstPeer) figure.name += " (" + most->FullName() + ")", figure.ceiling = 0.5;
    report->Add(figure);
  }
}

}  // namespace

void MeasureShapes(const std::vector<Workload>& workloads, Buffers* buffers, const RaceOptions& options,
                   const Contestants& contestants, Report* report) {
  const int machine = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const bool terminal = isatty(STDERR_FILENO) != 0;  // tables come at the end: show that something goes on
  std::vector<Outcome> outcomes;
  std::set<std::string> between;
  for (const Workload& workload : workloads) {
    if (workload.regime == Regime::kBetween) {
      between.insert(workload.Kind() + " " + std::string(Name(workload.dtype)));
      continue;
    }
    if (terminal) {
      std::fprintf(stderr, "\r%zu of %zu: %-40s", outcomes.size() + 1, workloads.size(), workload.Name().c_str());
    }
    buffers->Lay(workload);
    const int threads = workload.regime == Regime::kDram ? machine : 1;
    outcomes.push_back({workload, Race(workload, *buffers, threads, options, contestants)});
  }
  if (terminal) std::fprintf(stderr, "\r%70s\r", "");
  if (outcomes.empty()) return;
  const auto disturbed = std::count_if(outcomes.begin(), outcomes.end(), [](const Outcome& outcome) {
    return std::any_of(outcome.times.begin(), outcome.times.end(), [](const Time& time) { return time.disturbed; });
  });
  report->Note("shapes disturbed by others", std::to_string(disturbed) + " of " + std::to_string(outcomes.size()));
  std::string names;
  for (const std::string& kind : between) names += (names.empty() ? "" : ", ") + kind;
  if (!names.empty()) report->Note("one image too large for L2 (or, of 32 MiB, for L3), not raced there", names);
  for (const Regime regime : {Regime::kL2, Regime::kL3, Regime::kDram}) {
    std::vector<const Outcome*> chosen;
    for (const Outcome& outcome : outcomes) {
      if (outcome.workload.regime == regime) chosen.push_back(&outcome);
    }
    if (chosen.empty()) continue;
    PrintRegime(regime, regime == Regime::kDram ? machine : 1, chosen, contestants, report);
    JudgeRegime(regime, chosen, contestants, report);
  }
  JudgeOperations(outcomes, contestants, report);
  JudgeHalves(outcomes, contestants, report);
  JudgePageFaults(outcomes, contestants, report);
}

}  // namespace normd::bench
