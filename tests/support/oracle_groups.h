// The statistics groups of a call in exact numbers: which element belongs where, the sums, the divisors; what the exact
// oracle (nearest.h, nearest_state.h) decides results with. Includes nothing of kernels/. Borrows the spec and the
// input.
#ifndef NORMD_TESTS_SUPPORT_ORACLE_GROUPS_H_
#define NORMD_TESTS_SUPPORT_ORACLE_GROUPS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/support/oracle.h"
#include "tests/support/oracle_dyadic.h"
#include "tests/support/oracle_geometry.h"
#include "tests/support/oracle_real.h"

namespace normd::oracle {

// (scale * x - offset) / divisor is the normalised x: scale and divisor carry the count n, so that nothing is divided.
struct ExactGroup {
  int64_t count = 0;
  bool is_finite = true;  // else IEEE arithmetic says what its elements are
  Dyadic sum, powers;     // of x, of |x|^order; order infinity: the largest |x|. PowerNorm: of the terms of v
  Dyadic scale{1}, offset;
  Divisor divisor;
};

class ExactGroups {
 public:
  // REQUIRES: as Nearest; both outlive the groups.
  ExactGroups(const Spec& spec, const Input& input);

  size_t elements() const { return values_.size(); }
  size_t size() const { return groups_.size(); }
  const ExactGroup& operator[](size_t g) const { return groups_[g]; }
  // h, rounded; empty without residual.
  const std::vector<uint64_t>& h() const { return h_; }

  // Of element i: its parameter, and what is normalised. A sum that is kept wide is in 113 bits here, for its class and
  // its sign.
  size_t ParameterOf(size_t i) const { return places_[i].parameter; }
  Wide ValueOf(size_t i) const { return values_[i]; }
  // Whether the statistics that normalise element i are finite.
  bool HasFiniteStatistics(size_t i) const;
  // Whether the statistics of its group are finite and their divisor is exactly 0. PowerNorm: that of v.
  bool HasZeroDivisor(size_t i) const {
    const ExactGroup& group = groups_[places_[i].group];
    return group.is_finite && group.divisor.IsZero();
  }
  // Element i before w and b. `own` is room for a divisor of its own. REQUIRES: finite statistics and a finite value.
  Real Normalised(size_t i, Divisor& own) const;

  bool IsGiven() const { return !input_.given_variance.empty(); }
  // The power whose sums are taken, or 2; infinity for the largest |x|. The root is 1 there.
  double order() const { return order_; }
  int64_t root() const;
  // n^2 times the variance of a group of a method that subtracts the mean.
  Dyadic ScaledVarianceOf(size_t g) const;

 private:
  struct Place {
    size_t group = 0, parameter = 0, scaling = 0;
    bool enters = true;
  };
  // The channels of one position that PowerNorm scales together: their squares, and eps for each.
  struct ScalingGroup {
    bool is_finite = true;
    Wide special = 0;  // the sum of the squares of Inf and NaN
    Dyadic squares;
  };

  bool IsPower() const { return spec_.method == Method::kPower; }
  Dyadic Held(size_t i) const;
  void TakePlaces();
  void TakeResidual();
  void Sum();
  void SumSquaresToScale();
  void AddPowers(size_t i, ExactGroup& group) const;
  void AddTerm(size_t i, ExactGroup& group) const;
  void Finish(size_t g);
  void FinishPower(size_t g);
  void AddEps(Divisor& divisor, const Dyadic& scale) const;

  const Spec& spec_;
  const Input& input_;
  const Geometry geometry_;
  const Dyadic eps_;
  const double order_;
  std::vector<Place> places_;
  std::vector<Wide> values_;
  std::vector<uint64_t> h_;
  std::vector<ExactGroup> groups_;
  std::vector<ScalingGroup> scaling_;
};

}  // namespace normd::oracle

#endif  // NORMD_TESTS_SUPPORT_ORACLE_GROUPS_H_
