// The vector kernels of exact sums beside sums that are made element by element, on every instruction set.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/exact_sums.h"
#include "kernels/cpu/targets.h"
#include "tests/kernels/call.h"
#include "tests/support/constants.h"
#include "tests/support/random.h"

namespace normd {
namespace {

using cases::Pack;
using cases::Unpack;
using cases::Values;

struct FillOfSums {
  std::string name;
  std::function<double(Random&)> element;
};

// Of exponents 0 to `range` below 1.
double WithExponents(Random& random, int range) {
  const double sign = random.Below(2) == 0 ? -1 : 1;
  return sign * std::ldexp(1 + random.Uniform(), -static_cast<int>(random.Below(range + 1)));
}

std::vector<FillOfSums> Fills() {
  return {
      {"normal", [](Random& r) { return 0.3 + r.Normal(); }},
      {"zeros", [](Random&) { return -0.0; }},
      {"constant", [](Random&) { return 0.1; }},
      {"relu", [](Random& r) { return std::max(0.0, r.Normal()); }},
      {"12 exponents", [](Random& r) { return WithExponents(r, 12); }},
      {"40 exponents", [](Random& r) { return WithExponents(r, 40); }},
      {"80 exponents", [](Random& r) { return WithExponents(r, 80); }},
      {"all exponents", [](Random& r) { return std::ldexp(r.Normal(), static_cast<int>(r.Below(250)) - 140); }},
      {"subnormal", [](Random& r) { return std::ldexp(r.Normal(), -136); }},
      {"the least of f16", [](Random& r) { return std::ldexp(static_cast<double>(r.Below(7)), -24); }},
      {"huge", [](Random& r) { return std::ldexp(1 + r.Uniform(), 126); }},
      {"the ends of f64", [](Random& r) { return std::ldexp(r.Normal(), r.Below(2) == 0 ? 1020 : -1070); }},
      {"small of f64", [](Random& r) { return std::ldexp(r.Normal(), -530); }},
      {"large of f64", [](Random& r) { return std::ldexp(r.Normal(), 478 + static_cast<int>(r.Below(4))); }},
      {"a few tiny", [](Random& r) { return r.Below(300) == 0 ? 1e-30 : r.Normal(); }},
      {"a few infinite", [](Random& r) { return r.Below(700) == 0 ? kInf : r.Normal(); }},
      {"a few NaN", [](Random& r) { return r.Below(700) == 0 ? kNan : r.Normal(); }},
  };
}

Values Filled(const FillOfSums& fill, int64_t n, uint64_t seed) {
  Random random(TestSeed() + seed);
  Values values(static_cast<size_t>(n));
  for (double& v : values) v = fill.element(random);
  return values;
}

// On all instruction sets.
void OnEveryTarget(const std::function<void(const std::string&)>& run) {
  for (const CpuTarget& target : SupportedCpuTargets()) {
    ForceCpuTargetForTest(target.id);
    run(std::string(target.name));
  }
  ForceCpuTargetForTest(0);
}

// Bytes at an odd address.
class Misaligned {
 public:
  explicit Misaligned(const std::string& bytes) : room_("\1" + bytes) {}
  const void* data() const { return room_.data() + 1; }

 private:
  const std::string room_;
};

struct RowsOfSums {
  int64_t n, segments, stride;
};

template <typename Sums>
void TestRow(DType dtype, const FillOfSums& fill, const RowsOfSums& shape, bool masked) {
  const int64_t elements = (shape.segments - 1) * shape.stride + shape.n;
  const std::string bytes = Pack(dtype, Filled(fill, elements, static_cast<uint64_t>(elements)));
  const Values x = Unpack(dtype, bytes);
  Random random(TestSeed() + 77);
  std::vector<uint8_t> mask(static_cast<size_t>(elements));
  for (uint8_t& byte : mask) byte = random.Below(4) == 0 ? 0 : 3;
  Sums want;
  for (int64_t segment = 0; segment < shape.segments; ++segment) {
    for (int64_t i = 0; i < shape.n; ++i) {
      const auto at = static_cast<size_t>(segment * shape.stride + i);
      if (!masked || mask[at] != 0) want.Add(x[at]);
    }
  }
  const Misaligned data(bytes);
  OnEveryTarget([&](const std::string& target) {
    Sums sums;
    cpu::AddExactly({.dtype = dtype,
                     .data = data.data(),
                     .n = shape.n,
                     .segments = shape.segments,
                     .stride = shape.stride,
                     .mask = masked ? mask.data() : nullptr,
                     .mask_stride = shape.stride},
                    &sums);
    EXPECT_EQ(sums, want) << target << ' ' << fill.name << ' ' << shape.n << " x " << shape.segments << ' ' << masked;
  });
}

TEST(ExactSumsKernelsTest, RowsAndChannelsAreSummedExactly) {
  constexpr RowsOfSums kShapes[] = {{1, 1, 0},    {7, 1, 0},       {1023, 1, 0}, {1024, 1, 0},   {5000, 1, 0},
                                    {49, 60, 53}, {1500, 3, 1501}, {3, 5, 3},    {2048, 2, 2048}};
  for (const FillOfSums& fill : Fills()) {
    for (const RowsOfSums& shape : kShapes) {
      for (const bool masked : {false, true}) {
        for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
          TestRow<NarrowExactSums>(dtype, fill, shape, masked);
        }
        TestRow<WideExactSums>(DType::kF64, fill, shape, masked);
      }
    }
  }
}

template <typename Sums>
void TestColumns(DType dtype, const FillOfSums& fill, int64_t positions, int64_t columns, bool masked) {
  const int64_t stride = columns + 3;
  Values values = Filled(fill, positions * stride, static_cast<uint64_t>(positions * columns));
  // Columns of other magnitudes in one vector.
  for (size_t i = 0; i < values.size(); ++i) {
    if (static_cast<int64_t>(i) % stride % 5 == 3) values[i] *= 1e-3;
  }
  const std::string bytes = Pack(dtype, values);
  const Values x = Unpack(dtype, bytes);
  std::vector<uint8_t> mask(static_cast<size_t>(positions), 1);
  for (size_t p = 0; p < mask.size(); p += 3) mask[p] = 0;
  std::vector<Sums> want(static_cast<size_t>(columns));
  for (int64_t p = 0; p < positions; ++p) {
    if (masked && mask[static_cast<size_t>(p)] == 0) continue;
    for (int64_t c = 0; c < columns; ++c) want[static_cast<size_t>(c)].Add(x[static_cast<size_t>(p * stride + c)]);
  }
  const Misaligned data(bytes);
  OnEveryTarget([&](const std::string& target) {
    std::vector<Sums> sums(static_cast<size_t>(columns));
    cpu::AddExactly({.dtype = dtype,
                     .data = data.data(),
                     .positions = positions,
                     .columns = columns,
                     .stride = stride,
                     .mask = masked ? mask.data() : nullptr},
                    sums.data());
    EXPECT_TRUE(sums == want) << target << ' ' << fill.name << ' ' << positions << " x " << columns << ' ' << masked;
  });
}

TEST(ExactSumsKernelsTest, ColumnsAreSummedExactly) {
  for (const FillOfSums& fill : Fills()) {
    for (const int64_t positions : {1, 511, 512, 1030}) {
      for (const int64_t columns : {1, 3, 8, 17, 32, 43}) {
        const bool masked = (positions + columns) % 2 == 0;
        for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
          TestColumns<NarrowExactSums>(dtype, fill, positions, columns, masked);
        }
        TestColumns<WideExactSums>(DType::kF64, fill, positions, columns, masked);
      }
    }
  }
}

// An element near 2 whose square leaves about as large a rest beside multiples of `grid` as it can, of the given sign.
double WithLargeRest(Random& random, double grid, double sign) {
  double best = 2 - 0x1p-23, largest = 0;
  for (int i = 0; i < 64; ++i) {
    const double x = static_cast<float>(2 - random.Uniform() * 0x1p-6);
    const double rest = sign * (x * x / grid - std::nearbyint(x * x / grid));
    if (rest <= largest) continue;
    best = x;
    largest = rest;
  }
  return best;
}

// Blocks whose sums are as large as they can be beside a least element that is odd: a range of exponents that is one
// too wide in one of the loops loses its last bit.
TEST(ExactSumsKernelsTest, TheRangesOfExponentsAreNotTooWide) {
  Random random(TestSeed() + 5);
  for (int gap = 10; gap < 75; ++gap) {
    for (const int64_t terms : {512, 1024}) {
      const double grid = 0x1p-50 * static_cast<double>(terms);  // of the first bin
      // Far below the largest element, which comes by itself, squares leave a rest beside the second grid, too.
      const double second = 0x1p-107 * static_cast<double>(terms * terms) * 8 * 0x1p+46;
      const double tops[] = {2 - 0x1p-23, WithLargeRest(random, grid, 1), WithLargeRest(random, grid, -1),
                             0x1p-23 * WithLargeRest(random, second, 1), 0x1p-23 * WithLargeRest(random, second, -1)};
      for (const double top : tops) {
        Values values(static_cast<size_t>(terms - 1), top);
        values[0] = 2 - 0x1p-23;
        values.insert(values.begin() + random.Below(terms), std::ldexp(1 + 0x1p-23, -gap));
        const std::string bytes = Pack(DType::kF32, values);
        NarrowExactSums want;
        for (const double x : values) want.Add(x);
        OnEveryTarget([&](const std::string& target) {
          NarrowExactSums row, column;
          cpu::AddExactly({.data = bytes.data(), .n = terms}, &row);
          cpu::AddExactly({.data = bytes.data(), .positions = terms, .columns = 1, .stride = 1}, &column);
          EXPECT_EQ(row, want) << target << ", 2^" << -gap << ' ' << top;
          EXPECT_EQ(column, want) << target << ", 2^" << -gap << ' ' << top;
        });
      }
    }
  }
}

// The same of 16-bit types, whose squares f64 holds without bins if their exponents are near one another.
TEST(ExactSumsKernelsTest, TheRangesOfExponentsOf16BitsAreNotTooWide) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const double ulp = dtype == DType::kF16 ? 0x1p-10 : 0x1p-7;
    for (int gap = 0; gap < 40; ++gap) {
      for (const int64_t terms : {512, 1024}) {
        Values values(static_cast<size_t>(terms), 2 - ulp);
        values[7] = std::ldexp(1 + ulp, dtype == DType::kF16 ? -std::min(gap, 14) : -gap);
        const std::string bytes = Pack(dtype, values);
        NarrowExactSums want;
        for (const double x : values) want.Add(x);
        OnEveryTarget([&](const std::string& target) {
          NarrowExactSums row, column;
          cpu::AddExactly({.dtype = dtype, .data = bytes.data(), .n = terms}, &row);
          cpu::AddExactly({.dtype = dtype, .data = bytes.data(), .positions = terms, .columns = 1, .stride = 1},
                          &column);
          EXPECT_EQ(row, want) << target << ", 2^" << -gap;
          EXPECT_EQ(column, want) << target << ", 2^" << -gap;
        });
      }
    }
  }
}

// The same of f64, whose squares take two numbers.
TEST(ExactSumsKernelsTest, TheRangeOfExponentsOfF64IsNotTooWide) {
  constexpr int64_t kTerms = 1024;
  Random random(TestSeed() + 6);
  for (int gap = 10; gap < 75; ++gap) {
    for (int kind = 0; kind < 4; ++kind) {
      Values values;
      const double bulk = 2 - static_cast<double>(random.Below(1 << 12)) * 0x1p-52;
      for (int64_t i = 1; i < kTerms; ++i) values.push_back(kind % 2 == 0 ? bulk : 2 - 0x1p-52 - random.Uniform());
      values.insert(values.begin() + random.Below(kTerms), std::ldexp(1 + 0x1p-52, -gap));
      if (kind >= 2) {
        for (double& x : values) x = -x;
      }
      const std::string bytes = Pack(DType::kF64, values);
      WideExactSums want;
      for (const double x : values) want.Add(x);
      OnEveryTarget([&](const std::string& target) {
        WideExactSums row;
        cpu::AddExactly({.dtype = DType::kF64, .data = bytes.data(), .n = kTerms}, &row);
        EXPECT_EQ(row, want) << target << ", 2^" << -gap << ' ' << kind;
      });
    }
  }
}

}  // namespace
}  // namespace normd
