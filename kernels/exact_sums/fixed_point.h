// A sum of floating-point numbers as one integer that is wide enough for all of them: adding rounds nothing, so that
// neither the order nor the grouping of the terms is in the result.
// In the path: kernels/exact_sums/exact_sums.h is made of two of them. Plain values, thread-compatible.
#ifndef NORMD_KERNELS_EXACT_SUMS_FIXED_POINT_H_
#define NORMD_KERNELS_EXACT_SUMS_FIXED_POINT_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/slow_road/dyadic.h"

namespace normd {

// The integer of kWords words, in two's complement and the lowest word first, times 2^kLowest. Equal sums have equal
// words.
//
//   FixedPoint<-192, 6> sum;
//   sum.Add(1e30);
//   sum.Add(-1e30);
//   sum.Add(0x1p-149);
//   sum.Value();  // 2^-149
template <int kLowest, int kWords>
class FixedPoint {
  static_assert(kLowest % 64 == 0, "Dyadic has words at multiples of 64");

 public:
  static constexpr int kLowestBit = kLowest;
  using Words = std::array<uint64_t, kWords>;

  // Adds `value`. REQUIRES: it is finite and a multiple of 2^kLowest, its leading bit lies at least 65 bits below the
  // top of the words, and no sum leaves them.
  void Add(double value) {
    const auto bits = std::bit_cast<uint64_t>(value);
    const int biased = static_cast<int>(bits >> 52 & 0x7FF);
    uint64_t magnitude = (bits & kFraction) | (biased == 0 ? 0 : kFraction + 1);
    int bit = std::max(biased, 1) - 1075 - kLowest;
    if (bit < 0) {  // the low bits of the significand are 0
      magnitude = bit > -64 ? magnitude >> -bit : 0;
      bit = 0;
    }
    if (magnitude != 0) AddAt(bits >> 63 != 0, magnitude, bit);
  }
  // Adds the square of `value`, any finite f64. REQUIRES: as for Add, of the square; kLowest <= 2 * -1074.
  void AddSquare(double value) {
    const auto bits = std::bit_cast<uint64_t>(value);
    const int biased = static_cast<int>(bits >> 52 & 0x7FF);
    const uint64_t magnitude = (bits & kFraction) | (biased == 0 ? 0 : kFraction + 1);
    AddAt(false, static_cast<Wide>(magnitude) * magnitude, 2 * (std::max(biased, 1) - 1075) - kLowest);
  }
  // Adds a multiple of 2^kLowest. REQUIRES: no sum leaves the words.
  void Add(const slow_road::Dyadic& number) {
    Words parts;
    const auto size = static_cast<size_t>(number.size());
    for (size_t i = 0; i < size; ++i) parts[i] = number.word(static_cast<int>(i));
    const auto at = static_cast<int>((number.exponent() - kLowest) / 64);
    if (size > 0) AddParts(number.sign() < 0, {parts.data(), size}, at);
  }
  void Add(const FixedPoint& other) {
    uint64_t carry = 0;
    for (int i = 0; i < kWords; ++i) words_[i] = Sum(words_[i], other.words_[i], &carry);
  }

  bool IsNegative() const { return static_cast<int64_t>(words_[kWords - 1]) < 0; }
  slow_road::Dyadic Value() const {
    if (!IsNegative()) return {1, kLowest, words_.data(), kWords};
    Words negated;
    uint64_t carry = 1;
    for (int i = 0; i < kWords; ++i) negated[i] = Sum(~words_[i], 0, &carry);
    return {-1, kLowest, negated.data(), kWords};
  }

  const Words& words() const { return words_; }
  static FixedPoint FromWords(const Words& words) {
    FixedPoint sum;
    sum.words_ = words;
    return sum;
  }
  friend bool operator==(const FixedPoint&, const FixedPoint&) = default;

 private:
  using Wide = unsigned __int128;
  static constexpr uint64_t kFraction = (uint64_t{1} << 52) - 1;

  // x + y + carry; the carry of the result replaces the old one.
  static uint64_t Sum(uint64_t x, uint64_t y, uint64_t* carry) {
    const Wide sum = Wide{x} + y + *carry;
    *carry = static_cast<uint64_t>(sum >> 64);
    return static_cast<uint64_t>(sum);
  }

  // Adds or subtracts magnitude * 2^(kLowest + bit).
  void AddAt(bool negative, uint64_t magnitude, int bit) {
    const Wide shifted = static_cast<Wide>(magnitude) << (bit & 63);
    const uint64_t parts[2] = {static_cast<uint64_t>(shifted), static_cast<uint64_t>(shifted >> 64)};
    AddParts(negative, parts, bit >> 6);
  }
  void AddAt(bool negative, Wide magnitude, int bit) {
    const Wide low = magnitude << (bit & 63);
    const int up = bit & 63;
    const auto high = static_cast<uint64_t>(up == 0 ? 0 : magnitude >> 64 >> (64 - up));
    const uint64_t parts[3] = {static_cast<uint64_t>(low), static_cast<uint64_t>(low >> 64), high};
    AddParts(negative, parts, bit >> 6);
  }
  // The carry seldom goes beyond the parts, unless the sum changes its sign.
  void AddParts(bool negative, std::span<const uint64_t> parts, int at) {
    uint64_t* word = words_.data() + at;
    uint64_t* const end = words_.data() + kWords;
    if (negative) {
      uint64_t borrow = 0;
      for (const uint64_t part : parts) {
        const Wide difference = Wide{*word} - part - borrow;
        *word++ = static_cast<uint64_t>(difference);
        borrow = static_cast<uint64_t>(difference >> 64) & 1;
      }
      for (; borrow != 0 && word != end; ++word) borrow = (*word)-- == 0 ? 1 : 0;
    } else {
      uint64_t carry = 0;
      for (const uint64_t part : parts) {
        *word = Sum(*word, part, &carry);
        ++word;
      }
      for (; carry != 0 && word != end; ++word) carry = ++*word == 0 ? 1 : 0;
    }
  }

  Words words_ = {};
};

}  // namespace normd

#endif  // NORMD_KERNELS_EXACT_SUMS_FIXED_POINT_H_
