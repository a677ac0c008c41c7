// A tile of Pattern::kColumns: adjacent columns that one task reduces and applies.
// In the path: run_columns.cc cuts a plan into tiles; column_tile.cc has their statistics and the apply pass,
// column_sums.cc the sums, nearest_tile.cc the apply pass to the nearest value. Borrows the run. Threads: one task uses
// a tile, and may share the work of either pass among the threads of the pool.
#ifndef NORMD_KERNELS_CPU_COLUMN_TILE_H_
#define NORMD_KERNELS_CPU_COLUMN_TILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/beyond_fast.h"
#include "kernels/cpu/nearest_group.h"
#include "kernels/cpu/pair_sums.h"
#include "kernels/cpu/run.h"

namespace normd::cpu {

// The statistics groups [begin, end) of keep1 for one k0, which have (end - begin) * reduce1 adjacent columns. Call
// Reduce, then Apply; `split` shares the work of either among the threads of the pool.
class ColumnTile {
 public:
  // Of PowerNorm, `pre` has the scale of each position's channels, `pre_stride` apart; null: none.
  ColumnTile(const Run& run, int64_t k0, GroupRange groups, const PositionScale* pre, int64_t pre_stride);

  void Reduce(bool split);
  void Apply(bool split) const;

 private:
  std::vector<double> Columns(double value) const { return std::vector<double>(static_cast<size_t>(columns_), value); }
  bool IsCentred() const { return plan_.statistic == Statistic::kMeanVariance; }
  // True if f32 does not serve a group of a FAST job.
  bool IsBeyond(int64_t group) const {
    return IsBeyondFast(run_, results_[results_.size() == 1 ? 0 : static_cast<size_t>(group)]);
  }
  // The first group from `group` on that is beyond FAST, or is not; the number of groups if there is none.
  int64_t NextBeyond(int64_t group, bool is_beyond) const {
    while (group < groups_ && IsBeyond(group) != is_beyond) ++group;
    return group;
  }
  // Runs the groups that are beyond FAST to the nearest value.
  void RunBeyondFast(bool split) const;
  // Copies prepared statistics of groups of one column each.
  void TakeGiven(const GivenGroups& given);
  // Copies the statistics of a group to each of its columns.
  void Spread(int64_t group, const FinishedStatistics& result);
  // The statistics from `column` on; for columns that are applied by factors, the members that FactorColumns reads.
  ColumnStatistics StatisticsAt(int64_t column) const;
  // The parameters as one value for each column. They are expanded into `storage` only if memory does not hold them in
  // this form already.
  const double* ParameterColumns(const double* parameters, std::vector<double>& storage) const;
  ColumnBlock Block(int64_t index) const;

  // ---- column_sums.cc ----

  // Sums the tile and finishes its groups. Returns true if FinishTogether() finished all of them; otherwise results_
  // has the result of each group, which is yet to be stored and spread.
  bool Sum(bool split);
  void SumPairs(bool split);
  // Sums the groups in f64 (kExact) or f32 (kFast), about a first shift and, where needed, about a better one. Returns
  // the same as Sum.
  bool SumNarrow(bool split);
  // Keeps those groups pending whose first shift was too far from the mean, and gives them the better shift; the other
  // groups keep their result. Returns true if any group is pending.
  bool TakeBetterShifts(std::vector<bool>& pending);
  // The first counted element of a column; 0 if it is not finite.
  double FirstElement(int64_t column) const;
  // Chooses the first shift of the groups: the mean of the first positions, because FAST has no digits to spare, and
  // the bound of an error in f64 grows with the distance; the first element if the mask counts none of these positions.
  void ChooseShifts();
  void SetShift(int64_t group, double shift);
  // True if the groups are summed in pairs from the start, because most of them would be summed again.
  bool SumsInPairs() const;
  // The sums of SumTile() about shifts of its own, which are the means, and `pairs_`. Null, and nothing is changed, if
  // plain sums have to serve.
  std::unique_ptr<double[]> SumTileInPairs(bool split);
  // The sums of each column: RoomOf(columns_) second sums, then, if a mean is subtracted, as many first sums.
  std::unique_ptr<double[]> SumTile(bool split) const;
  // Finishes groups of one column each, a vector of groups at a time, from the sums of SumTile(). Returns false if some
  // group is not settled (see ChannelStatistics): Reduce then finishes, stores and spreads all of them again.
  bool FinishTogether(const double* sums);
  // Writes results_ of the pending groups from their sums.
  void FinishPending(const std::vector<bool>& pending, double* sums);
  // The sums of kPowerSum's terms. `block.shift` is the largest |x| of each column's group, scaled. Methods with this
  // statistic take no mask.
  void SumPowers(const ColumnBlock& block, PairSums* sums) const;
  // Sums the tile once in pairs, for f64 elements and PowerNorm, and writes results_ of the pending groups.
  void SumPendingPairs(bool split, const std::vector<bool>& pending);
  void ChooseScales();

  // ---- nearest_tile.cc: y is rounded to the nearest value ----

  // What the elements need beside the statistics.
  struct Nearest {
    NearestGroups groups;
    // One per column: the mean, and the bound of the normalised elements.
    std::vector<double> mean, beta, kappa;
    std::vector<bool> is_finite;  // one per group, see GroupBound; empty: all are
  };
  double Additions() const {  // that a term of a group's sums takes part in
    if (!pairs_.empty()) return kAdditionsOfPairs;
    return run_.wide() ? AdditionsInColumns(plan_.reduce0, plan_.reduce1)
                       : AdditionsInShallowColumns(plan_.reduce0, plan_.reduce1);
  }
  void TakeBound(int64_t group, const FinishedStatistics& result, const GroupBound& bound);
  // Takes the bounds of `count` settled groups of one column each, from `begin` on.
  void TakeBounds(int64_t begin, int64_t count, const ChannelStatistics& channels);
  // Takes known statistics, or prepares given ones, of groups of one column each; false if there are none, or some are
  // not finite, or too few.
  bool TakeGivenToNearest();
  GroupBound BoundOf(int64_t group) const;
  // True if ApplyNearestQuickly() can apply the tile.
  bool LooksQuickly() const;
  NearestSpan SpanToNearest(const Parameters& parameters) const;
  ElementBound BoundOfColumn(int64_t column, const Parameters& parameters) const;
  // Applies `columns` columns from `column` on at the positions [begin, end), and reports what is undecided. `quick`
  // has the numbers of all columns.
  using Report = absl::FunctionRef<void(const NearestPlace&)>;
  void ApplySpanToNearest(QuickSpan span, bool quickly, GroupRange positions, GroupRange columns, Report report) const;
  void ApplyToNearest(bool split) const;
  ColumnsToFold ToFold(const Parameters& parameters) const;
  // Gives the elements that ApplyToNearest() reported to the slow road.
  void DecideUndecided(const QuickSpan& span, bool split) const;
  // True if SumAgain() sums the groups for the slow road, a vector of columns at a time.
  bool SumsAgain() const;
  // The sums in pairs of the groups that have undecided elements; those of other groups may be empty.
  std::vector<slow_road::SumsAbout> SumAgain(const std::vector<int64_t>& groups, bool split) const;
  void SumGroupsAgain(GroupRange groups, slow_road::SumsAbout* sums) const;
  // The same of f32 in one pass; false if that cannot be done.
  bool SumGroupsInPairs(GroupRange groups, slow_road::SumsAbout* sums) const;
  bool HasFloatColumns() const { return plan_.dtype == DType::kF32 && !run_.wide() && run_.job.mask == nullptr; }
  FloatColumns FloatsAt(int64_t position, int64_t column, int64_t columns) const;

  const Run& run_;
  const NormPlan& plan_;
  const int64_t first_group_, first_k1_, groups_, columns_, stride_, offset_;
  const PositionScale* const pre_;
  const int64_t pre_stride_;
  const bool parameters_per_position_;
  const bool by_factors_;  // y is made with FactorColumns
  // One per column.
  std::vector<double> shift_;
  std::vector<float> shift32_;                         // for FAST
  std::unique_ptr<double[]> delta_hi_, inverse_hi_;    // not initialised before Reduce
  std::vector<double> scale_, delta_lo_, inverse_lo_;  // empty if by_factors_
  // One per group, or a single one for all groups if TakeGiven() or FinishTogether() wrote their statistics.
  std::vector<FinishedStatistics> results_;
  std::vector<Magnitude> magnitudes_;        // one per group, f64 only
  std::unique_ptr<Nearest> nearest_;         // if y is rounded to the nearest value
  std::vector<slow_road::SumsAbout> pairs_;  // one per group, if the sums are in pairs; else empty
  Centring centring_ = Centring::kOnce;
};

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_COLUMN_TILE_H_
