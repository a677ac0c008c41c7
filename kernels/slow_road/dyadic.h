// Exact arithmetic on dyadic numbers, integers times a power of two: what the last rung of the slow road decides with.
// Numbers have a fixed size and live on the stack, so that no input makes a call allocate.
// In the path: kernels/slow_road/group.cc, for elements that f64 and pairs of f64 leave undecided. Plain values, safe
// from any thread.
#ifndef NORMD_KERNELS_SLOW_ROAD_DYADIC_H_
#define NORMD_KERNELS_SLOW_ROAD_DYADIC_H_

#include <cstdint>

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
  uint64_t WordAt(int64_t exponent) const;
  static int CompareMagnitudes(const Dyadic& a, const Dyadic& b);

  int sign_ = 0;
  int size_ = 0;
  int64_t exponent_ = 0;       // a multiple of 64
  uint64_t words_[kMaxWords];  // the first size_ of them are set; to clear the rest would take longer than a product
};

// The exact sum of numbers m * 2^e, in any order. kLowest is the least e; kDigits digits of 32 bits follow it.
template <int kLowest, int kDigits>
class ExactSum {
  static_assert(kLowest % 64 == 0 && kDigits % 2 == 0);

 public:
  // Adds sign * m * 2^e. REQUIRES: e >= kLowest, and the sum of all magnitudes is under 2^(kLowest + 32 (kDigits - 1)).
  void Add(int64_t sign, uint64_t m, int64_t e) {
    const int64_t bit = e - kLowest;
    const auto at = static_cast<int>(bit >> 5);
    const auto digits = static_cast<unsigned __int128>(m) << (bit & 31);
    digits_[at] += sign * static_cast<int64_t>(static_cast<uint32_t>(digits));
    digits_[at + 1] += sign * static_cast<int64_t>(static_cast<uint32_t>(digits >> 32));
    digits_[at + 2] += sign * static_cast<int64_t>(static_cast<uint32_t>(digits >> 64));
    if (++pending_ == kMostPending) Carry();
  }
  void Add(const Dyadic& number) {
    for (int i = 0; i < number.size(); ++i) Add(number.sign(), number.word(i), number.exponent() + 64 * int64_t{i});
  }
  Dyadic Value() {
    Carry();
    const int sign = digits_[kDigits - 1] < 0 ? -1 : 1;
    if (sign < 0) {
      for (int64_t& digit : digits_) digit = -digit;
      Carry();
    }
    // Every digit is in [0, 2^32) now.
    uint64_t words[kDigits / 2];
    for (int i = 0; i < kDigits / 2; ++i) {
      words[i] = static_cast<uint64_t>(digits_[2 * i]) | static_cast<uint64_t>(digits_[2 * i + 1]) << 32;
    }
    if (sign < 0) {
      for (int64_t& digit : digits_) digit = -digit;
    }
    return {sign, kLowest, words, kDigits / 2};
  }

 private:
  // Each call of Add changes a digit by less than 2^32.
  static constexpr int64_t kMostPending = int64_t{1} << 30;
  void Carry() {
    int64_t carry = 0;
    for (int i = 0; i + 1 < kDigits; ++i) {
      const int64_t digit = digits_[i] + carry;
      carry = digit >> 32;
      digits_[i] = digit & 0xFFFFFFFF;
    }
    digits_[kDigits - 1] += carry;
    pending_ = 0;
  }

  int64_t digits_[kDigits] = {};
  int64_t pending_ = 0;
};

}  // namespace normd::slow_road

#endif  // NORMD_KERNELS_SLOW_ROAD_DYADIC_H_
