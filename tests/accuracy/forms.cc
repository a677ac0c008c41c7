#include "tests/accuracy/forms.h"

#include <cmath>
#include <utility>

#include "tests/kernels/cases.h"

namespace normd::accuracy {

using cases::Call;
using cases::Values;

Call F32Call(const NormSpec& spec, std::vector<int64_t> shape, const Values& x) {
  return Call(spec, DType::kF32, std::move(shape), x);
}

Values Normals(int64_t n, double scale, double mean, Random& random) {
  Values x(static_cast<size_t>(n));
  for (double& v : x) v = static_cast<float>(mean + scale * random.Normal());
  return x;
}

std::vector<Call> CallsWithMean(double deviations) {
  constexpr Layout kFirst = Layout::kChannelsFirst, kLast = Layout::kChannelsLast;
  Random random(5 + static_cast<uint64_t>(deviations * 100));
  std::vector<Call> calls;
  for (const int64_t n : {3, 64, 769, 1024, 1025, 4097}) {
    const Values x = Normals(n, 1.7, 1.7 * deviations, random), w = Normals(n, 1, 0, random);
    const Values b = Normals(n, 1e-3, 0, random);
    const NormSpec over = cases::Over({n});
    Values columns;
    for (const double v : x) columns.insert(columns.end(), {v, -v});
    calls.push_back(F32Call(over, {1, n}, x));
    calls.push_back(F32Call(over, {1, n}, x).Weight(w));
    calls.push_back(F32Call(over, {1, n}, x).Weight(w).Bias(b));
    calls.push_back(F32Call(cases::Group(1, kFirst), {1, 1, n}, x).Weight({w[0]}).Bias({b[0]}));
    calls.push_back(
        F32Call(cases::Of(Method::kBatchNorm, kLast), {n, 2}, columns).Weight({w[0], w[1]}).Bias({b[0], b[1]}));
  }
  return calls;
}

std::vector<Call> CallsWithFactor(int exponent) {
  Random random(7 + static_cast<uint64_t>(exponent + 200));
  std::vector<Call> calls;
  for (const int of_weight : {-63, -60, -59, 0, 59, 60, 63}) {
    Values x = Normals(67, 1, 0, random), w = Normals(67, 1, 0, random);
    for (double& v : x) v = static_cast<float>(std::ldexp(v, exponent));
    for (double& v : w) v = static_cast<float>(std::ldexp(v, of_weight));
    for (const Method method : {Method::kRmsNorm, Method::kScaleNorm}) {
      calls.push_back(F32Call(cases::Spec(method, 0), {1, 67}, x));
      calls.back().Weight(method == Method::kScaleNorm ? Values{w[0]} : w);
    }
  }
  return calls;
}

}  // namespace normd::accuracy
