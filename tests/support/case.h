// One test case of the kernels as data: spec, shape, dtype, how the tensors are made, options. tests/kernels/cases.h
// holds the list; accuracy, invariance, golden hashes and benches all read it. Plain values.
#ifndef NORMD_TESTS_SUPPORT_CASE_H_
#define NORMD_TESTS_SUPPORT_CASE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/plan.h"
#include "kernels/tensor.h"
#include "tests/support/compare.h"
#include "tests/support/oracle.h"

namespace normd {

// How x is made. N is about normal(0, 1); numbers depend on the dtype's range.
enum class Data : uint8_t {
  kNormal,        // 3 N + 1
  kConstant,      // 12345.678 throughout
  kFarMean,       // mean / standard deviation 1e6 (f16 512, bf16 64)
  kVeryFar,       // f64 only: 1e12
  kOutliers,      // kFarMean and, every 997 elements from the first, one 1000 deviations away
  kHuge,          // N * 1e30; f16 up to 65000; f64 N * 1e160
  kTiny,          // subnormal: N * 1e-39; f16 N * 2e-6; f64 N * 1e-160, whose squares are 0
  kSubnormal,     // f64 N * 1e-310, the others as kTiny
  kMixed,         // exponents spread over the range
  kSteps,         // integers -2 to 2: elements at the mean exactly
  kZeros,         // +0 and -0 in turn
  kSomeZeros,     // kNormal with every third element -0
  kNan,           // kNormal with one NaN
  kInf,           // kNormal with one Inf
  kMinusInf,      // kNormal with one -Inf
  kHugeConstant,  // f64 only: 1e150 throughout, whose square is no f64 times 2^200
  kFarOutside,    // f64 only: kTiny, but N * 1e140 where the statistic does not look: masked, or behind the first k
};

enum class Mask : uint8_t { kNone, kSome, kAll, kNanUnder };

struct ResidualCase {
  DType dtype = DType::kF32;
  double scale = 1;
  ResidualRounding rounding = ResidualRounding::kRoundFirst;
};

struct Case {
  NormSpec spec;
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;
  Data data = Data::kNormal;
  PlanOptions options;
  std::optional<DType> weight, bias;  // absent: no such parameter
  std::optional<ResidualCase> residual;
  Mask mask = Mask::kNone;

  // "layer_norm/f32/3x769/w:f32/b:f32/far_mean": all that distinguishes the case.
  std::string Name() const;
};

// The tensors of a case, as bytes.
struct CaseData {
  std::string x, weight, bias, residual;
  std::vector<uint8_t> mask;
  std::vector<double> given_mean, given_variance;
};

// A function of the case's name and of `salt` alone, on every machine.
CaseData MakeData(const Case& c, const NormPlan& plan, uint64_t salt);

// `count` values of the given kind, packed.
std::string MakeValues(Data data, DType dtype, int64_t count, uint64_t seed);

// The same for the oracle, which has its own types.
oracle::Type OracleType(DType dtype);
oracle::Spec OracleSpec(const Case& c);
oracle::Input OracleInput(const Case& c, const CaseData& data);
// What `plan` promises of y; for MEAN and INV_STD with its StatisticsDType.
oracle::Bound BoundOf(const NormPlan& plan, DType dtype);
std::vector<oracle::Wide> OracleValues(DType dtype, const std::string& bytes);

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_CASE_H_
