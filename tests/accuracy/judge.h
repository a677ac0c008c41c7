// What the accuracy suite has in common: the pairs of dtype and precision that are promised something, and how a call
// is judged.
#ifndef NORMD_TESTS_ACCURACY_JUDGE_H_
#define NORMD_TESTS_ACCURACY_JUDGE_H_

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "kernels/cpu/backend.h"
#include "tests/kernels/agreement.h"
#include "tests/kernels/call.h"
#include "tests/kernels/cases.h"

namespace normd::accuracy {

using cases::Call;
using cases::Values;

inline constexpr Layout kFirst = Layout::kChannelsFirst, kLast = Layout::kChannelsLast;

struct Arithmetic {
  DType dtype;
  Precision precision;
};

inline constexpr Arithmetic kArithmetics[] = {
    {DType::kF32, Precision::kExact}, {DType::kF32, Precision::kFast},   {DType::kF16, Precision::kExact},
    {DType::kF16, Precision::kFast},  {DType::kBF16, Precision::kExact}, {DType::kBF16, Precision::kFast},
    {DType::kF64, Precision::kExact},
};

inline std::string Name(const Arithmetic& a) {
  return Concat(normd::Name(a.dtype), a.precision == Precision::kFast ? "_fast" : "_exact");
}

// Runs the call and compares all it returns with `want`.
inline std::string Judge(const Call& call, const oracle::Result& want) {
  const absl::StatusOr<NormPlan> plan = PlanOf(call.c);
  if (!plan.ok()) return std::string(plan.status().message());
  return cases::Disagreement(call.c, *plan, call.Result(), want);
}
inline std::string Judge(const Call& call) { return Judge(call, call.Want()); }

// A test for each of kArithmetics.
class ArithmeticTest : public testing::TestWithParam<Arithmetic> {
 protected:
  static DType dtype() { return GetParam().dtype; }
  static Precision precision() { return GetParam().precision; }
  static bool fast() { return precision() == Precision::kFast; }

  static Call On(const NormSpec& spec, std::vector<int64_t> shape, const Values& x, bool given = false) {
    return Call(spec, dtype(), std::move(shape), x, given).In(precision());
  }
  static Call Row(const NormSpec& spec, const Values& x) { return cases::Row(spec, dtype(), x).In(precision()); }
  // x as the dtype holds it.
  static Values Held(const Values& x) { return cases::Unpack(dtype(), cases::Pack(dtype(), x)); }
};

inline std::string ArithmeticName(const testing::TestParamInfo<Arithmetic>& info) { return Name(info.param); }

}  // namespace normd::accuracy

#endif  // NORMD_TESTS_ACCURACY_JUDGE_H_
