#include "kernels/slow_road/dyadic.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

namespace normd::slow_road {
namespace {

using Wide = unsigned __int128;

// x + y + carry and x - y - borrow; the carry or borrow of the result replaces the old one.
uint64_t AddCarrying(uint64_t x, uint64_t y, uint64_t* carry) {
  const Wide sum = Wide{x} + y + *carry;
  *carry = static_cast<uint64_t>(sum >> 64);
  return static_cast<uint64_t>(sum);
}
uint64_t SubtractBorrowing(uint64_t x, uint64_t y, uint64_t* borrow) {
  const Wide difference = Wide{x} - y - *borrow;
  *borrow = static_cast<uint64_t>(difference >> 64) & 1;
  return static_cast<uint64_t>(difference);
}

// Adds factor * the n words at `words` to those at `sum`; returns what is carried into the word after these.
uint64_t AddRow(uint64_t factor, const uint64_t* words, int n, uint64_t* sum) {
  uint64_t carry = 0;
  for (int j = 0; j < n; ++j) {
    const Wide product = Wide{factor} * words[j] + sum[j] + carry;
    sum[j] = static_cast<uint64_t>(product);
    carry = static_cast<uint64_t>(product >> 64);
  }
  return carry;
}

}  // namespace

Dyadic::Dyadic(double value) {
  constexpr int kFractionBits = 52;
  constexpr uint64_t kFraction = (uint64_t{1} << kFractionBits) - 1;
  const auto bits = std::bit_cast<uint64_t>(value);
  const auto biased = static_cast<int64_t>(bits >> kFractionBits & 0x7FF);
  const uint64_t magnitude = (bits & kFraction) | (biased == 0 ? 0 : uint64_t{1} << kFractionBits);
  Set(std::signbit(value) ? -1 : 1, magnitude, std::max<int64_t>(biased, 1) - 1075);
}

Dyadic::Dyadic(int sign, int64_t exponent, const uint64_t* words, int size)
    : sign_(sign), size_(size), exponent_(exponent) {
  assert(size <= kMaxWords);
  std::copy_n(words, size, words_);
  Trim();
}

Dyadic& Dyadic::operator=(const Dyadic& other) {
  if (this == &other) return *this;
  sign_ = other.sign_;
  size_ = other.size_;
  exponent_ = other.exponent_;
  std::memcpy(words_, other.words_, static_cast<size_t>(size_) * sizeof(words_[0]));
  return *this;
}

void Dyadic::Set(int sign, uint64_t magnitude, int64_t exponent) {
  if (magnitude == 0) return;
  const int64_t up = exponent & 63;
  sign_ = sign;
  exponent_ = exponent - up;
  words_[0] = magnitude << up;
  words_[1] = up == 0 ? 0 : magnitude >> (64 - up);
  size_ = 2;
  Trim();
}

void Dyadic::Trim() {
  while (size_ > 0 && words_[size_ - 1] == 0) --size_;
  int zeros = 0;
  while (zeros < size_ && words_[zeros] == 0) ++zeros;
  if (zeros > 0) {
    size_ -= zeros;
    exponent_ += 64 * int64_t{zeros};
    std::memmove(words_, words_ + zeros, static_cast<size_t>(size_) * sizeof(words_[0]));
  }
  if (size_ == 0) sign_ = 0;
}

Dyadic Dyadic::Negated() const {
  Dyadic negated = *this;
  negated.sign_ = -sign_;
  return negated;
}

Dyadic Dyadic::Magnitude() const {
  Dyadic magnitude = *this;
  magnitude.sign_ = sign_ == 0 ? 0 : 1;
  return magnitude;
}

int Dyadic::CompareMagnitudes(const Dyadic& a, const Dyadic& b) {
  if (a.sign_ == 0 || b.sign_ == 0) return (a.sign_ != 0 ? 1 : 0) - (b.sign_ != 0 ? 1 : 0);
  if (a.Top() != b.Top()) return a.Top() < b.Top() ? -1 : 1;
  const int64_t end = std::min(a.exponent_, b.exponent_);
  for (int64_t e = a.Top() - 64; e >= end; e -= 64) {
    const uint64_t x = a.WordAt(e);
    const uint64_t y = b.WordAt(e);
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}

int Compare(const Dyadic& a, const Dyadic& b) {
  if (a.sign_ != b.sign_) return a.sign_ < b.sign_ ? -1 : 1;
  return a.sign_ * Dyadic::CompareMagnitudes(a, b);
}

Dyadic operator+(const Dyadic& a, const Dyadic& b) {
  if (a.sign_ == 0) return b;
  if (b.sign_ == 0) return a;
  const bool subtracts = a.sign_ != b.sign_;
  if (subtracts && Dyadic::CompareMagnitudes(a, b) < 0) return b + a;
  Dyadic sum;
  sum.sign_ = a.sign_;
  sum.exponent_ = std::min(a.exponent_, b.exponent_);
  const int64_t top = std::max(a.Top(), b.Top());
  sum.size_ = static_cast<int>((top - sum.exponent_) / 64);
  assert(sum.size_ < Dyadic::kMaxWords);
  uint64_t carry = 0;
  for (int i = 0; i < sum.size_; ++i) {
    const int64_t e = sum.exponent_ + 64 * int64_t{i};
    sum.words_[i] =
        subtracts ? SubtractBorrowing(a.WordAt(e), b.WordAt(e), &carry) : AddCarrying(a.WordAt(e), b.WordAt(e), &carry);
  }
  if (carry != 0) sum.words_[sum.size_++] = carry;  // of a sum: a difference borrows nothing in the end
  sum.Trim();
  return sum;
}

Dyadic operator*(const Dyadic& a, const Dyadic& b) {
  Dyadic product;
  if (a.sign_ == 0 || b.sign_ == 0) return product;
  assert(a.size_ + b.size_ <= Dyadic::kMaxWords);
  product.sign_ = a.sign_ * b.sign_;
  product.exponent_ = a.exponent_ + b.exponent_;
  product.size_ = a.size_ + b.size_;
  std::fill_n(product.words_, b.size_, 0);  // each row writes one word more
  for (int i = 0; i < a.size_; ++i) {
    product.words_[i + b.size_] = AddRow(a.words_[i], b.words_, b.size_, product.words_ + i);
  }
  product.Trim();
  return product;
}

// The products of two different words count twice: they are summed once, doubled, and the squares are added.
Dyadic Square(const Dyadic& a) {
  Dyadic square;
  if (a.sign_ == 0) return square;
  const int n = a.size_;
  assert(2 * n <= Dyadic::kMaxWords);
  square.sign_ = 1;
  square.exponent_ = 2 * a.exponent_;
  square.size_ = 2 * n;
  std::fill_n(square.words_, n, 0);
  square.words_[2 * n - 1] = 0;
  for (int i = 0; i + 1 < n; ++i) {
    square.words_[i + n] = AddRow(a.words_[i], a.words_ + i + 1, n - i - 1, square.words_ + 2 * i + 1);
  }
  uint64_t carry = 0, shifted_out = 0;
  for (int i = 0; i < n; ++i) {
    const Wide own = Wide{a.words_[i]} * a.words_[i];
    uint64_t* const two = square.words_ + 2 * i;
    const uint64_t low = two[0], high = two[1];
    two[0] = AddCarrying(low << 1 | shifted_out, static_cast<uint64_t>(own), &carry);
    two[1] = AddCarrying(high << 1 | low >> 63, static_cast<uint64_t>(own >> 64), &carry);
    shifted_out = high >> 63;
  }
  square.Trim();
  return square;
}

KeptDyadic::KeptDyadic(const Dyadic& number)
    : sign_(number.sign()), exponent_(number.exponent()), words_(static_cast<size_t>(number.size())) {
  for (int i = 0; i < number.size(); ++i) words_[static_cast<size_t>(i)] = number.word(i);
}

Dyadic KeptDyadic::Value() const {
  if (sign_ == 0) return {};
  return {sign_, exponent_, words_.data(), static_cast<int>(words_.size())};
}

Dyadic Power(const Dyadic& a, int exponent) {
  if (exponent == 1) return a;
  if (exponent == 2) return Square(a);
  const Dyadic half = Power(a, exponent / 2);
  return exponent % 2 == 0 ? Square(half) : Square(half) * a;
}

}  // namespace normd::slow_road
