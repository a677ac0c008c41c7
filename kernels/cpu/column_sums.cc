// The sums of a tile of columns, and the statistics that they give.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/cpu/column_tile.h"
#include "kernels/summation_order.h"

namespace normd::cpu {
namespace {

// The blocks are summed in spans, each with sums of its own. This many spans for each thread share the work evenly.
constexpr int64_t kSpansPerThread = 4;
// Of groups of f32 that are summed in pairs.
constexpr int64_t kLeastInPairs = int64_t{1} << 11;

// Rows of sums that are folded as they come, see order::FoldsAfter, so that at most as many are kept as the count has
// binary digits.
class FoldedRows {
 public:
  // For at most `rows` rows of `width` sums each.
  FoldedRows(int64_t rows, int64_t width)
      : width_(width),
        kept_(std::make_unique_for_overwrite<double[]>(
            static_cast<size_t>((std::bit_width(static_cast<uint64_t>(rows)) + 1) * width))) {}

  // The place for the sums of the next row. Call Push() when they are written.
  double* Next() { return kept_.get() + depth_ * width_; }
  void Push() {
    ++depth_;
    for (int folds = order::FoldsAfter(count_++); folds > 0; --folds) Merge();
  }
  // The fold of all rows since the last call. REQUIRES: there is one.
  const double* Total() {
    while (depth_ > 1) Merge();
    depth_ = count_ = 0;
    return kept_.get();
  }

 private:
  void Merge() {
    --depth_;
    AddSums(kept_.get() + depth_ * width_, width_, kept_.get() + (depth_ - 1) * width_);
  }

  const int64_t width_;
  const std::unique_ptr<double[]> kept_;
  int64_t depth_ = 0, count_ = 0;
};
}  // namespace

bool ColumnTile::Sum(bool split) {
  if (!run_.wide() && pre_ == nullptr) return SumNarrow(split);
  SumPairs(split);
  return false;
}

void ColumnTile::SumPairs(bool split) {
  std::vector<bool> pending(static_cast<size_t>(groups_), true);
  results_.resize(static_cast<size_t>(groups_));
  if (pre_ == nullptr) ChooseScales();
  if (IsCentred()) {
    for (int64_t group = 0; group < groups_; ++group) {
      const int64_t c = group * plan_.reduce1;
      SetShift(group, FirstElement(c) * scale_[static_cast<size_t>(c)]);
    }
  }
  if (SumsPowers(plan_.statistic)) {
    for (int64_t group = 0; group < groups_; ++group) {
      const double scale = scale_[static_cast<size_t>(group * plan_.reduce1)];
      SetShift(group, magnitudes_[static_cast<size_t>(group)].largest() * scale);
    }
  }
  SumPendingPairs(split, pending);
  if (TakeBetterShifts(pending)) SumPendingPairs(split, pending);
}

bool ColumnTile::SumNarrow(bool split) {
  std::unique_ptr<double[]> sums = SumsInPairs() ? SumTileInPairs(split) : nullptr;
  if (sums == nullptr) {
    if (IsCentred()) ChooseShifts();
    sums = SumTile(split);
  }
  if (FinishTogether(sums.get())) return true;
  std::vector<bool> pending(static_cast<size_t>(groups_), true);
  FinishPending(pending, sums.get());
  if (TakeBetterShifts(pending)) {
    sums = SumTile(split);
    FinishPending(pending, sums.get());
  }
  return false;
}

bool ColumnTile::TakeBetterShifts(std::vector<bool>& pending) {
  bool any = false;
  for (int64_t group = 0; group < groups_; ++group) {
    const FinishedStatistics& result = results_[static_cast<size_t>(group)];
    const bool again = pending[static_cast<size_t>(group)] && result.shift_too_far;
    pending[static_cast<size_t>(group)] = again;
    if (!again) continue;
    SetShift(group, result.better_shift);
    any = true;
  }
  return any;
}

double ColumnTile::FirstElement(int64_t column) const {
  return FirstShift(Precision::kExact, run_.X(offset_ + run_.first_counted * stride_ + column), 1, true);
}

void ColumnTile::ChooseShifts() {
  static_assert(order::kFastColumnSample <= order::kColumnBlock);
  ColumnBlock block = Block(0);
  block.positions = std::min(order::kFastColumnSample, plan_.reduce0);
  block.shift = nullptr;
  const int64_t counted = block.mask == nullptr
                              ? block.positions
                              : block.positions - std::count(block.mask, block.mask + block.positions, 0);
  const bool sample = counted > 0;
  std::unique_ptr<double[]> first;
  if (sample) {
    const int64_t room = RoomOf(columns_);
    first = std::make_unique_for_overwrite<double[]>(static_cast<size_t>(2 * room));
    ReduceNarrowColumnBlock(plan_.statistic, Precision::kExact, block, first.get(), first.get() + room);
  }
  for (int64_t group = 0; group < groups_; ++group) {
    double shift = FirstElement(group * plan_.reduce1);
    if (sample) {
      double sum = 0;
      for (int64_t c = 0; c < plan_.reduce1; ++c) sum += first[group * plan_.reduce1 + c];
      const auto mean = static_cast<float>(sum / static_cast<double>(counted * plan_.reduce1));
      shift = std::isfinite(mean) ? mean : 0;
    }
    SetShift(group, shift);
  }
}

void ColumnTile::SetShift(int64_t group, double shift) {
  std::fill_n(shift_.begin() + group * plan_.reduce1, plan_.reduce1, shift);
  if (shift32_.empty()) return;
  std::fill_n(shift32_.begin() + group * plan_.reduce1, plan_.reduce1, static_cast<float>(shift));
}

bool ColumnTile::SumsInPairs() const {
  return nearest_ != nullptr && HasFloatColumns() && IsCentred() && SumsAgain() && run_.y != nullptr &&
         plan_.reduce0 * plan_.reduce1 >= kLeastInPairs;
}

std::unique_ptr<double[]> ColumnTile::SumTileInPairs(bool split) {
  const int64_t parts = order::CeilDiv(plan_.reduce0, FloatColumns::kMostPositions);
  std::vector<PairSums> sums(static_cast<size_t>(parts * columns_));
  std::atomic<bool> is_finite = true;
  const auto sum = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && is_finite.load(std::memory_order_relaxed); ++i) {
      const FloatColumns columns = FloatsAt(i * FloatColumns::kMostPositions, 0, columns_);
      if (!SumInPairs(columns, sums.data() + i * columns_)) is_finite.store(false, std::memory_order_relaxed);
    }
  };
  if (split) {
    run_.pool.ParallelFor(parts, run_.Grain(FloatColumns::kMostPositions * columns_), sum);
  } else {
    sum(0, parts);
  }
  if (!is_finite.load(std::memory_order_relaxed)) return nullptr;
  for (int64_t c = 0; c < columns_; ++c) order::PairwiseFold(sums.data() + c, parts, columns_, AddPairs);
  std::vector<slow_road::SumsAbout> pairs;
  for (int64_t group = 0; group < groups_; ++group) {
    PairSums* const of_group = sums.data() + group * plan_.reduce1;
    order::PairwiseFold(of_group, plan_.reduce1, 1, AddPairs);
    const auto about = AboutMean(of_group[0], static_cast<double>(run_.counted));
    if (!about.has_value()) return nullptr;
    pairs.push_back(*about);
  }
  const int64_t room = RoomOf(columns_);
  auto plain = std::make_unique<double[]>(static_cast<size_t>(2 * room));
  for (int64_t group = 0; group < groups_; ++group) {
    const slow_road::SumsAbout& of = pairs[static_cast<size_t>(group)];
    SetShift(group, of.shift);
    plain[group * plan_.reduce1] = of.sums.second.hi;
    plain[room + group * plan_.reduce1] = of.sums.first.hi;
  }
  pairs_ = std::move(pairs);
  return plain;
}

std::unique_ptr<double[]> ColumnTile::SumTile(bool split) const {
  const int64_t blocks = order::ColumnBlocks(plan_.reduce0);
  const int64_t room = RoomOf(columns_);
  const int64_t width = IsCentred() ? 2 * room : room;
  // A span is a power of two of blocks, so that the tree over its blocks is a part of the tree over all.
  const int64_t enough = split ? kSpansPerThread * run_.pool.threads() : 1;
  int64_t span_blocks = 1;
  while (order::CeilDiv(blocks, span_blocks) > enough) span_blocks *= 2;
  const int64_t spans = order::CeilDiv(blocks, span_blocks);
  auto sums = std::make_unique_for_overwrite<double[]>(static_cast<size_t>(spans * width));
  const auto reduce = [&](int64_t begin, int64_t end) {
    FoldedRows rows(span_blocks, width);
    for (int64_t g = begin; g < end; ++g) {
      for (int64_t b = g * span_blocks; b < std::min(blocks, (g + 1) * span_blocks); ++b) {
        double* const second = rows.Next();
        ReduceNarrowColumnBlock(plan_.statistic, run_.precision(), Block(b), IsCentred() ? second + room : nullptr,
                                second);
        rows.Push();
      }
      std::copy_n(rows.Total(), width, sums.get() + g * width);
    }
  };
  if (split) {
    run_.pool.ParallelFor(spans, run_.Grain(span_blocks * order::kColumnBlock * columns_), reduce);
  } else {
    reduce(0, spans);
  }
  std::vector<double*> of_spans(static_cast<size_t>(spans));
  for (int64_t g = 0; g < spans; ++g) of_spans[static_cast<size_t>(g)] = sums.get() + g * width;
  order::PairwiseFold(of_spans.data(), spans, 1, [width](double* a, const double* b) { AddSums(b, width, a); });
  return sums;
}

bool ColumnTile::FinishTogether(const double* sums) {
  if (!IsCentred() || plan_.reduce1 != 1 || !by_factors_) return false;
  std::vector<double> shift(shift_.size());
  const double* const first = sums + RoomOf(columns_);
  for (int64_t begin = 0; begin < groups_; begin += ChannelBlock::kMaxChannels) {
    const int64_t count = std::min(ChannelBlock::kMaxChannels, groups_ - begin);
    ChannelStatistics some;
    FinishChannels({.channels = count,
                    .count = run_.counted,
                    .shift = shift_.data() + begin,
                    .first = first + begin,
                    .second = sums + begin,
                    .precision = run_.precision(),
                    .rule = run_.rule,
                    .additions = Additions()},
                   &some);
    if (!std::all_of(some.settled, some.settled + count, [](bool settled) { return settled; })) return false;
    std::copy_n(some.shift, count, shift.begin() + begin);
    std::copy_n(some.delta, count, delta_hi_.get() + begin);
    std::copy_n(some.inverse, count, inverse_hi_.get() + begin);
    run_.StoreChannels(first_group_ + begin, some, 0, count);
    if (nearest_ != nullptr) TakeBounds(begin, count, some);
  }
  shift_ = std::move(shift);
  const double* const delta = delta_hi_.get();
  if (std::any_of(delta, delta + groups_, [](double d) { return d != 0; })) centring_ = Centring::kTwice;
  results_ = {FinishedStatistics{.elements_in_f32 = true}};
  return true;
}

void ColumnTile::FinishPending(const std::vector<bool>& pending, double* sums) {
  results_.resize(static_cast<size_t>(groups_));
  const int64_t room = RoomOf(columns_);
  // The low parts of narrow sums are 0.
  const auto fold = [this](double* columns) {
    order::PairwiseFold(columns, plan_.reduce1, 1, [](double& a, double b) { a += b; });
    return DoublePair{columns[0], 0};
  };
  for (int64_t group = 0; group < groups_; ++group) {
    if (!pending[static_cast<size_t>(group)]) continue;
    double* const second = sums + group * plan_.reduce1;
    const PairSums total = {IsCentred() ? fold(second + room) : DoublePair{}, fold(second)};
    const double shift = shift_[static_cast<size_t>(group * plan_.reduce1)];
    FinishedStatistics& result = results_[static_cast<size_t>(group)];
    result = run_.Finish(plan_.statistic, total, run_.counted, shift, 1, run_.precision());
    if (nearest_ == nullptr) continue;
    const SumErrors sums_of = {Additions(), shift, total.second.hi == 0};
    TakeBound(group, result, GroupBound(run_, sums_of, result));
  }
}

void ColumnTile::SumPowers(const ColumnBlock& block, PairSums* sums) const {
  std::vector<double> high(static_cast<size_t>(block.positions * block.columns));
  std::vector<double> low(high.size());
  for (int64_t i = 0; i < block.positions * block.columns; ++i) {
    const int64_t column = i % block.columns;
    PowerTerms(block.x.At(i / block.columns * block.stride + column), 1,
               {block.scale[column], block.shift[column], run_.rule.p, run_.to_nearest}, high.data() + i,
               low.data() + i);
  }
  ReduceColumnBlock(Statistic::kAbsSum,
                    {.x = {DType::kF64, high.data(), low.data()},
                     .positions = block.positions,
                     .columns = block.columns,
                     .stride = block.columns},
                    sums);
}

void ColumnTile::SumPendingPairs(bool split, const std::vector<bool>& pending) {
  const int64_t blocks = order::ColumnBlocks(plan_.reduce0);
  std::vector<PairSums> sums(static_cast<size_t>(blocks * columns_));
  const auto reduce = [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      if (plan_.statistic == Statistic::kPowerSum) {
        SumPowers(Block(b), sums.data() + b * columns_);
      } else if (plan_.statistic != Statistic::kMaxAbs) {
        ReduceColumnBlock(plan_.statistic, Block(b), sums.data() + b * columns_);
      }
    }
  };
  if (split) {
    run_.pool.ParallelFor(blocks, run_.Grain(order::kColumnBlock * columns_), reduce);
  } else {
    reduce(0, blocks);
  }
  for (int64_t c = 0; c < columns_; ++c) run_.Fold(sums.data() + c, blocks, columns_);
  for (int64_t group = 0; group < groups_; ++group) {
    if (!pending[static_cast<size_t>(group)]) continue;
    const int64_t c = group * plan_.reduce1;
    run_.Fold(sums.data() + c, plan_.reduce1, 1);
    PairSums total = sums[static_cast<size_t>(c)];
    const auto i = static_cast<size_t>(group);
    if (!magnitudes_.empty() && !magnitudes_[i].finite() && !SumsPowers(plan_.statistic)) {
      SetShift(group, 0);
      total = NonFiniteSums(plan_.statistic, magnitudes_[i]);
    }
    results_[i] = run_.Finish(plan_.statistic, total, run_.counted, shift_[static_cast<size_t>(c)],
                              scale_[static_cast<size_t>(c)], Precision::kExact);
    if (nearest_ == nullptr) continue;
    const double scale = scale_[static_cast<size_t>(c)];
    const bool is_zero = !magnitudes_.empty() && WideSumsAreZero(plan_.statistic, total.second, magnitudes_[i], scale);
    const SumErrors sums_of = {Additions(), shift_[static_cast<size_t>(c)] / scale, is_zero};
    TakeBound(group, results_[i], GroupBound(run_, sums_of, results_[i]));
  }
}

void ColumnTile::ChooseScales() {
  std::vector<Magnitude> columns(static_cast<size_t>(columns_));
  for (int64_t b = 0; b < order::ColumnBlocks(plan_.reduce0); ++b) MeasureColumns(Block(b), columns.data());
  magnitudes_.resize(static_cast<size_t>(groups_));
  for (int64_t group = 0; group < groups_; ++group) {
    Magnitude& magnitude = magnitudes_[static_cast<size_t>(group)];
    for (int64_t i = 0; i < plan_.reduce1; ++i) {
      magnitude.Include(columns[static_cast<size_t>(group * plan_.reduce1 + i)]);
    }
    std::fill_n(scale_.begin() + group * plan_.reduce1, plan_.reduce1, ScaleFor(magnitude, run_.rule));
  }
}

}  // namespace normd::cpu
