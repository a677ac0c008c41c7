// Seeded random numbers for tests: the same on every machine and compiler (only integer arithmetic, +, - and *), so
// that golden hashes hold. Thread-compatible.
#ifndef NORMD_TESTS_SUPPORT_RANDOM_H_
#define NORMD_TESTS_SUPPORT_RANDOM_H_

#include <cstdint>
#include <string_view>

namespace normd {

// A fixed 64-bit hash (FNV-1a) of bytes, continued from `hash`.
inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325;
uint64_t Fnv1a(std::string_view bytes, uint64_t hash = kFnvStart);

// NORMD_TEST_SEED of the environment, or 0: mixed into the data of accuracy tests. Printed at the first call, so that a
// failure can be repeated.
uint64_t TestSeed();

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Bits();   // SplitMix64 (Steele, Lea, Flood 2014)
  double Uniform();  // [0, 1), 53 bits
  double Uniform(double low, double high);
  double Normal();               // about N(0, 1): the sum of 12 uniforms, so within [-6, 6)
  int64_t Below(int64_t limit);  // REQUIRES: limit > 0

 private:
  uint64_t state_;
};

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_RANDOM_H_
