// Division by a number that is known before a kernel starts, as a multiplication: Granlund and Montgomery, "Division by
// Invariant Integers using Multiplication" (1994), for dividends under 2^31.
//   const Divisor seven(7);  seven.Quotient(52) == 7, seven.Remainder(52) == 3
// In the path: kernels turn flat indices into places with it. Plain values, for host and device.
#ifndef NORMD_KERNELS_CUDA_DIVISOR_H_
#define NORMD_KERNELS_CUDA_DIVISOR_H_

#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/cuda/device.h"

namespace normd::cuda {

// a / b and a % b for 0 <= a and 0 < b. A division of 64 bits costs several of 32 bits, which suffice for most
// operands.
struct Division {
  int64_t quotient, remainder;
};
NORMD_HOST_DEVICE inline Division Divide(int64_t a, int64_t b) {
  if ((a | b) >> 32 == 0) {
    const auto quotient = static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
    return {quotient, static_cast<uint32_t>(a) - quotient * static_cast<uint32_t>(b)};
  }
  return {a / b, a % b};
}

class Divisor {
 public:
  // REQUIRES: 0 < divisor < 2^31.
  explicit Divisor(int64_t divisor) : divisor_(static_cast<uint32_t>(divisor)) {
    while ((uint64_t{1} << shift_) < divisor_) ++shift_;
    // Rounded up, so that the error stays under 2^-31 of the quotient.
    multiplier_ = ((uint64_t{1} << (31 + shift_)) + divisor_ - 1) / divisor_;
  }

  // REQUIRES: x < 2^31.
  NORMD_HOST_DEVICE uint32_t Quotient(uint32_t x) const {
    return static_cast<uint32_t>(x * multiplier_ >> (31 + shift_));
  }
  NORMD_HOST_DEVICE uint32_t Remainder(uint32_t x) const { return x - Quotient(x) * divisor_; }
  NORMD_HOST_DEVICE uint32_t divisor() const { return divisor_; }

 private:
  uint32_t divisor_;
  uint32_t shift_ = 0;
  uint64_t multiplier_ = 0;  // under 2^32
};

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_DIVISOR_H_
