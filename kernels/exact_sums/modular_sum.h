// A sum of products of which only the sign is asked, and which is known to be small beside its terms: it is taken
// modulo 2^512, so that its time does not grow with the terms.
// In the path: kernels/exact_sums/rounded_step.cc, where pairs of f64 leave two numbers in question. A plain value.
#ifndef NORMD_KERNELS_EXACT_SUMS_MODULAR_SUM_H_
#define NORMD_KERNELS_EXACT_SUMS_MODULAR_SUM_H_

#include <bit>
#include <cstdint>

#include "kernels/slow_road/dyadic.h"

namespace normd {

//   ModularSum sum(std::min(ModularSum::LowestWord(a, 3), ModularSum::LowestWord(b, 0.5)));
//   sum.Add(1, a, 3);
//   sum.Add(-1, b, 0.5);
//   sum.Sign();  // of 3 a - b / 2
class ModularSum {
 public:
  static constexpr int kBits = 512;

  // In units of 2^(64 lowest_word).
  explicit ModularSum(int64_t lowest_word) : lowest_word_(lowest_word) {}

  // The product is a multiple of 2^(64 times this). REQUIRES: `value` is finite.
  static int64_t LowestWord(const slow_road::Dyadic& factor, double value) {
    return factor.exponent() / 64 + Parts(value).word;
  }

  // Adds sign * factor * |value| with the sign of `value`. REQUIRES: factor is not negative, and LowestWord of both is
  // at least that of the sum.
  void Add(int sign, const slow_road::Dyadic& factor, double value) {
    if (value == 0 || factor.sign() == 0) return;
    const Parts parts(value);
    uint64_t* const words = (sign < 0) == parts.is_negative ? above_ : below_;
    const int64_t at = factor.exponent() / 64 + parts.word - lowest_word_;
    AddRow(factor, parts.low, at, words);
    if (parts.high != 0) AddRow(factor, parts.high, at + 1, words);
  }

  // -1, 0 or 1. REQUIRES: the sum is below 2^(kBits - 1) units.
  int Sign() const {
    uint64_t borrow = 0, any = 0, word = 0;
    for (int i = 0; i < kWords; ++i) {
      const Wide difference = Wide{above_[i]} - below_[i] - borrow;
      word = static_cast<uint64_t>(difference);
      borrow = static_cast<uint64_t>(difference >> 64) & 1;
      any |= word;
    }
    if (any == 0) return 0;
    return static_cast<int64_t>(word) < 0 ? -1 : 1;
  }

 private:
  using Wide = unsigned __int128;
  static constexpr int kWords = kBits / 64;

  // A number as (high * 2^64 + low) * 2^(64 word).
  struct Parts {
    explicit Parts(double value) {
      const auto bits = std::bit_cast<uint64_t>(value);
      const auto biased = static_cast<int64_t>(bits >> 52 & 0x7FF);
      const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
      const uint64_t magnitude = biased == 0 ? fraction : fraction | uint64_t{1} << 52;
      const int64_t exponent = (biased == 0 ? 1 : biased) - 1075;
      const auto up = static_cast<int>(exponent & 63);
      is_negative = bits >> 63 != 0;
      word = exponent >> 6;
      low = magnitude << up;
      high = up == 0 ? 0 : magnitude >> (64 - up);
    }
    bool is_negative;
    int64_t word;
    uint64_t low, high;
  };

  // Adds factor * digit from word `at` on; what goes beyond the last word is dropped.
  static void AddRow(const slow_road::Dyadic& factor, uint64_t digit, int64_t at, uint64_t* words) {
    uint64_t carry = 0;
    for (int i = 0; i < factor.size() && at < kWords; ++i, ++at) {
      const Wide product = Wide{factor.word(i)} * digit + words[at] + carry;
      words[at] = static_cast<uint64_t>(product);
      carry = static_cast<uint64_t>(product >> 64);
    }
    for (; carry != 0 && at < kWords; ++at) {
      words[at] += carry;
      carry = words[at] < carry ? 1 : 0;
    }
  }

  const int64_t lowest_word_;
  uint64_t above_[kWords] = {}, below_[kWords] = {};
};

}  // namespace normd

#endif  // NORMD_KERNELS_EXACT_SUMS_MODULAR_SUM_H_
