// The exact sums of all statistics groups of a call, or of a part of a training step, whichever range their elements
// have.
// In the path: the CPU backend fills them (Job::exact), the codec sends and reads them as Moments.exact, CommitMoments
// merges them, and a session's step is rounded from them once. Plain values, thread-compatible.
#ifndef NORMD_KERNELS_EXACT_SUMS_GROUP_SUMS_H_
#define NORMD_KERNELS_EXACT_SUMS_GROUP_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/types.h"
#include "kernels/exact_sums/exact_sums.h"
#include "kernels/moments.h"

namespace normd {

// One ExactSums a group, all of one range. The sums of parts give the same bytes and the same moments in whatever order
// they are merged.
//
//   NORMD_ASSIGN_OR_RETURN(GroupSums all, GroupSums::Decode(part1));
//   NORMD_ASSIGN_OR_RETURN(const GroupSums more, GroupSums::Decode(part2));
//   NORMD_RETURN_IF_ERROR(all.Merge(more));
//   all.NearestMoments();  // those of one batch with the elements of both parts
class GroupSums {
 public:
  using Narrow = std::vector<NarrowExactSums>;
  using Wide = std::vector<WideExactSums>;

  GroupSums() = default;  // of no group
  explicit GroupSums(Narrow groups) : groups_(std::move(groups)) {}
  explicit GroupSums(Wide groups) : groups_(std::move(groups)) {}
  // Nothing is summed in any of the `groups` of elements of `dtype`.
  GroupSums(DType dtype, size_t groups);

  // Bytes as kernels/exact_sums/bytes.h writes them; Decode takes those of either range, with its errors.
  static absl::StatusOr<GroupSums> Decode(std::string_view bytes);
  std::string Encode() const;
  // The bytes in memory of a group of elements of `dtype`; the encoded ones are no more.
  static int64_t BytesPerGroup(DType dtype);

  size_t size() const;
  bool is_wide() const { return std::holds_alternative<Wide>(groups_); }
  int64_t size_bytes() const;
  ExactTotals Totals(size_t group) const;
  // The nearest moments of each group, about its mean.
  Moments NearestMoments() const;

  // Adds the elements of each group of `other` to the group of the same index. A narrow side becomes wide where the
  // other one is: all elements of f32, f16 and bf16 are f64. INVALID_ARGUMENT, naming a count, if a group would have
  // more than kMaxSummed elements; some groups may have been merged then. REQUIRES: as many groups.
  absl::Status Merge(const GroupSums& other);
  // Adds the groups of `other` behind these. Widens as Merge does.
  void Append(const GroupSums& other);
  // The groups at these places, in this order. REQUIRES: each place is below size().
  GroupSums InOrder(const std::vector<size_t>& places) const;

  // The sums by group. REQUIRES: is_wide() for Wide, else not.
  Narrow& narrow() { return std::get<Narrow>(groups_); }
  Wide& wide() { return std::get<Wide>(groups_); }

  // Calls visit(word) for words that are equal where the sums are.
  template <typename Visit>
  void ForEachWord(Visit visit) const {
    const auto visit_groups = [&visit](const auto& groups) {
      for (const auto& sums : groups) {
        const NonFinite& flags = sums.non_finite();
        visit(sums.count() << 3 | uint64_t{flags.nan} << 2 | uint64_t{flags.positive_infinity} << 1 |
              uint64_t{flags.negative_infinity});
        for (const uint64_t word : sums.sum().words()) visit(word);
        for (const uint64_t word : sums.squares().words()) visit(word);
      }
    };
    std::visit(visit_groups, groups_);
  }

  friend bool operator==(const GroupSums&, const GroupSums&) = default;

 private:
  // Makes the sums wide, with the same values.
  void Widen();

  std::variant<Narrow, Wide> groups_;
};

}  // namespace normd

#endif  // NORMD_KERNELS_EXACT_SUMS_GROUP_SUMS_H_
