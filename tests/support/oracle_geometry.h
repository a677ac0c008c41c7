// Which element of a tensor belongs where, by logical indices: its statistics group, its parameter, its position.
// Shared by the oracle and by the exact oracle (nearest.h). Includes nothing of kernels/. Borrows the spec and the
// input.
#ifndef NORMD_TESTS_SUPPORT_ORACLE_GEOMETRY_H_
#define NORMD_TESTS_SUPPORT_ORACLE_GEOMETRY_H_

#include <cstdint>
#include <vector>

#include "tests/support/oracle.h"

namespace normd::oracle {

// Whether the method subtracts the mean of the group.
bool HasMean(Method method);

class Geometry {
 public:
  using Index = std::vector<int64_t>;

  // REQUIRES: as oracle::Compute. Both outlive the geometry.
  Geometry(const Spec& spec, const Input& input);

  int64_t Elements() const;
  int64_t StatisticsGroups() const;
  // PowerNorm: the groups of channels of a position, each scaled by itself.
  int64_t ScalingGroups() const { return Elements() / GroupSize(); }
  // The channels of a group of GroupNorm or PowerNorm.
  int64_t GroupSize() const { return Channels() / spec_.num_groups; }

  Index IndexOf(int64_t element) const;
  int64_t GroupOf(const Index& index) const;
  int64_t ScalingGroupOf(const Index& index) const;
  int64_t ParameterOf(const Index& index) const;
  // Whether the statistics look at the element: neither masked nor behind the first k of pRMSNorm.
  bool Enters(const Index& index) const;

 private:
  int64_t Channels() const { return input_.shape[static_cast<size_t>(channel_axis_)]; }
  int64_t PositionOf(const Index& index) const;  // over all axes but the channel's

  const Spec& spec_;
  const Input& input_;
  int64_t channel_axis_ = 0;
  std::vector<int64_t> reduced_, kept_, positions_;
};

}  // namespace normd::oracle

#endif  // NORMD_TESTS_SUPPORT_ORACLE_GEOMETRY_H_
