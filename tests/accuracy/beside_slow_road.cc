#include "tests/accuracy/beside_slow_road.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/kernels.h"
#include "tests/kernels/cases.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd::accuracy {
namespace {

// About normal: a sum of four, with all bits of an f64, in a sixth of the numbers that Random::Normal() draws.
double QuickNormal(Random* random) {
  const uint64_t bits = random->Bits();
  int64_t sum = 0;
  for (int part = 0; part < 4; ++part) sum += static_cast<int64_t>(bits >> (16 * part) & 0xFFFF);
  return (static_cast<double>(sum - 2 * 0xFFFF) + random->Uniform()) * 0x1.bb67ae8584caap-16;  // of variance 1
}

// Replaces the values of a tensor by mean + deviation * normal.
void Fill(Random* random, DType dtype, double mean, double deviation, std::string* bytes) {
  const int64_t n = static_cast<int64_t>(bytes->size()) / SizeOf(dtype);
  std::vector<double> values(static_cast<size_t>(n));
  for (double& value : values) value = mean + deviation * QuickNormal(random);
  cpu::ConvertFromF64(values.data(), n, dtype, bytes->data());
}

// y and h, and of methods that keep running statistics the moments, from which y then comes.
Outputs Run(Backend& backend, const Case& c, const NormPlan& plan, const CaseData& data) {
  CaseRun run(backend, c, plan, data, 0);
  Job job = run.MakeJob();
  job.mean = job.inverse_std = nullptr;
  if (!cases::HasRunningStatistics(c.spec)) job.moments = nullptr;
  const absl::Status status = RunJobs(backend, {job});
  if (status.ok()) return run.TakeOutputs();
  std::fprintf(stderr, "%s: %s\n", c.Name().c_str(), status.ToString().c_str());
  std::exit(1);
}

int64_t Different(const std::string& a, const std::string& b, int64_t size) {
  if (a == b) return 0;
  int64_t different = 0;
  for (size_t at = 0; at < a.size(); at += static_cast<size_t>(size)) {
    different += std::memcmp(a.data() + at, b.data() + at, static_cast<size_t>(size)) == 0 ? 0 : 1;
  }
  return different;
}

}  // namespace

std::vector<Form> FormsBesideSlowRoad() {
  const auto parameters = [](Case c, bool weight, bool bias) {
    if (weight) c.weight = DType::kF32;
    if (bias) c.bias = DType::kF32;
    return c;
  };
  const auto residual = [](Case c, ResidualRounding rounding) {
    c.residual = ResidualCase{.scale = 0.5, .rounding = rounding};
    return c;
  };
  const Case layer = cases::On(cases::Over({768}), {256, 768});
  const Case rms = cases::On(cases::Of(Method::kRmsNorm), {256, 768});
  const Case batch = cases::On(cases::Of(Method::kBatchNorm, Layout::kChannelsFirst), {16, 64, 196});
  const std::vector<Form> of_any_type = {
      {"LayerNorm w b", parameters(layer, true, true)},
      {"LayerNorm", layer},
      {"LayerNorm w b, rows of 5,000", parameters(cases::On(cases::Over({5000}), {64, 5000}), true, true)},
      {"LayerNorm w b, residual", parameters(residual(layer, ResidualRounding::kRoundFirst), true, true)},
      {"LayerNorm w b, residual kept wide", parameters(residual(layer, ResidualRounding::kKeepWide), true, true)},
      {"RMSNorm w", parameters(rms, true, false)},
      {"pRMSNorm w", parameters(cases::On(cases::PartialK(128), {256, 768}), true, false)},
      {"ScaleNorm w", parameters(cases::On(cases::Of(Method::kScaleNorm), {256, 768}), true, false)},
      {"LpNorm 1", cases::On(cases::Lp(1), {256, 768})},
      {"LpNorm 2", cases::On(cases::Lp(2), {256, 768})},
      {"LpNorm 3", cases::On(cases::LpOf(3), {256, 768})},
      {"BatchNorm training w b", parameters(batch, true, true)},
      {"BatchNorm training w b, channels last",
       parameters(cases::On(cases::Of(Method::kBatchNorm, Layout::kChannelsLast), {3136, 64}), true, true)},
      {"BatchNorm inference w b",
       parameters(cases::On(cases::Of(Method::kBatchNorm, Layout::kChannelsFirst), {16, 64, 196}, true), true, true)},
      {"InstanceNorm w b",
       parameters(cases::On(cases::Of(Method::kInstanceNorm, Layout::kChannelsFirst), {16, 64, 196}), true, true)},
      {"GroupNorm w b", parameters(cases::On(cases::Group(8, Layout::kChannelsFirst), {16, 64, 196}), true, true)},
      {"PowerNorm w b", parameters(cases::On(cases::Power(1), {3136, 64}), true, true)},
  };
  std::vector<Form> forms;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
    for (Form form : of_any_type) {
      form.c.dtype = dtype;
      if (form.c.residual.has_value()) form.c.residual->dtype = dtype;
      forms.push_back(std::move(form));
    }
  }
  return forms;
}

Differences BesideSlowRoad(const Case& c, int64_t elements, const BoundFactors& factors) {
  UndecidedCounts counts;
  const std::unique_ptr<Backend> kernels =
      MakeCpuBackend({.nearest = {.bound_factor = factors.of_kernels, .counts = &counts}});
  const std::unique_ptr<Backend> slow_road = MakeCpuBackend({.nearest = {.bound_factor = factors.of_slow_road}});
  const absl::StatusOr<NormPlan> plan = PlanOf(c);
  if (!plan.ok()) {
    std::fprintf(stderr, "%s: %s\n", c.Name().c_str(), plan.status().ToString().c_str());
    std::exit(1);
  }
  CaseData data = MakeData(c, *plan, 0);
  Differences differences;
  for (uint64_t seed = 1; differences.of < elements; ++seed) {
    Random random(seed << 32);
    Fill(&random, c.dtype, 0.1, 1, &data.x);
    if (c.weight.has_value()) Fill(&random, *c.weight, 1, 0.3, &data.weight);
    if (c.bias.has_value()) Fill(&random, *c.bias, 0, 0.3, &data.bias);
    if (c.residual.has_value()) Fill(&random, c.residual->dtype, 0, 1, &data.residual);
    const Outputs got = Run(*kernels, c, *plan, data);
    const Outputs expected = Run(*slow_road, c, *plan, data);
    const int64_t size = SizeOf(c.dtype);
    differences.of += static_cast<int64_t>(got.y.size() + got.h.size()) / size;
    differences.different += Different(got.y, expected.y, size) + Different(got.h, expected.h, size);
  }
  differences.undecided = counts.by_pairs + counts.by_integers;
  return differences;
}

}  // namespace normd::accuracy
