#include "kernels/slow_road/leading.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

namespace normd::slow_road {
namespace {

using Wide = unsigned __int128;

constexpr int kWords = Leading::kWords;
constexpr int kBits = 64 * kWords;

// Shifts n words up by less than 64 bits; the bits of `below` come in.
void ShiftUp(uint64_t* words, int n, int bits, uint64_t below) {
  if (bits == 0) return;
  for (int i = n - 1; i > 0; --i) words[i] = words[i] << bits | words[i - 1] >> (64 - bits);
  words[0] = words[0] << bits | below >> (64 - bits);
}

// Writes words >> bits. REQUIRES: 0 <= bits < kBits.
void ShiftDown(const uint64_t* words, int64_t bits, uint64_t* shifted) {
  const auto whole = static_cast<int>(bits / 64);
  const auto rest = static_cast<int>(bits % 64);
  for (int i = 0; i < kWords; ++i) {
    const uint64_t low = i + whole < kWords ? words[i + whole] : 0;
    const uint64_t high = i + whole + 1 < kWords ? words[i + whole + 1] : 0;
    shifted[i] = rest == 0 ? low : low >> rest | high << (64 - rest);
  }
}

}  // namespace

Leading::Leading(const Dyadic& number) : sign_(number.sign()) {
  if (sign_ == 0) return;
  const int n = number.size();
  const auto word = [&](int from_top) { return from_top < n ? number.word(n - 1 - from_top) : 0; };
  for (int i = 0; i < kWords; ++i) words_[kWords - 1 - i] = word(i);
  const int zeros = std::countl_zero(word(0));
  ShiftUp(words_, kWords, zeros, word(kWords));
  top_ = number.exponent() + 64 * int64_t{n} - zeros;
}

double Leading::Fraction() const { return std::ldexp(static_cast<double>(words_[kWords - 1]), -64); }

double Leading::Truncated() const {
  if (sign_ == 0) return 0;
  if (top_ > 1024) return std::numeric_limits<double>::infinity();
  // The bits that an f64 of this magnitude has: fewer than 53 where it is subnormal.
  const int64_t bits = std::min<int64_t>(53, top_ + 1074);
  if (bits <= 0) return 0;
  const uint64_t kept = words_[kWords - 1] >> (64 - bits);
  return std::ldexp(static_cast<double>(kept), static_cast<int>(top_ - bits));
}

Leading Leading::TimesPowerOfTwo(int64_t exponent) const {
  Leading product = *this;
  product.top_ += exponent;
  return product;
}

Leading Leading::Negated() const {
  Leading negated = *this;
  negated.sign_ = -sign_;
  return negated;
}

void Leading::Normalise() {
  int zeros = 0;
  while (zeros < kWords && words_[kWords - 1 - zeros] == 0) ++zeros;
  if (zeros == kWords) {
    *this = Leading();
    return;
  }
  if (zeros > 0) {
    for (int i = kWords - 1; i >= 0; --i) words_[i] = i >= zeros ? words_[i - zeros] : 0;
  }
  const int bits = std::countl_zero(words_[kWords - 1]);
  ShiftUp(words_, kWords, bits, 0);
  top_ -= 64 * int64_t{zeros} + bits;
}

Leading Leading::DividedBy(uint64_t divisor) const {
  if (std::has_single_bit(divisor)) return TimesPowerOfTwo(-std::countr_zero(divisor));
  Leading quotient = *this;
  Wide rest = 0;
  for (int i = kWords - 1; i >= 0; --i) {
    const Wide part = rest << 64 | words_[i];
    quotient.words_[i] = static_cast<uint64_t>(part / divisor);
    rest = part % divisor;
  }
  quotient.Normalise();
  return quotient;
}

Leading Leading::Subtract(const Leading& larger, const uint64_t* smaller) {
  Leading difference = larger;
  uint64_t borrow = 0;
  for (int i = 0; i < kWords; ++i) {
    const Wide part = Wide{larger.words_[i]} - smaller[i] - borrow;
    difference.words_[i] = static_cast<uint64_t>(part);
    borrow = static_cast<uint64_t>(part >> 64) & 1;
  }
  difference.Normalise();
  return difference;
}

Leading operator+(const Leading& a, const Leading& b) {
  if (a.sign_ == 0) return b;
  if (b.sign_ == 0) return a;
  const bool is_less = a.top_ != b.top_ ? a.top_ < b.top_
                                        : std::lexicographical_compare(std::rbegin(a.words_), std::rend(a.words_),
                                                                       std::rbegin(b.words_), std::rend(b.words_));
  if (is_less) return b + a;
  const int64_t distance = a.top_ - b.top_;
  if (distance >= kBits) return a;
  uint64_t shifted[kWords];
  ShiftDown(b.words_, distance, shifted);
  if (a.sign_ != b.sign_) return Leading::Subtract(a, shifted);
  Leading sum = a;
  uint64_t carry = 0;
  for (int i = 0; i < kWords; ++i) {
    const Wide part = Wide{a.words_[i]} + shifted[i] + carry;
    sum.words_[i] = static_cast<uint64_t>(part);
    carry = static_cast<uint64_t>(part >> 64);
  }
  if (carry == 0) return sum;
  ShiftDown(sum.words_, 1, shifted);
  shifted[kWords - 1] |= uint64_t{1} << 63;
  std::copy_n(shifted, kWords, sum.words_);
  ++sum.top_;
  return sum;
}

Leading operator*(const Leading& a, const Leading& b) {
  Leading product;
  if (a.sign_ == 0 || b.sign_ == 0) return product;
  uint64_t words[2 * kWords] = {};
  for (int i = 0; i < kWords; ++i) {
    uint64_t carry = 0;
    for (int j = 0; j < kWords; ++j) {
      const Wide part = Wide{a.words_[i]} * b.words_[j] + words[i + j] + carry;
      words[i + j] = static_cast<uint64_t>(part);
      carry = static_cast<uint64_t>(part >> 64);
    }
    words[i + kWords] = carry;
  }
  product.sign_ = a.sign_ * b.sign_;
  product.top_ = a.top_ + b.top_;
  std::copy_n(words + kWords, kWords, product.words_);
  if (words[2 * kWords - 1] >> 63 == 0) {  // a product of fractions is at least 1/4
    ShiftUp(product.words_, kWords, 1, words[kWords - 1]);
    --product.top_;
  }
  return product;
}

// Newton's method: the error of z (1 + (1 - v z^order) / order) is (order + 1) / 2 times the square of that of z. Begun
// within 2^-40, it is within 2^-76, 2^-149 and then that of the roundings after three steps.
Leading InverseRoot(const Leading& v, int order) {
  const int64_t whole = v.top() >= 0 ? v.top() / order : -((order - 1 - v.top()) / order);
  const double rest = std::ldexp(v.Fraction(), static_cast<int>(v.top() - whole * order));  // in [1/2, 2^order)
  const double start = order == 1 ? 1 / rest : order == 2 ? 1 / std::sqrt(rest) : std::pow(rest, -1.0 / order);
  const Leading one{Dyadic(1.0)};
  Leading inverse = Leading(Dyadic(start)).TimesPowerOfTwo(-whole);
  for (int step = 0; step < 3; ++step) {
    Leading power = v;
    for (int i = 0; i < order; ++i) power = power * inverse;
    const Leading correction = inverse * (one - power);
    inverse = inverse + correction.DividedBy(static_cast<uint64_t>(order));
  }
  return inverse;
}

}  // namespace normd::slow_road
