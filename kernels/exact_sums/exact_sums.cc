#include "kernels/exact_sums/exact_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>

#include "kernels/base/errors.h"
#include "kernels/base/strings.h"

namespace normd {
namespace {

// The finite element m * 2^e with the sign of `negative`, or m = 0 and a kind of NonFinite. Nothing here is a branch:
// what the next element of a hostile tensor is cannot be predicted.
struct Parts {
  uint64_t m;
  int e;
  bool negative, is_nan, is_infinite;
};
template <typename Bits, int kFractionBits, typename Float>
Parts Split(Float x) {
  constexpr Bits kHidden = Bits{1} << kFractionBits;
  constexpr int kExponents = 8 * sizeof(Bits) - 1 - kFractionBits;
  constexpr int kSpecial = (1 << kExponents) - 1;
  const auto bits = std::bit_cast<Bits>(x);
  const int biased = static_cast<int>(bits >> kFractionBits) & kSpecial;
  const Bits fraction = bits & (kHidden - 1);
  const bool special = biased == kSpecial;
  const Bits m = special ? 0 : fraction | (biased == 0 ? 0 : kHidden);
  const int e = std::max(biased, 1) - (kSpecial / 2 + kFractionBits);
  return {m, special ? 0 : e, std::signbit(x), special && fraction != 0, special && fraction == 0};
}
Parts SplitElement(float x) { return Split<uint32_t, 23>(x); }
Parts SplitElement(double x) { return Split<uint64_t, 52>(x); }

void AddSquare(const NarrowRange& /*range*/, const Parts& parts,
               slow_road::ExactSum<NarrowRange::Squares::kLowestBit, 20>* squares) {
  squares->Add(1, parts.m * parts.m, 2 * parts.e);
}
void AddSquare(const WideRange& /*range*/, const Parts& parts,
               slow_road::ExactSum<WideRange::Squares::kLowestBit, 134>* squares) {
  const auto square = static_cast<unsigned __int128>(parts.m) * parts.m;
  squares->Add(1, static_cast<uint64_t>(square), 2 * parts.e);
  squares->Add(1, static_cast<uint64_t>(square >> 64), 2 * parts.e + 64);
}

}  // namespace

template <typename Range>
void ExactSums<Range>::AddAll(const typename Range::Element* x, int64_t n) {
  // Digits of 32 bits in words of 64 have no carries until the end.
  constexpr int kSumDigits = 2 * static_cast<int>(std::tuple_size_v<typename Range::Sum::Words>);
  constexpr int kSquareDigits = 2 * static_cast<int>(std::tuple_size_v<typename Range::Squares::Words>);
  slow_road::ExactSum<Range::Sum::kLowestBit, kSumDigits> sum;
  slow_road::ExactSum<Range::Squares::kLowestBit, kSquareDigits> squares;
  bool has_nan = false, has_positive = false, has_negative = false;
  for (int64_t i = 0; i < n; ++i) {
    typename Range::Element element;
    std::memcpy(&element, reinterpret_cast<const char*>(x) + i * int64_t{sizeof(element)}, sizeof(element));
    const Parts parts = SplitElement(element);
    has_nan |= parts.is_nan;
    has_positive |= parts.is_infinite && !parts.negative;
    has_negative |= parts.is_infinite && parts.negative;
    sum.Add(parts.negative ? -1 : 1, parts.m, parts.e);
    AddSquare(Range(), parts, &squares);
  }
  count_ += static_cast<uint64_t>(n);
  non_finite_.Include({has_nan, has_positive, has_negative});
  sum_.Add(sum.Value());
  squares_.Add(squares.Value());
}

template <typename Range>
absl::Status ExactSums<Range>::Merge(const ExactSums& other) {
  if (other.count_ > kMaxSummed - count_) {
    return OutOfRangeError("count", Concat(count_, " + ", other.count_), Concat("at most ", kMaxSummed, " together"),
                           KernelReason("EXACT_SUMS_OUT_OF_RANGE"));
  }
  count_ += other.count_;
  non_finite_.Include(other.non_finite_);
  sum_.Add(other.sum_);
  squares_.Add(other.squares_);
  return absl::OkStatus();
}

template class ExactSums<NarrowRange>;
template class ExactSums<WideRange>;

}  // namespace normd
