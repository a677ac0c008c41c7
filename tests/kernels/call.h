// What a spec makes of numbers that a test writes down: packs them, runs them on the CPU backend, unpacks y.
// REQUIRES: inside a GoogleTest test. Plain values.
#ifndef NORMD_TESTS_KERNELS_CALL_H_
#define NORMD_TESTS_KERNELS_CALL_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "tests/kernels/cases.h"
#include "tests/support/case.h"
#include "tests/support/constants.h"
#include "tests/support/run_case.h"
#include "tests/support/spec.h"

namespace normd::cases {

using Values = std::vector<double>;

inline std::string Pack(DType dtype, const Values& values) {
  std::string bytes(values.size() * static_cast<size_t>(SizeOf(dtype)), '\0');
  const oracle::Type type = OracleType(dtype);
  for (size_t i = 0; i < values.size(); ++i) {
    oracle::StoreBits(type, oracle::Encode(type, values[i]), bytes.data(), static_cast<int64_t>(i));
  }
  return bytes;
}

inline Values Unpack(DType dtype, const std::string& bytes) {
  Values values;
  for (const oracle::Wide v : OracleValues(dtype, bytes)) values.push_back(static_cast<double>(v));
  return values;
}

// A spec on given numbers; w and b of x's dtype.
struct Call {
  Case c;
  CaseData data;

  Call(const NormSpec& spec, DType dtype, std::vector<int64_t> shape, const Values& x, bool given = false) {
    c = With(On(spec, std::move(shape), given), dtype);
    data.x = Pack(dtype, x);
  }
  Call& In(Precision precision) {
    c.options.precision = precision;
    return *this;
  }
  Call& Weight(const Values& w) {
    c.weight = c.dtype;
    data.weight = Pack(c.dtype, w);
    return *this;
  }
  Call& Bias(const Values& b) {
    c.bias = c.dtype;
    data.bias = Pack(c.dtype, b);
    return *this;
  }
  Call& Given(const Values& mean, const Values& variance) {
    data.given_mean = mean;
    data.given_variance = variance;
    return *this;
  }
  Outputs Result() const {
    const std::unique_ptr<Backend> backend = MakeCpuBackend({});
    absl::StatusOr<Outputs> outputs = RunCase(*backend, c, data);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return outputs.ok() ? *std::move(outputs) : Outputs();
  }
  Values Y() const { return Unpack(c.dtype, Result().y); }
  // What the oracle makes of it.
  oracle::Result Want() const { return oracle::Compute(OracleSpec(c), OracleInput(c, data)); }
};

// One row.
inline Call Row(NormSpec spec, DType dtype, const Values& x) {
  if (spec.method() == Method::kLayerNorm) SetNormalizedShape(&spec, {static_cast<int64_t>(x.size())});
  return Call(spec, dtype, {1, static_cast<int64_t>(x.size())}, x);
}

inline NormSpec Spec(Method method, std::optional<double> eps = std::nullopt,
                     std::optional<EpsMode> mode = std::nullopt) {
  NormSpec spec = Of(method);
  spec.eps = eps;
  spec.eps_mode = mode;
  return spec;
}

}  // namespace normd::cases

#endif  // NORMD_TESTS_KERNELS_CALL_H_
