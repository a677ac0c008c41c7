// The limits of y: the last step of a job whose plan has a clip.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/run.h"

namespace normd::cpu {
namespace {

// Replaces each of n elements, at any alignment, by what `limit` makes of it.
template <typename Storage, typename Limit>
void Replace(void* y, int64_t n, Limit limit) {
  auto* const bytes = static_cast<char*>(y);
  for (int64_t i = 0; i < n; ++i) {
    Storage value = 0;
    std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof(value)), sizeof(value));
    value = limit(value);
    std::memcpy(bytes + i * static_cast<int64_t>(sizeof(value)), &value, sizeof(value));
  }
}

// NaN is in no order, and so it stays.
template <typename Real>
void ClipReals(void* y, int64_t n, Real bound) {
  Replace<Real>(y, n, [bound](Real value) { return value > bound ? bound : value < -bound ? -bound : value; });
}

// Of f16 and bf16, whose magnitudes are in the order of their bits; those above `infinity` are NaN.
void ClipHalves(void* y, int64_t n, uint16_t bound, uint16_t infinity) {
  constexpr uint16_t kSign = 0x8000;
  Replace<uint16_t>(y, n, [bound, infinity](uint16_t value) {
    const auto magnitude = static_cast<uint16_t>(value & ~kSign);
    const bool is_beyond = magnitude > bound && magnitude <= infinity;
    return is_beyond ? static_cast<uint16_t>((value & kSign) | bound) : value;
  });
}

template <typename Storage>
Storage Rounded(double value, DType dtype) {
  Storage stored = 0;
  ConvertFromF64(&value, 1, dtype, &stored);
  return stored;
}

void ClipElements(DType dtype, double clip, void* y, int64_t n) {
  switch (dtype) {
    case DType::kF32:
      return ClipReals(y, n, Rounded<float>(clip, dtype));
    case DType::kF64:
      return ClipReals(y, n, clip);
    case DType::kF16:
    case DType::kBF16:
      return ClipHalves(y, n, Rounded<uint16_t>(clip, dtype), Rounded<uint16_t>(HUGE_VAL, dtype));
  }
}

}  // namespace

void ClipY(const Run& run) {
  const int64_t size = SizeOf(run.plan.dtype);
  run.pool.ParallelFor(run.plan.elements, run.Grain(1), [&](int64_t begin, int64_t end) {
    ClipElements(run.plan.dtype, *run.plan.clip, static_cast<char*>(run.job.y) + begin * size, end - begin);
  });
}

}  // namespace normd::cpu
