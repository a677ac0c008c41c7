// Exact arithmetic on dyadic numbers, integers times a power of two: what the last rung of the slow road decides with.
// Numbers have a fixed size and live on the stack, so that no input makes a call allocate.
// In the path: kernels/slow_road/group.cc, for elements that f64 and pairs of f64 leave undecided. Plain values, safe
// from any thread.
#ifndef NORMD_KERNELS_SLOW_ROAD_DYADIC_H_
#define NORMD_KERNELS_SLOW_ROAD_DYADIC_H_

#include <algorithm>
#include <cstdint>

#include "absl/container/inlined_vector.h"

namespace normd::slow_road {

// sign * magnitude * 2^exponent. Sums, products and comparisons are exact.
//
//   Dyadic third_power = Dyadic(x) * Dyadic(x) * Dyadic(x);
//   if (Compare(third_power, Dyadic(limit)) > 0) ...
//
// The largest number that a decision needs is a product of a centred element with its weight, squared. An f64 spans
// 2,099 bits. An element x + scale * r spans 4,229 bits, the sum of 2^62 of them 4,291, and the product with a weight
// 6,400; the square of that is 12,800 bits, and a factor of 2^62 for the count comes on top. REQUIRES: results stay
// within kMaxWords words.
class Dyadic {
 public:
  static constexpr int kMaxWords = 224;  // 14,336 bits

  Dyadic() = default;  // 0
  // REQUIRES: `value` is finite.
  explicit Dyadic(double value);
  // sign * magnitude * 2^exponent.
  Dyadic(int sign, uint64_t magnitude, int64_t exponent) { Set(sign, magnitude, exponent); }
  // sign * the `size` words of a magnitude, the lowest first, * 2^exponent. REQUIRES: `exponent` is a multiple of 64.
  Dyadic(int sign, int64_t exponent, const uint64_t* words, int size);
  static Dyadic Integer(uint64_t value) { return {1, value, 0}; }
  // Copies the words that are used, and no others.
  Dyadic(const Dyadic& other) { *this = other; }
  Dyadic& operator=(const Dyadic& other);
  ~Dyadic() = default;

  int sign() const { return sign_; }  // -1, 0, 1
  Dyadic Negated() const;
  Dyadic Magnitude() const;

  friend Dyadic operator+(const Dyadic& a, const Dyadic& b);
  friend Dyadic operator-(const Dyadic& a, const Dyadic& b) { return a + b.Negated(); }
  friend Dyadic operator*(const Dyadic& a, const Dyadic& b);
  // a * a, in half the time.
  friend Dyadic Square(const Dyadic& a);
  // The sign of a - b.
  friend int Compare(const Dyadic& a, const Dyadic& b);

  // The magnitude in words of 64 bits, the lowest first: word i counts 2^(exponent() + 64 i).
  int size() const { return size_; }
  uint64_t word(int i) const { return words_[i]; }
  int64_t exponent() const { return exponent_; }

 private:
  void Set(int sign, uint64_t magnitude, int64_t exponent);
  // Drops zero words at both ends.
  void Trim();
  int64_t Top() const { return exponent_ + 64 * int64_t{size_}; }
  // The word that counts 2^exponent, a multiple of 64.
  uint64_t WordAt(int64_t exponent) const {
    const int64_t i = (exponent - exponent_) >> 6;
    return i >= 0 && i < size_ ? words_[i] : 0;
  }
  static int CompareMagnitudes(const Dyadic& a, const Dyadic& b);

  int sign_ = 0;
  int size_ = 0;
  int64_t exponent_ = 0;       // a multiple of 64
  uint64_t words_[kMaxWords];  // the first size_ of them are set; to clear the rest would take longer than a product
};

// A number that a group keeps. It has room for those of ordinary groups, while Dyadic has room for the largest: a call
// may have a million groups.
class KeptDyadic {
 public:
  KeptDyadic() = default;  // 0
  explicit KeptDyadic(const Dyadic& number);
  Dyadic Value() const;
  int sign() const { return sign_; }

 private:
  int sign_ = 0;
  int64_t exponent_ = 0;
  absl::InlinedVector<uint64_t, 8> words_;
};

// a to the power of a whole number. REQUIRES: exponent >= 1.
Dyadic Power(const Dyadic& a, int exponent);

// The exact sum of numbers m * 2^e, in any order. kLowest is the least e; kDigits digits of 32 bits follow it. Takes
// time for the digits that its numbers have, and no others.
template <int kLowest, int kDigits>
class ExactSum {
  static_assert(kLowest % 64 == 0 && kDigits % 2 == 0);

 public:
  // Adds sign * m * 2^e. REQUIRES: e >= kLowest, and the sum of all magnitudes is under 2^(kLowest + 32 (kDigits - 1)).
  void Add(int64_t sign, uint64_t m, int64_t e) {
    const int64_t bit = e - kLowest;
    const auto at = static_cast<int>(bit >> 5);
    const auto digits = static_cast<unsigned __int128>(m) << (bit & 31);
    Reach(at, at + 2);
    digits_[at] += sign * static_cast<int64_t>(static_cast<uint32_t>(digits));
    digits_[at + 1] += sign * static_cast<int64_t>(static_cast<uint32_t>(digits >> 32));
    digits_[at + 2] += sign * static_cast<int64_t>(static_cast<uint32_t>(digits >> 64));
    if (++pending_ == kMostPending) Carry();
  }
  void Add(const Dyadic& number) {
    for (int i = 0; i < number.size(); ++i) Add(number.sign(), number.word(i), number.exponent() + 64 * int64_t{i});
  }
  Dyadic Value() {
    if (last_ < 0) return {};
    Carry();
    const bool is_negative = digits_[last_] < 0;
    if (is_negative) Negate();
    // Every digit is in [0, 2^32) now.
    const int begin = first_ & ~1;
    Reach(begin, last_ | 1);
    uint64_t words[kDigits / 2];
    int size = 0;
    for (int i = begin; i <= last_; i += 2) {
      words[size++] = static_cast<uint64_t>(digits_[i]) | static_cast<uint64_t>(digits_[i + 1]) << 32;
    }
    if (is_negative) Negate();
    return {is_negative ? -1 : 1, kLowest + 32 * int64_t{begin}, words, size};
  }

 private:
  // Each call of Add changes a digit by less than 2^32.
  static constexpr int64_t kMostPending = int64_t{1} << 30;
  // Makes the digits [first, last] part of the sum.
  void Reach(int first, int last) {
    if (last_ < 0) {
      first_ = first;
      last_ = first - 1;
    }
    while (first_ > first) digits_[--first_] = 0;
    while (last_ < last) digits_[++last_] = 0;
  }
  // Leaves digits in [0, 2^32), but for the last one, which is negative if the sum is.
  void Carry() {
    pending_ = 0;
    if (last_ < 0) return;
    int64_t carry = 0;
    const auto normalise = [&](int i) {
      const int64_t digit = digits_[i] + carry;
      carry = digit >> 32;
      digits_[i] = digit & 0xFFFFFFFF;
    };
    for (int i = first_; i < last_; ++i) normalise(i);
    const int64_t beyond = (digits_[last_] + carry) >> 32;
    if (beyond == 0 || beyond == -1) {
      digits_[last_] += carry;
      return;
    }
    normalise(last_);
    digits_[++last_] = carry;
  }
  void Negate() {
    for (int i = first_; i <= last_; ++i) digits_[i] = -digits_[i];
    Carry();
  }

  int64_t digits_[kDigits];  // [first_, last_] are set; to clear the rest would take longer than a small group
  int first_ = 0, last_ = -1;
  int64_t pending_ = 0;
};

}  // namespace normd::slow_road

#endif  // NORMD_KERNELS_SLOW_ROAD_DYADIC_H_
