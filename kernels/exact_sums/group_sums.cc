#include "kernels/exact_sums/group_sums.h"

#include <type_traits>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "kernels/exact_sums/bytes.h"
#include "kernels/exact_sums/nearest_moments.h"

namespace normd {
namespace {

WideExactSums Widened(const NarrowExactSums& narrow) {
  WideRange::Sum sum;
  WideRange::Squares squares;
  sum.Add(narrow.sum().Value());
  squares.Add(narrow.squares().Value());
  return WideExactSums::FromParts(narrow.count(), narrow.non_finite(), sum, squares);
}

template <typename Sums>
absl::Status MergeEach(const std::vector<Sums>& from, std::vector<Sums>* to) {
  for (size_t i = 0; i < from.size(); ++i) {
    const absl::Status status = (*to)[i].Merge(from[i]);
    if (!status.ok()) return PrefixField(status, Concat("channels[", i, "]"));
  }
  return absl::OkStatus();
}

}  // namespace

GroupSums::GroupSums(DType dtype, size_t groups) {
  if (dtype == DType::kF64) {
    groups_.emplace<Wide>(groups);
  } else {
    groups_.emplace<Narrow>(groups);
  }
}

absl::StatusOr<GroupSums> GroupSums::Decode(std::string_view bytes) {
  if (IsWideExactSums(bytes)) {
    NORMD_ASSIGN_OR_RETURN(Wide wide, DecodeExactSums<WideRange>(bytes));
    return GroupSums(std::move(wide));
  }
  NORMD_ASSIGN_OR_RETURN(Narrow narrow, DecodeExactSums<NarrowRange>(bytes));
  return GroupSums(std::move(narrow));
}

std::string GroupSums::Encode() const {
  if (is_wide()) return EncodeExactSums<WideRange>(std::get<Wide>(groups_));
  return EncodeExactSums<NarrowRange>(std::get<Narrow>(groups_));
}

int64_t GroupSums::BytesPerGroup(DType dtype) {
  return static_cast<int64_t>(dtype == DType::kF64 ? sizeof(WideExactSums) : sizeof(NarrowExactSums));
}

size_t GroupSums::size() const {
  return std::visit([](const auto& groups) { return groups.size(); }, groups_);
}

int64_t GroupSums::size_bytes() const {
  return static_cast<int64_t>(size()) * BytesPerGroup(is_wide() ? DType::kF64 : DType::kF32);
}

ExactTotals GroupSums::Totals(size_t group) const {
  return std::visit([group](const auto& groups) { return groups[group].Totals(); }, groups_);
}

Moments GroupSums::NearestMoments() const {
  Moments moments;
  moments.reserve(size());
  std::visit(
      [&](const auto& groups) {
        for (const auto& sums : groups) moments.push_back(NearestMoment(sums));
      },
      groups_);
  return moments;
}

absl::Status GroupSums::Merge(const GroupSums& other) {
  if (other.is_wide() && !is_wide()) Widen();
  if (!is_wide()) return MergeEach(std::get<Narrow>(other.groups_), &narrow());
  if (other.is_wide()) return MergeEach(std::get<Wide>(other.groups_), &wide());
  GroupSums widened = other;
  widened.Widen();
  return MergeEach(widened.wide(), &wide());
}

void GroupSums::Append(const GroupSums& other) {
  if (other.is_wide() && !is_wide()) Widen();
  if (!is_wide()) {
    const Narrow& more = std::get<Narrow>(other.groups_);
    narrow().insert(narrow().end(), more.begin(), more.end());
    return;
  }
  GroupSums widened = other;
  if (!widened.is_wide()) widened.Widen();
  wide().insert(wide().end(), widened.wide().begin(), widened.wide().end());
}

GroupSums GroupSums::InOrder(const std::vector<size_t>& places) const {
  return std::visit(
      [&places](const auto& groups) {
        auto ordered = std::decay_t<decltype(groups)>();
        ordered.reserve(places.size());
        for (const size_t place : places) ordered.push_back(groups[place]);
        return GroupSums(std::move(ordered));
      },
      groups_);
}

void GroupSums::Widen() {
  Wide wide;
  wide.reserve(size());
  for (const NarrowExactSums& sums : narrow()) wide.push_back(Widened(sums));
  groups_ = std::move(wide);
}

}  // namespace normd
