#include "tests/support/random.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/support/environment.h"

namespace normd {

uint64_t Fnv1a(std::string_view bytes, uint64_t hash) {
  for (const char c : bytes) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return hash;
}

uint64_t TestSeed() {
  static const uint64_t seed = [] {
    const std::string text(Environment("NORMD_TEST_SEED"));
    const uint64_t value = std::strtoull(text.c_str(), nullptr, 0);
    std::printf("NORMD_TEST_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

uint64_t Random::Bits() {
  state_ += 0x9e3779b97f4a7c15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

double Random::Uniform() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }

double Random::Uniform(double low, double high) { return low + (high - low) * Uniform(); }

double Random::Normal() {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += Uniform();
  return sum;
}

int64_t Random::Below(int64_t limit) { return static_cast<int64_t>(Bits() % static_cast<uint64_t>(limit)); }

}  // namespace normd
