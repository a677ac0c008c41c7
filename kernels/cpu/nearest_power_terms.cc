#include "kernels/cpu/nearest_power_terms.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>
#include <optional>

#include "kernels/cpu/nearest_power.h"
#include "kernels/cpu/nearest_power_group.h"
#include "kernels/exact_sums/fixed_point.h"
#include "kernels/slow_road/quotient.h"
#include "kernels/summation_order.h"

namespace normd::cpu {
namespace {

// Of terms in [0, 2^62].
using SumOfTerms = FixedPoint<-1088, 20>;
constexpr int kTopWord = 19;

// The sums of the terms of every channel, which tasks add to. Thread-safe.
class ChannelSums {
 public:
  struct Single {
    int64_t channel;
    double term;
  };

  explicit ChannelSums(int64_t channels)
      : sums_(static_cast<size_t>(channels)), have_nan_(static_cast<size_t>(channels)) {}

  void Add(const std::vector<Single>& singles) {
    const std::lock_guard<std::mutex> lock(mu_);
    for (const Single& single : singles) {
      const auto c = static_cast<size_t>(single.channel);
      if (std::isnan(single.term)) {
        have_nan_[c] = true;
      } else {
        sums_[c].Add(single.term);
      }
    }
  }
  // Empties the bins of all channels.
  void AddBins(double anchor, double* high, double* low) {
    const std::lock_guard<std::mutex> lock(mu_);
    for (size_t c = 0; c < sums_.size(); ++c) {
      sums_[c].Add(high[c] - anchor);
      sums_[c].Add(low[c]);
      high[c] = anchor;
      low[c] = 0;
    }
  }
  // REQUIRES: no task adds any more.
  ChannelDivisor Finish(int64_t channel, int64_t counted) const {
    const SumOfTerms& sum = sums_[static_cast<size_t>(channel)];
    if (have_nan_[static_cast<size_t>(channel)]) return {};
    const DoublePair pair = PairOf(sum);
    const DoublePair mean = Divide(pair, static_cast<double>(counted));
    if (RoundsToHigh(pair) && RoundsToHigh(mean)) return {mean.hi, pair.hi};
    const slow_road::Dyadic total = sum.Value();
    const slow_road::Format f64 = slow_road::FormatOf(DType::kF64);
    return {slow_road::RoundQuotient(f64, total, slow_road::Dyadic::Integer(static_cast<uint64_t>(counted))),
            slow_road::RoundNumber(f64, total, 0)};
  }

 private:
  // The three highest words of a sum, which is not negative. A pair leaves 2^-104 of it, or less than 2^-800.
  static DoublePair PairOf(const SumOfTerms& sum) {
    int top = kTopWord;
    while (top > 2 && sum.words()[static_cast<size_t>(top)] == 0) --top;
    DoublePair pair;
    for (int i = 0; i < 3; ++i) {
      const uint64_t word = sum.words()[static_cast<size_t>(top - i)];
      const double scale = std::bit_cast<double>(static_cast<uint64_t>(1023 + 64 * (2 - i)) << 52);
      pair = normd::Add(pair, {static_cast<double>(word >> 32 << 32) * scale, 0});
      pair = normd::Add(pair, {static_cast<double>(word & 0xFFFFFFFF) * scale, 0});
    }
    const double lowest = std::ldexp(1.0, 64 * (top - 2) + SumOfTerms::kLowestBit);
    return {pair.hi * lowest, pair.lo * lowest};
  }
  // True if every number within 2^-100 of a pair rounds to its high part: see PowerBound::slack().
  static bool RoundsToHigh(DoublePair pair) {
    return pair.hi >= 0x1p-700 && std::fma(pair.lo, 1 + 0x1p-40, pair.hi) == pair.hi;
  }

  std::mutex mu_;  // guards both while tasks add
  std::vector<SumOfTerms> sums_;
  std::vector<bool> have_nan_;
};

// Adds the terms of some positions, and at the end of its life the sums of them to those of all tasks. One thread uses
// it.
class TaskSums {
 public:
  TaskSums(const PowerRun& power, ChannelSums* all)
      : power_(power), all_(*all), bins_(power.size), high_(Room(), bins_.anchor), low_(Room(), 0.0) {}
  ~TaskSums() {
    AddPositions();
    Empty();
  }
  TaskSums(const TaskSums&) = delete;
  TaskSums& operator=(const TaskSums&) = delete;

  void Add(int64_t position) {
    positions_[count_++] = position;
    if (count_ == TermRows::kMostRows) AddPositions();
  }

 private:
  // The term of a channel of the group whose first element has the index `begin`.
  struct Undecided {
    int64_t begin, channel;
  };
  static constexpr size_t kMostSingles = size_t{1} << 16;

  size_t Room() const { return static_cast<size_t>(power_.channels + kMostPowerLanes); }
  int64_t IndexOf(int64_t i, int64_t channel) const { return positions_[i] * power_.channels + channel; }

  void AddPositions() {
    for (int64_t channel = 0; channel < power_.channels; channel += power_.size) {
      if (power_.uses_kernels) {
        AddGroups(channel);
      } else {
        for (int64_t i = 0; i < count_; ++i) AddSlowly(IndexOf(i, channel), channel);
      }
      if (singles_.size() > kMostSingles) AddSingles();
    }
    added_ += count_;
    count_ = 0;
    if (added_ + TermRows::kMostRows > TermRows::kMostTerms) Empty();
  }

  // Adds the group of channels from `channel` on at the positions that wait, one step for all of them after the other:
  // the divisions of one do not wait for those of another then.
  void AddGroups(int64_t channel) {
    const Run& run = power_.run;
    DoublePair squares[TermRows::kMostRows];
    for (int64_t i = 0; i < count_; ++i) squares[i] = SumSquaresInPairs(run.X(IndexOf(i, channel)), power_.size);
    TermRows rows = {.dtype = run.x.dtype, .n = power_.size, .slack = power_.bound.slack()};
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t begin = IndexOf(i, channel);
      const DoublePair square = MeanSquareOf(squares[i], power_.size, run.rule.eps);
      if (!TakesMeanSquare(square.hi)) {
        AddSlowly(begin, channel);
        continue;
      }
      begins_[rows.rows] = begin;
      rows.x[rows.rows] = run.X(begin).data;
      rows.inverse[rows.rows++] = Reciprocal(square);
    }
    rows.high = high_.data() + channel;
    rows.low = low_.data() + channel;
    rows.context = this;
    rows.report = [](void* of, const LeftTerm& left) { static_cast<TaskSums*>(of)->Take(left); };
    first_channel_ = channel;
    AddTerms(rows);
    if (!undecided_.empty()) DecideUndecided();
  }
  void Take(const LeftTerm& left) {
    if (std::isnan(left.term)) {
      undecided_.push_back({begins_[left.row], left.channel});
    } else {
      singles_.push_back({first_channel_ + left.channel, left.term});
    }
  }
  void DecideUndecided() {
    std::sort(undecided_.begin(), undecided_.end(),
              [](const Undecided& a, const Undecided& b) { return a.begin < b.begin; });
    std::optional<ScalingGroup> group;
    for (size_t i = 0; i < undecided_.size(); ++i) {
      const Undecided& one = undecided_[i];
      if (i == 0 || one.begin != undecided_[i - 1].begin) group.emplace(power_.run, one.begin, power_.size);
      singles_.push_back({first_channel_ + one.channel, group->TermOf((*group)[one.channel])});
    }
    undecided_.clear();
  }
  void AddSlowly(int64_t begin, int64_t channel) {
    ScalingGroup group(power_.run, begin, power_.size);
    for (int64_t i = 0; i < power_.size; ++i) singles_.push_back({channel + i, group.TermOf(group[i])});
  }

  void AddSingles() {
    all_.Add(singles_);
    singles_.clear();
  }
  void Empty() {
    if (!singles_.empty()) AddSingles();
    if (added_ > 0) all_.AddBins(bins_.anchor, high_.data(), low_.data());
    added_ = 0;
  }

  const PowerRun& power_;
  ChannelSums& all_;
  const TermBins bins_;
  std::vector<double> high_, low_;  // the bins of each channel
  int64_t positions_[TermRows::kMostRows] = {}, count_ = 0;
  int64_t added_ = 0;  // positions in the bins
  // Of the groups that are being added: their first channel, and the first element of each row.
  int64_t first_channel_ = 0, begins_[TermRows::kMostRows] = {};
  std::vector<Undecided> undecided_;
  std::vector<ChannelSums::Single> singles_;
};

// Enough positions that emptying the bins, 10 ns a channel, takes a small part of the time, if the threads have work.
int64_t PositionsOfTask(const PowerRun& power) {
  constexpr int64_t kMost = 256;
  const int64_t share = order::CeilDiv(power.run.plan.reduce0, int64_t{power.run.pool.threads()});
  return std::max(power.run.Grain(power.channels), std::min(kMost, share));
}

}  // namespace

std::vector<ChannelDivisor> DivisorsOf(const PowerRun& power) {
  const Run& run = power.run;
  std::vector<ChannelDivisor> divisors(static_cast<size_t>(power.channels));
  if (run.counted == 0) return divisors;
  ChannelSums sums(power.channels);
  run.pool.ParallelFor(run.plan.reduce0, PositionsOfTask(power), [&](int64_t begin, int64_t end) {
    TaskSums task(power, &sums);
    for (int64_t p = begin; p < end; ++p) {
      if (run.job.mask == nullptr || run.job.mask[p] != 0) task.Add(p);
    }
  });
  constexpr int64_t kAtOnce = 256;  // some ten microseconds
  run.pool.ParallelFor(power.channels, kAtOnce, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) divisors[static_cast<size_t>(c)] = sums.Finish(c, run.counted);
  });
  return divisors;
}

}  // namespace normd::cpu
