// Sums in pairs of many parts, folded pairwise, so that a part takes part in as few additions as the number of parts
// has binary digits. Plain values. Example:
//   PairTree tree(1);
//   for (PairSums part : parts) tree.Add(&part);
//   const PairSums total = tree.Total()[0];
#ifndef NORMD_KERNELS_CPU_PAIR_TREE_H_
#define NORMD_KERNELS_CPU_PAIR_TREE_H_

#include <cstdint>
#include <vector>

#include "kernels/group_statistics.h"

namespace normd::cpu {

class PairTree {
 public:
  // For parts of `width` sums each.
  explicit PairTree(int64_t width) : width_(static_cast<size_t>(width)) {}

  // Adds the sums of a part.
  void Add(const PairSums* part) {
    std::vector<PairSums> sums(part, part + width_);
    size_t level = 0;
    for (int64_t count = count_++; count % 2 != 0; count /= 2) AddTo(sums, waiting_[level++]);
    if (level == waiting_.size()) waiting_.emplace_back();
    waiting_[level] = std::move(sums);
  }
  // The sums of all parts.
  std::vector<PairSums> Total() const {
    std::vector<PairSums> total(width_);
    for (size_t level = 0; level < waiting_.size(); ++level) {
      if ((count_ >> level) % 2 != 0) AddTo(total, waiting_[level]);
    }
    return total;
  }

 private:
  static void AddTo(std::vector<PairSums>& sums, const std::vector<PairSums>& more) {
    for (size_t i = 0; i < sums.size(); ++i) AddPairs(sums[i], more[i]);
  }

  const size_t width_;
  int64_t count_ = 0;
  std::vector<std::vector<PairSums>> waiting_;  // the fold of 2^level parts, where count_ has that digit
};

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_PAIR_TREE_H_
