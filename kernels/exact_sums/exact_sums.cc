#include "kernels/exact_sums/exact_sums.h"

#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "kernels/exact_sums/error_reason.h"

namespace normd {

template <typename Range>
absl::Status ExactSums<Range>::Merge(const ExactSums& other) {
  if (other.count_ > kMaxSummed - count_) {
    return OutOfRangeError("count", Concat(count_, " + ", other.count_), Concat("at most ", kMaxSummed, " together"),
                           kExactSumsReason);
  }
  count_ += other.count_;
  non_finite_.Include(other.non_finite_);
  sum_.Add(other.sum_);
  squares_.Add(other.squares_);
  return absl::OkStatus();
}

template class ExactSums<NarrowRange>;
template class ExactSums<WideRange>;

}  // namespace normd
