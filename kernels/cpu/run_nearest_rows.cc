// Whole rows to the nearest value, in blocks: the block kernel, and what it leaves.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>

#include "kernels/certificate.h"
#include "kernels/cpu/exact_row.h"
#include "kernels/cpu/nearest_group.h"
#include "kernels/cpu/run.h"

namespace normd::cpu {
namespace {

// The bound of a row that the block kernel did, as the kernel calculates it of many rows at once.
NormalisedBound BoundOfRow(const RowBoundTerms& terms, double n, const FinishedStatistics& row) {
  const double q = row.mean * row.mean * n / row.m2;
  const double centre = std::abs(row.mean * row.inverse_std);
  return {.beta = terms.beta_base + terms.beta_of_q * q + terms.beta_of_centre * centre,
          .kappa = terms.kappa_base + terms.kappa_of_q * q};
}

// A block of rows whose x is not y, and then the next one.
class NearestBlock {
 public:
  NearestBlock(const Run& run, const RowBoundTerms& terms) : run_(run), terms_(terms) {}

  // Goes on to the block whose first row is group `begin`, the x of which the run has by now.
  void Start(int64_t begin) {
    begin_ = begin;
    for (; asked_ != 0; asked_ &= asked_ - 1) rows_[std::countr_zero(asked_)].reset();
  }

  // Decides an element of the block.
  void Decide(const Undecided& element) {
    Row& row = At(element.position);
    const int64_t group = begin_ + element.position;
    const int64_t k1 = group % run_.plan.keep1;
    const std::optional<double> exact = YOf(row, element);
    if (exact.has_value()) {
      const int64_t index = group * run_.plan.reduce1 + element.column;
      void* const y = static_cast<char*>(run_.y) + index * SizeOf(run_.plan.dtype);
      ConvertFromF64(&*exact, 1, run_.plan.dtype, y);
      return;
    }
    row.slow.Decide(0, k1, element.column, element.x);
  }

  // Replaces what Run::StoreGroup wrote of a row that the block kernel did, which is finite, by the nearest values.
  void StoreGroup(int64_t row, const FinishedStatistics& result) {
    const NormalisedBound bound = BoundOfRow(terms_, static_cast<double>(run_.counted), result);
    if (!HasNearestOutputs(run_, result, bound)) At(row).slow.StoreGroup((begin_ + row) % run_.plan.keep1);
  }

 private:
  struct Row {
    ExactRow exact;
    NearestGroups slow;

    Row(const Run& run, int64_t group)
        : exact(run.plan.statistic, run.rule, run.X(group * run.plan.reduce1), run.plan.reduce1),
          slow(run, group / run.plan.keep1, group % run.plan.keep1, 1) {}
  };

  Row& At(int64_t row) {
    std::unique_ptr<Row>& made = rows_[row];
    if (made == nullptr) made = std::make_unique<Row>(run_, begin_ + row);
    asked_ |= uint32_t{1} << row;
    return *made;
  }

  // y of an element of a row with exact statistics, where plain arithmetic gives it without an error.
  std::optional<double> YOf(const Row& row, const Undecided& element) const {
    const Parameters& parameters = run_.parameters;
    const bool rounds_weights = run_.job.parameters != nullptr && !run_.job.parameters->host().weight_rest.empty();
    if (run_.nearest.exact_first || rounds_weights) return std::nullopt;
    const int64_t at = run_.plan.affine_index == AffineIndex::kElement ? element.column : 0;
    return row.exact.Y(element.x, parameters.weight == nullptr ? 1 : parameters.weight[at],
                       parameters.bias == nullptr ? -0.0 : parameters.bias[at]);
  }

  const Run& run_;
  const RowBoundTerms terms_;
  int64_t begin_ = 0;
  uint32_t asked_ = 0;                             // a bit for each row that is made
  std::unique_ptr<Row> rows_[RowBlock::kMaxRows];  // made when an element first asks
};

QuickBounds Times(QuickBounds bounds, double factor) {
  for (double* term : {&bounds.base, &bounds.of_beta, &bounds.of_kappa, &bounds.of_centre, &bounds.relative_base,
                       &bounds.relative_of_kappa}) {
    *term *= factor;
  }
  return bounds;
}

NearestRows NearestRowsOf(const Run& run) {
  const NormPlan& plan = run.plan;
  const bool centred = plan.statistic == Statistic::kMeanVariance;
  const double additions = AdditionsInRows(1, plan.reduce1);
  const double weight = run.largest_weight;
  const double bias = run.largest_bias;
  NearestRows rows;
  rows.terms = centred ? TermsOfRowsAboutMean(additions) : TermsOfRowsAboutZero(plan.statistic, additions);
  rows.largest_weight = weight;
  rows.largest_bias = bias;
  rows.bound_factor = run.nearest.bound_factor;
  const bool squares = plan.statistic == Statistic::kMeanSquare || plan.statistic == Statistic::kSumSquares;
  // Of f16 an element in 2^11 asks for the row to be summed again, of bf16 one in 2^14.
  constexpr int64_t kMostOfF16 = 128;
  constexpr int64_t kMostOfBF16 = 16'384;
  const bool gains = plan.reduce1 <= (plan.dtype == DType::kBF16 ? kMostOfBF16 : kMostOfF16);
  rows.in_runs = run.is_16bit() && squares && gains && !run.StoresGroups();
  const QuickBounds quick = run.is_16bit() ? QuickBoundsInF32(rows.in_runs ? kOfRunsOfFour : 0, weight, bias)
                                           : QuickBoundsInF64(weight, bias);
  // A row of one element is its own mean, and 0 / D is exact.
  const bool is_exact = centred && plan.reduce1 == 1;
  rows.quick = Times(quick, is_exact ? 0 : rows.bound_factor);
  rows.report = [](void* context, const Undecided& element) { static_cast<NearestBlock*>(context)->Decide(element); };
  return rows;
}

}  // namespace

void RunNearestRows(const Run& run, RowBlock block, GroupRange groups,
                    absl::FunctionRef<void(const Run&, int64_t)> one) {
  const int64_t rows = block.rows;
  const int64_t row_bytes = block.n * SizeOf(run.plan.dtype);
  NearestRows nearest = NearestRowsOf(run);
  std::unique_ptr<std::byte[]> copy;  // of a block's x, where y is x
  if (run.x.data == run.y) copy = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(rows * row_bytes));
  FinishedStatistics results[RowBlock::kMaxRows];
  Run part = run;
  NearestBlock undecided(part, nearest.terms);
  nearest.context = &undecided;
  for (int64_t begin = groups.begin; begin < groups.end; begin += block.rows) {
    block.rows = std::min(rows, groups.end - begin);
    block.x = run.X(begin * block.n);
    block.y = static_cast<char*>(run.y) + begin * row_bytes;
    if (copy != nullptr) {
      std::memcpy(copy.get(), block.x.data, static_cast<size_t>(block.rows * row_bytes));
      part.x.data = block.x.data = copy.get();
      part.given_x = part.x;
      part.x_begin = begin * block.n;
    }
    undecided.Start(begin);
    const uint32_t done = NormaliseRowsToNearest(block, nearest, results);
    for (int64_t row = 0; row < block.rows; ++row) {
      if ((done >> row & 1) == 0) {
        one(part, begin + row);
      } else if (block.wants_results) {
        run.StoreGroup(begin + row, results[row]);
        undecided.StoreGroup(row, results[row]);
      }
    }
  }
}

}  // namespace normd::cpu
