#include "kernels/cpu/nearest_power_terms.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>

#include "kernels/cpu/nearest_power.h"
#include "kernels/cpu/nearest_power_group.h"
#include "kernels/exact_sums/fixed_point.h"
#include "kernels/exact_sums/pair_of_sum.h"
#include "kernels/slow_road/quotient.h"
#include "kernels/summation_order.h"

namespace normd::cpu {
namespace {

// Of terms in [0, 2^62].
using SumOfTerms = FixedPoint<-1088, 20>;

// The sums of the terms of the channels of a tile, which tasks add to. Thread-safe.
class ChannelSums {
 public:
  struct Single {
    int64_t channel;  // of the tile
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
  // Empties the bins of the channels.
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
    const DoublePair pair = PairOfSum(sum);
    const DoublePair mean = Divide(pair, static_cast<double>(counted));
    if (RoundsToHigh(pair) && RoundsToHigh(mean)) return {mean.hi, pair.hi};
    const slow_road::Dyadic total = sum.Value();
    const slow_road::Format f64 = slow_road::FormatOf(DType::kF64);
    return {slow_road::RoundQuotient(f64, total, slow_road::Dyadic::Integer(static_cast<uint64_t>(counted))),
            slow_road::RoundNumber(f64, total, 0)};
  }

 private:
  // True if every number within 2^-100 of a pair rounds to its high part: see PowerBound::slack().
  static bool RoundsToHigh(DoublePair pair) {
    return pair.hi >= 0x1p-700 && std::fma(pair.lo, 1 + 0x1p-40, pair.hi) == pair.hi;
  }

  std::mutex mu_;  // guards both while tasks add
  std::vector<SumOfTerms> sums_;
  std::vector<bool> have_nan_;
};

// 1 / (mean square + eps) of the group of channels from `group` on at some positions, 0 where the kernels do not take
// it; one step for all positions after the other, so that the divisions of one do not wait for those of another.
void InvertSquares(const PowerRun& power, const int64_t* positions, int64_t count, int64_t group,
                   DoublePair* inverses) {
  for (int64_t i = 0; i < count; ++i) {
    inverses[i] = SumSquaresInPairs(power.run.X(positions[i] * power.channels + group), power.size);
  }
  for (int64_t i = 0; i < count; ++i) {
    const DoublePair square = MeanSquareOf(inverses[i], power.size, power.run.rule.eps);
    inverses[i] = TakesMeanSquare(square.hi) ? Reciprocal(square) : DoublePair{};
  }
}

// Those of all groups of all positions.
std::vector<DoublePair> InvertAllSquares(const PowerRun& power) {
  const int64_t groups = power.channels / power.size;
  std::vector<DoublePair> inverses(static_cast<size_t>(power.run.plan.reduce0 * groups));
  power.run.pool.ParallelFor(
      power.run.plan.reduce0 * groups, power.run.Grain(power.size), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t position = i / groups;
          InvertSquares(power, &position, 1, i % groups * power.size, &inverses[static_cast<size_t>(i)]);
        }
      });
  return inverses;
}

// The channels [begin, end), which are summed at once.
struct Tile {
  int64_t begin, end;
};

// Adds the terms of some positions, and at the end of its life the sums of them to those of all tasks. One thread uses
// it.
class TaskSums {
 public:
  // `inverses`, 1 / (mean square + eps) of each group of each position, are calculated where they are null.
  TaskSums(const PowerRun& power, const Tile& tile, const DoublePair* inverses, ChannelSums* all)
      : power_(power),
        tile_(tile),
        inverses_(inverses),
        all_(*all),
        bins_(power.size),
        high_(Room(), bins_.anchor),
        low_(Room(), 0.0) {}
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
  // The term of a channel in the group whose first element has the index `begin`.
  struct Undecided {
    int64_t begin, channel;
  };
  static constexpr size_t kMostSingles = size_t{1} << 16;

  size_t Room() const { return static_cast<size_t>(tile_.end - tile_.begin + kMostPowerLanes); }
  int64_t IndexOf(int64_t i, int64_t channel) const { return positions_[i] * power_.channels + channel; }

  void AddPositions() {
    for (int64_t group = tile_.begin / power_.size * power_.size; group < tile_.end; group += power_.size) {
      const Tile part = {std::max(group, tile_.begin), std::min(group + power_.size, tile_.end)};
      if (power_.uses_kernels) {
        AddGroups(group, part);
      } else {
        for (int64_t i = 0; i < count_; ++i) AddSlowly(IndexOf(i, group), part);
      }
      if (singles_.size() > kMostSingles) AddSingles();
    }
    added_ += count_;
    count_ = 0;
    if (added_ + TermRows::kMostRows > TermRows::kMostTerms) Empty();
  }

  // Adds `part` of the group of channels from `group` on at the positions that wait.
  void AddGroups(int64_t group, const Tile& part) {
    DoublePair inverses[TermRows::kMostRows];
    if (inverses_ == nullptr) {
      InvertSquares(power_, positions_, count_, group, inverses);
    } else {
      for (int64_t i = 0; i < count_; ++i) inverses[i] = inverses_[IndexOf(i, group) / power_.size];
    }
    TermRows rows = {.dtype = power_.run.x.dtype,
                     .n = part.end - part.begin,
                     .slack = power_.bound.slack(),
                     .least = bins_.least,
                     .high = high_.data() + (part.begin - tile_.begin),
                     .low = low_.data() + (part.begin - tile_.begin)};
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t begin = IndexOf(i, group);
      if (inverses[i].hi == 0) {
        AddSlowly(begin, part);
        continue;
      }
      begins_[rows.rows] = begin;
      rows.x[rows.rows] = power_.run.X(IndexOf(i, part.begin)).data;
      rows.inverse[rows.rows++] = inverses[i];
    }
    rows.context = this;
    rows.report = [](void* of, const LeftTerm& left) { static_cast<TaskSums*>(of)->Take(left); };
    first_channel_ = part.begin;
    AddTerms(rows);
    if (!undecided_.empty()) DecideUndecided();
  }
  void Take(const LeftTerm& left) {
    const int64_t channel = first_channel_ + left.channel;
    if (std::isnan(left.term)) {
      undecided_.push_back({begins_[left.row], channel});
    } else {
      AddSingle(channel, left.term);
    }
  }
  void DecideUndecided() {
    std::sort(undecided_.begin(), undecided_.end(),
              [](const Undecided& a, const Undecided& b) { return a.begin < b.begin; });
    std::optional<ScalingGroup> group;
    for (size_t i = 0; i < undecided_.size(); ++i) {
      const Undecided& one = undecided_[i];
      if (i == 0 || one.begin != undecided_[i - 1].begin) group.emplace(power_.run, one.begin, power_.size);
      AddSingle(one.channel, group->TermOf((*group)[one.channel % power_.size]));
    }
    undecided_.clear();
  }
  void AddSlowly(int64_t begin, const Tile& part) {
    ScalingGroup group(power_.run, begin, power_.size);
    for (int64_t c = part.begin; c < part.end; ++c) AddSingle(c, group.TermOf(group[c % power_.size]));
  }

  void AddSingle(int64_t channel, double term) { singles_.push_back({channel - tile_.begin, term}); }
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
  const Tile tile_;
  const DoublePair* const inverses_;
  ChannelSums& all_;
  const TermBins bins_;
  std::vector<double> high_, low_;  // the bins of each channel
  int64_t positions_[TermRows::kMostRows] = {}, count_ = 0;
  int64_t added_ = 0;  // positions in the bins
  // Of the groups that are being added: the first channel that is, and the first element of each row.
  int64_t first_channel_ = 0, begins_[TermRows::kMostRows] = {};
  std::vector<Undecided> undecided_;
  std::vector<ChannelSums::Single> singles_;
};

// Enough positions that emptying the bins, 10 ns a channel, takes a small part of the time, if the threads have work.
int64_t PositionsOfTask(const PowerRun& power) {
  constexpr int64_t kMost = TermRows::kMostTerms;
  const int64_t share = order::CeilDiv(power.run.plan.reduce0, int64_t{power.run.pool.threads()});
  return std::max(power.run.Grain(power.channels), std::min(kMost, share));
}

void SumTile(const PowerRun& power, const Tile& tile, const DoublePair* inverses, ChannelDivisor* divisors) {
  const Run& run = power.run;
  ChannelSums sums(tile.end - tile.begin);
  run.pool.ParallelFor(run.plan.reduce0, PositionsOfTask(power), [&](int64_t begin, int64_t end) {
    TaskSums task(power, tile, inverses, &sums);
    for (int64_t p = begin; p < end; ++p) {
      if (run.job.mask == nullptr || run.job.mask[p] != 0) task.Add(p);
    }
  });
  constexpr int64_t kAtOnce = 256;  // some ten microseconds
  run.pool.ParallelFor(tile.end - tile.begin, kAtOnce, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) divisors[c] = sums.Finish(c, run.counted);
  });
}

}  // namespace

std::vector<ChannelDivisor> DivisorsOf(const PowerRun& power) {
  const Run& run = power.run;
  std::vector<ChannelDivisor> divisors(static_cast<size_t>(power.channels));
  if (run.counted == 0) return divisors;
  // The sums of a channel take 200 bytes. Of more channels the groups are summed first, by themselves.
  constexpr int64_t kMostChannels = int64_t{1} << 16;
  std::vector<DoublePair> inverses;
  if (power.channels > kMostChannels && power.uses_kernels) inverses = InvertAllSquares(power);
  for (int64_t begin = 0; begin < power.channels; begin += kMostChannels) {
    const Tile tile = {begin, std::min(power.channels, begin + kMostChannels)};
    SumTile(power, tile, inverses.empty() ? nullptr : inverses.data(), divisors.data() + begin);
  }
  return divisors;
}

}  // namespace normd::cpu
