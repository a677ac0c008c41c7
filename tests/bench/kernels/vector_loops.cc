#include "tests/bench/kernels/vector_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/kernels/vector_loops.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace normd::bench::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <typename StoreFunction>
HWY_INLINE void Copy(const std::byte* HWY_RESTRICT x, int64_t bytes, std::byte* HWY_RESTRICT y, StoreFunction store) {
  const hn::ScalableTag<uint8_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto* const from = reinterpret_cast<const uint8_t*>(x);
  auto* const to = reinterpret_cast<uint8_t*>(y);
  int64_t i = 0;
  for (; i + 4 * lanes <= bytes; i += 4 * lanes) {
    const auto a = hn::LoadU(d, from + i);
    const auto b = hn::LoadU(d, from + i + lanes);
    const auto c = hn::LoadU(d, from + i + 2 * lanes);
    const auto e = hn::LoadU(d, from + i + 3 * lanes);
    store(a, d, to + i);
    store(b, d, to + i + lanes);
    store(c, d, to + i + 2 * lanes);
    store(e, d, to + i + 3 * lanes);
  }
  std::memcpy(to + i, from + i, static_cast<size_t>(bytes - i));
}

void CopyVectors(const std::byte* HWY_RESTRICT x, int64_t bytes, std::byte* HWY_RESTRICT y) {
  Copy(x, bytes, y, [](auto v, auto d, uint8_t* to) { hn::Store(v, d, to); });
}

void CopyVectorsNonTemporal(const std::byte* HWY_RESTRICT x, int64_t bytes, std::byte* HWY_RESTRICT y) {
  Copy(x, bytes, y, [](auto v, auto d, uint8_t* to) { hn::Stream(v, d, to); });
  hwy::FlushStream();
}

template <typename Function>
HWY_INLINE void Map(const float* HWY_RESTRICT x, int64_t count, float* HWY_RESTRICT y, Function function) {
  const hn::ScalableTag<float> d;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(function(d, hn::LoadU(d, x + i)), d, y + i);
  }
}

void Compute(Elementwise what, const float* x, int64_t count, float* y) {
  switch (what) {
    case Elementwise::kDivide:
      return Map(x, count, y, [](auto d, auto v) { return hn::Div(v, hn::Set(d, 3.0F)); });
    case Elementwise::kReciprocalRoot:
      return Map(x, count, y, [](auto d, auto v) { return hn::Div(hn::Set(d, 1.0F), hn::Sqrt(v)); });
    case Elementwise::kEstimatedRoot:
      return Map(x, count, y, [](auto d, auto v) {
        const auto estimate = hn::ApproximateReciprocalSqrt(v);
        const auto half = hn::Mul(hn::Mul(v, hn::Set(d, 0.5F)), estimate);
        return hn::Mul(estimate, hn::NegMulAdd(half, estimate, hn::Set(d, 1.5F)));
      });
  }
}

}  // namespace normd::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::bench {

HWY_EXPORT(CopyVectors);
HWY_EXPORT(CopyVectorsNonTemporal);
HWY_EXPORT(Compute);

void CopyVectors(const std::byte* x, int64_t bytes, std::byte* y) { HWY_DYNAMIC_DISPATCH(CopyVectors)(x, bytes, y); }

void CopyVectorsNonTemporal(const std::byte* x, int64_t bytes, std::byte* y) {
  HWY_DYNAMIC_DISPATCH(CopyVectorsNonTemporal)(x, bytes, y);
}

void Compute(Elementwise what, const float* x, int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(Compute)(what, x, count, y);
}

}  // namespace normd::bench
#endif
