#include "tests/support/oracle_dyadic.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace normd::oracle {
namespace {

// floor(log2(|v|)) + 1. REQUIRES: v is not 0.
int64_t LengthOf(const Dyadic& v) {
  return static_cast<int64_t>(mpz_sizeinbase(v.significand().get_mpz_t(), 2)) + v.exponent();
}

}  // namespace

Dyadic::Dyadic(Wide v) {
  if (v == 0) return;
  constexpr int kMantissa = 112, kBias = 16383;
  uint64_t words[2];  // little endian, as all machines that normd runs on
  std::memcpy(words, &v, sizeof(words));
  const auto biased = static_cast<int64_t>(words[1] >> 48 & 0x7fff);
  words[1] &= (uint64_t{1} << 48) - 1;
  if (biased > 0) words[1] |= uint64_t{1} << 48;
  mpz_import(significand_.get_mpz_t(), 2, -1, sizeof(words[0]), 0, 0, words);
  const mp_bitcnt_t zeros = mpz_scan1(significand_.get_mpz_t(), 0);
  significand_ >>= zeros;
  if (IsNegative(v)) significand_ = -significand_;
  exponent_ = std::max<int64_t>(biased, 1) - kBias - kMantissa + static_cast<int64_t>(zeros);
}

Dyadic& Dyadic::operator+=(const Dyadic& other) {
  if (other.IsZero()) return *this;
  if (IsZero()) return *this = other;
  if (exponent_ > other.exponent_) {
    significand_ <<= static_cast<mp_bitcnt_t>(exponent_ - other.exponent_);
    exponent_ = other.exponent_;
  }
  if (exponent_ == other.exponent_) {
    significand_ += other.significand_;
  } else {
    significand_ += other.significand_ << static_cast<mp_bitcnt_t>(other.exponent_ - exponent_);
  }
  return *this;
}

Dyadic& Dyadic::operator*=(const Dyadic& other) {
  significand_ *= other.significand_;
  exponent_ += other.exponent_;
  return *this;
}

Dyadic Abs(const Dyadic& v) { return v.Sign() < 0 ? -v : v; }

Dyadic Power(const Dyadic& v, int64_t exponent) {
  mpz_class power;
  mpz_pow_ui(power.get_mpz_t(), v.significand().get_mpz_t(), static_cast<unsigned long>(exponent));
  return {std::move(power), v.exponent() * exponent};
}

Wide Approximate(const Dyadic& v) {
  signed long exponent = 0;
  const double head = mpz_get_d_2exp(&exponent, v.significand().get_mpz_t());
  return Wide(head) * PowerOfTwo(static_cast<int>(std::clamp<int64_t>(exponent + v.exponent(), -16000, 16000)));
}

int Compare(const Dyadic& a, const Dyadic& b) {
  if (a.Sign() != b.Sign()) return a.Sign() < b.Sign() ? -1 : 1;
  if (a.IsZero()) return 0;
  const int64_t length = LengthOf(a), other = LengthOf(b);
  if (length != other) return (length < other) == (a.Sign() > 0) ? -1 : 1;
  return (a - b).Sign();
}

}  // namespace normd::oracle
