// Exact sums beside GMP, their merging, and their bytes.
#include "kernels/exact_sums/exact_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/errors.h"
#include "kernels/exact_sums/bytes.h"
#include "kernels/exact_sums/nearest_moments.h"
#include "kernels/exact_sums/pair_of_sum.h"
#include "tests/support/constants.h"
#include "tests/support/exact_totals.h"
#include "tests/support/random.h"

namespace normd {
namespace {

using ::testing::ElementsAreArray;

// A finite value of any exponent, subnormals included.
double AnyNarrow(Random& random) {
  const auto bits = static_cast<uint32_t>(random.Bits());
  const auto value = std::bit_cast<float>(bits);
  return std::isfinite(value) ? value : std::bit_cast<float>(bits & 0x807FFFFF);
}
double AnyWide(Random& random) {
  const uint64_t bits = random.Bits();
  const auto value = std::bit_cast<double>(bits);
  return std::isfinite(value) ? value : std::bit_cast<double>(bits & 0x800FFFFFFFFFFFFF);
}

template <typename Range>
ExactSums<Range> SumsOf(const std::vector<double>& elements) {
  ExactSums<Range> sums;
  for (const double x : elements) sums.Add(x);
  return sums;
}

template <typename Range>
void ExpectSums(const ExactSums<Range>& sums, const std::vector<double>& elements) {
  using Sum = typename Range::Sum;
  using Squares = typename Range::Squares;
  const oracle::Totals want = oracle::TotalsOf(elements);
  EXPECT_EQ(sums.count(), elements.size());
  const auto& sum = sums.sum().words();
  const auto& squares = sums.squares().words();
  EXPECT_THAT(sum, ElementsAreArray(WordsOf(want.sum, Sum::kLowestBit, static_cast<int>(sum.size()))));
  EXPECT_THAT(squares, ElementsAreArray(WordsOf(want.squares, Squares::kLowestBit, static_cast<int>(squares.size()))));
}

TEST(ExactSumsTest, AreTheSumsOfElementsOfAnyExponent) {
  Random random(TestSeed() + 1);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> narrow, wide;
    for (int i = 0; i < 200; ++i) {
      narrow.push_back(AnyNarrow(random));
      wide.push_back(AnyWide(random));
    }
    ExpectSums(SumsOf<NarrowRange>(narrow), narrow);
    ExpectSums(SumsOf<WideRange>(wide), wide);
    ExpectSums(SumsOf<WideRange>(narrow), narrow);
  }
}

TEST(ExactSumsTest, HaveRoomForTheExtremes) {
  constexpr double kMost32 = std::numeric_limits<float>::max(), kLeast32 = 0x1p-149;
  constexpr double kMost64 = std::numeric_limits<double>::max(), kLeast64 = 0x1p-1074;
  for (const double sign : {1.0, -1.0}) {
    for (const std::vector<double>& narrow : {std::vector<double>(100, sign * kMost32),
                                              {sign * kLeast32},
                                              {sign * kMost32, -sign * kMost32, sign * kLeast32},
                                              {sign * 0x1p+127},
                                              {sign * 0x1p-126, sign * 0x1.fffffcp-127},
                                              {-0.0, 0}}) {
      ExpectSums(SumsOf<NarrowRange>(narrow), narrow);
    }
    for (const std::vector<double>& wide : {std::vector<double>(100, sign * kMost64),
                                            {sign * kLeast64},
                                            {sign * kMost64, -sign * kMost64, sign * kLeast64},
                                            {sign * 0x1p+1023}}) {
      ExpectSums(SumsOf<WideRange>(wide), wide);
    }
  }
}

TEST(ExactSumsTest, AreTheSameForAnyOrderAndAnySplit) {
  Random random(TestSeed() + 2);
  std::vector<double> elements;
  for (int i = 0; i < 1000; ++i) elements.push_back(i % 3 == 0 ? AnyNarrow(random) : random.Normal());
  for (double& x : elements) x = static_cast<float>(x);
  elements.push_back(kInf);
  elements.push_back(kNan);
  const NarrowExactSums want = SumsOf<NarrowRange>(elements);
  const std::string bytes = EncodeExactSums<NarrowRange>({want});
  for (int round = 0; round < 30; ++round) {
    for (size_t i = elements.size() - 1; i > 0; --i) {
      std::swap(elements[i], elements[static_cast<size_t>(random.Below(static_cast<int64_t>(i) + 1))]);
    }
    std::vector<NarrowExactSums> workers(static_cast<size_t>(1 + random.Below(7)));
    for (const double x : elements)
      workers[static_cast<size_t>(random.Below(static_cast<int64_t>(workers.size())))].Add(x);
    while (workers.size() > 1) {
      ASSERT_TRUE(workers[static_cast<size_t>(random.Below(static_cast<int64_t>(workers.size()) - 1))]
                      .Merge(workers.back())
                      .ok());
      workers.pop_back();
    }
    EXPECT_EQ(workers[0], want);
    EXPECT_EQ(EncodeExactSums<NarrowRange>(workers), bytes);
  }
}

// 2^53 elements by merging sums with themselves: more than a tensor can have.
TEST(ExactSumsTest, CountUpTo2To53) {
  constexpr double kMost = std::numeric_limits<float>::max();
  NarrowExactSums sums = SumsOf<NarrowRange>({kMost, 0x1p-149});
  for (int doubled = 1; doubled < 53; ++doubled) {
    const NarrowExactSums same = sums;
    ASSERT_TRUE(sums.Merge(same).ok());
    if (doubled != 30 && doubled != 52) continue;
    const oracle::Dyadic n{mpz_class(1), doubled};
    oracle::Totals want = oracle::TotalsOf({kMost, 0x1p-149});
    EXPECT_EQ(sums.count(), uint64_t{2} << doubled);
    EXPECT_THAT(sums.sum().words(), ElementsAreArray(WordsOf(n * want.sum, -192, 6)));
    EXPECT_THAT(sums.squares().words(), ElementsAreArray(WordsOf(n * want.squares, -320, 10)));
  }
  EXPECT_EQ(sums.count(), kMaxSummed);
  const NarrowExactSums before = sums;
  const absl::Status status = sums.Merge(SumsOf<NarrowRange>({1}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "count is 9007199254740992 + 1; it must be at most 9007199254740992 together");
  EXPECT_EQ(sums, before);
  ASSERT_TRUE(DecodeExactSums<NarrowRange>(EncodeExactSums<NarrowRange>({sums})).ok());
}

TEST(ExactSumsTest, KeepApartWhatIsNotFinite) {
  const NarrowExactSums sums = SumsOf<NarrowRange>({1, kInf, kNan, 2});
  EXPECT_EQ(sums.count(), 4u);
  EXPECT_EQ(sums.non_finite(), (NonFinite{.nan = true, .positive_infinity = true}));
  EXPECT_EQ(sums.sum(), SumsOf<NarrowRange>({1, 2}).sum());
  NarrowExactSums merged = SumsOf<NarrowRange>({-kInf});
  ASSERT_TRUE(merged.Merge(sums).ok());
  EXPECT_EQ(merged.non_finite(), (NonFinite{true, true, true}));
}

// ---- Bytes ----

TEST(ExactSumsBytesTest, AreThoseOfTheDocumentedLayout) {
  const std::string bytes = EncodeExactSums<NarrowRange>({SumsOf<NarrowRange>({-1, kNan}), {}});
  ASSERT_EQ(bytes.size(), 8 + 2 * 136u);
  std::string want(8 + 2 * 136, '\0');
  want[0] = 1;  // version
  want[1] = 1;  // narrow
  want[4] = 2;  // channels
  want[8] = 2;  // elements
  want[15] = 0x20;
  std::fill(want.begin() + 16 + 24, want.begin() + 16 + 48, '\xff');  // -1 in units of 2^-192
  want[16 + 48 + 40] = 1;                                             // 1 in units of 2^-320
  EXPECT_EQ(bytes, want);
  EXPECT_EQ(EncodeExactSums<WideRange>({WideExactSums()}).size(), 8 + 816u);
  EXPECT_EQ(EncodeExactSums<WideRange>({}).size(), 8u);
}

template <typename Range, typename Any>
void ExpectRoundTrip(Any any, uint64_t seed) {
  Random random(seed);
  std::vector<ExactSums<Range>> channels(5);
  for (auto& sums : channels) {
    for (int64_t i = random.Below(20); i > 0; --i) sums.Add(any(random));
  }
  channels[3].Add(kNan);
  channels[4].Add(-kInf);
  const std::string bytes = EncodeExactSums<Range>(channels);
  const auto decoded = DecodeExactSums<Range>(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, channels);
}

TEST(ExactSumsBytesTest, ComeBackAsTheSameSums) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    ExpectRoundTrip<NarrowRange>(AnyNarrow, TestSeed() + seed);
    ExpectRoundTrip<WideRange>(AnyWide, TestSeed() + seed);
  }
}

// Whatever is done to bytes, they are refused or are the bytes of the sums that come of them.
template <typename Range, typename Any>
int64_t RefusedOf(Any any, int rounds) {
  Random random(TestSeed() + 9);
  int64_t refused = 0;
  for (int round = 0; round < rounds; ++round) {
    ExactSums<Range> sums[2];
    for (int i = 0; i < 5; ++i) sums[i % 2].Add(any(random));
    std::string bytes = EncodeExactSums<Range>(sums);
    for (int64_t change = random.Below(3); change >= 0; --change) {
      const auto at = static_cast<size_t>(random.Below(static_cast<int64_t>(bytes.size())));
      switch (random.Below(6)) {
        case 0:
          bytes.resize(at);
          break;
        case 1:
          bytes.insert(at, 1, static_cast<char>(random.Bits()));
          break;
        case 2:
          bytes[at % 24] = static_cast<char>(random.Bits());
          break;
        default:
          bytes[at] = static_cast<char>(random.Bits());
      }
      if (bytes.empty()) break;
    }
    const auto decoded = DecodeExactSums<Range>(bytes);
    refused += decoded.ok() ? 0 : 1;
    if (!decoded.ok()) {
      EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
      const auto detail = GetErrorDetail(decoded.status());
      EXPECT_TRUE(detail.has_value() && detail->field.starts_with("exact") && !detail->limit.empty());
      continue;
    }
    EXPECT_EQ(EncodeExactSums<Range>(*decoded), bytes);
    for (const auto& channel : *decoded) EXPECT_FALSE(NearestMoment(channel.Totals()).m2 < 0);
  }
  return refused;
}

TEST(ExactSumsBytesTest, AreRefusedOrCanonical) {
  constexpr int kRounds = 20'000;
  const int64_t narrow = RefusedOf<NarrowRange>(AnyNarrow, kRounds);
  EXPECT_GT(narrow, kRounds / 2);
  EXPECT_LT(narrow, kRounds) << "bytes that pass are a part of this test, too";
  const int64_t wide = RefusedOf<WideRange>(AnyWide, kRounds / 4);
  EXPECT_GT(wide, kRounds / 8);
  EXPECT_LT(wide, kRounds / 4);
}

std::string Refusal(std::string bytes) {
  const auto decoded = DecodeExactSums<NarrowRange>(bytes);
  return decoded.ok() ? "accepted" : std::string(decoded.status().message());
}
std::string With(std::string bytes, size_t at, int value) {
  bytes[at] = static_cast<char>(value);
  return bytes;
}

TEST(ExactSumsBytesTest, SayWhatIsWrong) {
  const std::string one = EncodeExactSums<NarrowRange>({SumsOf<NarrowRange>({1, 3})});
  constexpr size_t kSum = 16, kSquares = kSum + 48;
  EXPECT_EQ(Refusal(one), "accepted");
  EXPECT_EQ(Refusal(one.substr(0, 7)), "exact has 7 bytes; it must have at least 8");
  EXPECT_EQ(Refusal(one + " "), "exact has 145 bytes; it must have 144 for 1 channels");
  EXPECT_EQ(Refusal(With(one, 0, 2)), "exact.version is 2; it must be 1");
  EXPECT_EQ(Refusal(With(one, 1, 2)), "exact.range is 2; it must be 1 (f32, f16, bf16)");
  EXPECT_EQ(Refusal(With(one, 3, 1)), "exact.reserved is 256; it must be 0");
  EXPECT_EQ(Refusal(With(one, 14, 0x20)),
            "exact.channels[0].count is 9007199254740994; it must be at most 9007199254740992");
  EXPECT_EQ(Refusal(With(With(one, 8, 1), 15, 0xE0)),
            "exact.channels[0].count is 1; it must be at least 3, the kinds of elements that are not finite");
  EXPECT_EQ(Refusal(With(one, kSum, 1)),
            "exact.channels[0].sum is no multiple of 2^-149; it must be a multiple of 2^-149");
  EXPECT_EQ(Refusal(With(one, kSum + 47, 0x40)),
            "exact.channels[0].sum is beyond 2 * 2^128; it must be at most 2^128 for each of 2 finite elements");
  EXPECT_EQ(Refusal(With(one, 8, 0)),
            "exact.channels[0].sum is beyond 0 * 2^128; it must be at most 2^128 for each of 0 finite elements");
  EXPECT_EQ(Refusal(With(one, kSquares + 2, 1)),
            "exact.channels[0].squares is no multiple of 2^-298; it must be a multiple of 2^-298");
  EXPECT_EQ(Refusal(With(one, kSquares + 79, 0x80)), "exact.channels[0].squares is negative; it must be at least 0");
  EXPECT_EQ(Refusal(With(one, kSquares + 40, 7)),
            "exact.channels[0].squares is less than sum^2 / count; it must be at least that, because no variance is "
            "negative");
}

// ---- Moments by pairs ----

TEST(ExactSumsTest, APairOfASumLeavesLittleOfIt) {
  Random random(TestSeed() + 9);
  for (int round = 0; round < 2000; ++round) {
    FixedPoint<-320, 10> sum;
    const auto terms = random.Below(5);  // none: a sum of 0
    for (int64_t i = 0; i < terms; ++i) sum.Add(std::ldexp(random.Normal(), static_cast<int>(random.Below(400)) - 200));
    const DoublePair pair = PairOfSum(sum);
    FixedPoint<-320, 10> rest = sum;
    rest.Add(-pair.hi);
    EXPECT_LE(std::abs(pair.lo), std::abs(pair.hi) * 0x1p-53);
    rest.Add(-pair.lo);
    EXPECT_LE(std::abs(PairOfSum(rest).hi), std::abs(pair.hi) * 0x1p-105);
  }
}

// Moments that pairs decide, and those that they leave to integers: at the middles between two values, and 0.
template <typename Range>
void ExpectMomentOfTotals(const std::vector<double>& elements) {
  const ExactSums<Range> sums = SumsOf<Range>(elements);
  const Moment got = NearestMoment(sums), want = NearestMoment(sums.Totals());
  EXPECT_EQ(got.count, want.count);
  EXPECT_TRUE(std::bit_cast<uint64_t>(got.mean) == std::bit_cast<uint64_t>(want.mean)) << got.mean << want.mean;
  EXPECT_TRUE(std::bit_cast<uint64_t>(got.m2) == std::bit_cast<uint64_t>(want.m2)) << got.m2 << want.m2;
}

TEST(ExactSumsTest, MomentsByPairsAreThoseOfIntegers) {
  Random random(TestSeed() + 10);
  for (int round = 0; round < 500; ++round) {
    const double mean = std::ldexp(random.Normal(), static_cast<int>(random.Below(40)) - 20);
    std::vector<double> elements, integers;
    for (int64_t i = random.Below(40); i >= 0; --i) {
      elements.push_back(static_cast<float>(mean + random.Normal()));
      integers.push_back(static_cast<double>(random.Below(5)));
    }
    ExpectMomentOfTotals<NarrowRange>(elements);
    ExpectMomentOfTotals<WideRange>(elements);
    ExpectMomentOfTotals<NarrowRange>(integers);
  }
  ExpectMomentOfTotals<NarrowRange>({});
  ExpectMomentOfTotals<NarrowRange>({0.1f, 0.1f});          // m2 is 0
  ExpectMomentOfTotals<NarrowRange>({1, -1});               // the mean is 0
  ExpectMomentOfTotals<NarrowRange>({1, 1, 0x1p-52, 0});    // sum 2 + 2^-52, a middle of the mean's
  ExpectMomentOfTotals<NarrowRange>({1, 1, 0x1.8p-51, 0});  // and the other way
  ExpectMomentOfTotals<NarrowRange>({kInf, 1});
  ExpectMomentOfTotals<NarrowRange>({0x1p-149, 0x1p-148});
  ExpectMomentOfTotals<WideRange>({0x1p-1074, 0x1p-1070});    // squares that no f64 holds
  ExpectMomentOfTotals<WideRange>({0x1p+1023, 0x1.8p+1023});  // and sums
}

}  // namespace
}  // namespace normd
