// The conversions that kernels/parameters.h declares. They are here because they use the CPU kernels' element types.
#include "kernels/parameters.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/pairs.h"

namespace normd {
namespace {

// The values in the order that `order` gives. REQUIRES: `order` has as many elements as `values`, at least one.
std::vector<double> Reorder(const std::vector<double>& values, const ParameterOrder& order) {
  const size_t inner = order.extents.size() - 1;
  std::vector<double> ordered;
  ordered.reserve(values.size());
  Shape index(inner, 0);  // indices of the outer axes
  int64_t first = 0;
  while (ordered.size() < values.size()) {
    for (int64_t i = 0; i < order.extents[inner]; ++i) {
      ordered.push_back(values[static_cast<size_t>(first + i * order.strides[inner])]);
    }
    for (size_t axis = inner; axis-- > 0;) {
      first += order.strides[axis];
      if (++index[axis] < order.extents[axis]) break;
      first -= index[axis] * order.strides[axis];
      index[axis] = 0;
    }
  }
  return ordered;
}

std::vector<double> Widen(const TensorView& view, const ParameterOrder& order) {
  std::vector<double> values = WidenToF64(view);
  return order.empty() || values.empty() ? values : Reorder(values, order);
}

// Adds `offset` to the weights, and keeps what does not fit.
void AddOffset(double offset, HostParameters* host) {
  if (offset == 0) return;
  for (size_t i = 0; i < host->weight.size(); ++i) {
    const DoublePair sum = TwoSum(host->weight[i], offset);
    host->weight[i] = sum.hi;
    if (sum.lo == 0 || !std::isfinite(sum.hi)) continue;
    host->weight_rest.resize(host->weight.size());
    host->weight_rest[i] = sum.lo;
  }
}

// Of the values that are finite: those that are not give no element that could be rounded to the wrong side.
double LargestMagnitude(const std::vector<double>& values, double absent) {
  if (values.empty()) return absent;
  const Magnitude all = cpu::MeasureRow(values.data(), nullptr, static_cast<int64_t>(values.size()));
  if (all.finite()) return all.largest();
  double largest = 0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

}  // namespace

std::vector<double> WidenToF64(const TensorView& view) {
  std::vector<double> values(static_cast<size_t>(view.present() ? ElementCount(view.shape) : 0));
  cpu::ConvertToF64({view.dtype, view.data, nullptr}, static_cast<int64_t>(values.size()), values.data());
  return values;
}

HostParameters ConvertParameters(const ParameterViews& parameters, double weight_offset) {
  HostParameters host;
  host.weight = Widen(parameters.weight, parameters.order);
  host.bias = Widen(parameters.bias, parameters.order);
  AddOffset(weight_offset, &host);
  host.weight32.assign(host.weight.begin(), host.weight.end());
  host.bias32.assign(host.bias.begin(), host.bias.end());
  const auto weight_fits = [](double value) {
    return value == 0 || (std::abs(value) >= 0x1p-60 && std::abs(value) <= 0x1p+60);
  };
  const auto bias_fits = [](double value) { return value == 0 || std::isnormal(static_cast<float>(value)); };
  host.fit_f32 = std::all_of(host.weight.begin(), host.weight.end(), weight_fits) &&
                 std::all_of(host.bias.begin(), host.bias.end(), bias_fits);
  host.equal_f32 = std::equal(host.weight.begin(), host.weight.end(), host.weight32.begin()) &&
                   std::equal(host.bias.begin(), host.bias.end(), host.bias32.begin());
  host.largest_weight = LargestMagnitude(host.weight, 1);
  host.largest_bias = LargestMagnitude(host.bias, 0);
  return host;
}

}  // namespace normd
