#include "tests/support/oracle_geometry.h"

#include <algorithm>
#include <cstddef>

namespace normd::oracle {
namespace {

bool HasChannels(Method method) {
  return method == Method::kBatch || method == Method::kInstance || method == Method::kGroup ||
         method == Method::kPower;
}

// Row-major number of `index` over the listed axes only.
int64_t NumberOver(const std::vector<int64_t>& axes, const std::vector<int64_t>& shape, const Geometry::Index& index) {
  int64_t number = 0;
  for (const int64_t axis : axes) number = number * shape[axis] + index[axis];
  return number;
}

}  // namespace

bool HasMean(Method method) {
  return method == Method::kBatch || method == Method::kLayer || method == Method::kInstance ||
         method == Method::kGroup;
}

Geometry::Geometry(const Spec& spec, const Input& input) : spec_(spec), input_(input) {
  const int64_t rank = static_cast<int64_t>(input.shape.size());
  channel_axis_ = spec.method == Method::kPower || spec.channels_last ? rank - 1 : 1;
  reduced_ = spec.axes;
  if (reduced_.empty() || spec.method == Method::kPRms || spec.method == Method::kScale) reduced_ = {rank - 1};
  for (int64_t& axis : reduced_) axis = axis < 0 ? axis + rank : axis;
  for (int64_t axis = 0; axis < rank; ++axis) {
    if (std::find(reduced_.begin(), reduced_.end(), axis) == reduced_.end()) kept_.push_back(axis);
    if (axis != channel_axis_) positions_.push_back(axis);
  }
}

int64_t Geometry::Elements() const {
  int64_t n = 1;
  for (const int64_t d : input_.shape) n *= d;
  return n;
}

int64_t Geometry::StatisticsGroups() const {
  const bool given = !input_.given_variance.empty();  // then the groups of InstanceNorm are the channels, too
  if (spec_.method == Method::kBatch || spec_.method == Method::kPower) return Channels();
  if (spec_.method == Method::kInstance) return given ? Channels() : input_.shape[0] * Channels();
  if (spec_.method == Method::kGroup) return input_.shape[0] * spec_.num_groups;
  int64_t n = 1;
  for (const int64_t axis : kept_) n *= input_.shape[axis];
  return n;
}

Geometry::Index Geometry::IndexOf(int64_t element) const {
  Index index(input_.shape.size());
  for (size_t i = input_.shape.size(); i-- > 0;) {
    index[i] = element % input_.shape[i];
    element /= input_.shape[i];
  }
  return index;
}

int64_t Geometry::GroupOf(const Index& index) const {
  if (!HasChannels(spec_.method)) return NumberOver(kept_, input_.shape, index);
  const int64_t c = index[channel_axis_];
  if (spec_.method == Method::kInstance && input_.given_variance.empty()) return index[0] * Channels() + c;
  if (spec_.method == Method::kGroup) return index[0] * spec_.num_groups + c / GroupSize();
  return c;
}

int64_t Geometry::ScalingGroupOf(const Index& index) const {
  return PositionOf(index) * spec_.num_groups + index[channel_axis_] / GroupSize();
}

int64_t Geometry::ParameterOf(const Index& index) const {
  if (spec_.method == Method::kScale) return 0;
  if (!HasChannels(spec_.method)) return NumberOver(reduced_, input_.shape, index);
  const int64_t c = index[channel_axis_];
  return spec_.method == Method::kGroup && spec_.affine_per_group ? c / GroupSize() : c;
}

bool Geometry::Enters(const Index& index) const {
  if (spec_.method == Method::kPRms && index.back() >= spec_.k) return false;
  return input_.mask.empty() || input_.mask[static_cast<size_t>(PositionOf(index))] != 0;
}

int64_t Geometry::PositionOf(const Index& index) const { return NumberOver(positions_, input_.shape, index); }

}  // namespace normd::oracle
