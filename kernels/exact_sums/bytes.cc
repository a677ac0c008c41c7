#include "kernels/exact_sums/bytes.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "kernels/exact_sums/nearest_moments.h"

namespace normd {
namespace {

using slow_road::Dyadic;

constexpr uint64_t kVersion = 1;
constexpr ErrorReason kExactSumsReason = KernelReason("EXACT_SUMS_OUT_OF_RANGE");

constexpr size_t kHeaderBytes = 8;
constexpr uint64_t kNaNBit = uint64_t{1} << 61, kPositiveBit = uint64_t{1} << 62, kNegativeBit = uint64_t{1} << 63;

template <typename Range>
constexpr uint64_t kRangeNumber = 0;
template <>
constexpr uint64_t kRangeNumber<NarrowRange> = 1;
template <>
constexpr uint64_t kRangeNumber<WideRange> = 2;

template <typename Range>
constexpr size_t kChannelBytes = sizeof(uint64_t) + sizeof(typename Range::Sum::Words) +
                                 sizeof(typename Range::Squares::Words);
static_assert(kChannelBytes<NarrowRange> == 136 && kChannelBytes<WideRange> == 816);

static_assert(std::endian::native == std::endian::little, "words are copied, not swapped");

void Append(uint64_t value, size_t count, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), count);
}

template <typename Words>
void AppendWords(const Words& words, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(words.data()), sizeof(words));
}

uint64_t Read(std::string_view bytes, size_t at, int count) {
  uint64_t value = 0;
  for (int i = count - 1; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[at + static_cast<size_t>(i)]);
  return value;
}

template <typename Words>
Words ReadWords(std::string_view bytes, size_t at) {
  Words words;
  std::memcpy(words.data(), bytes.data() + at, sizeof(words));
  return words;
}

absl::Status Malformed(std::string_view field, std::string_view value, std::string_view limit) {
  return OutOfRangeError(field, value, limit, kExactSumsReason);
}

absl::Status CheckHeader(std::string_view bytes, uint64_t range, size_t channel_bytes) {
  if (bytes.size() < kHeaderBytes) {
    return AmountError("exact", Concat(bytes.size(), " bytes"), Concat("at least ", kHeaderBytes), kExactSumsReason);
  }
  if (const uint64_t version = Read(bytes, 0, 1); version != kVersion) {
    return Malformed("exact.version", Concat(version), Concat(kVersion));
  }
  if (const uint64_t got = Read(bytes, 1, 1); got != range) {
    const bool is_known = got == kRangeNumber<NarrowRange> || got == kRangeNumber<WideRange>;
    const std::string_view limit = !is_known    ? "1 (f32, f16, bf16) or 2 (f64)"
                                   : range == 1 ? "1 (f32, f16, bf16)"
                                                : "2 (f64)";
    return Malformed("exact.range", Concat(got), limit);
  }
  if (const uint64_t reserved = Read(bytes, 2, 2); reserved != 0) {
    return Malformed("exact.reserved", Concat(reserved), "0");
  }
  const uint64_t channels = Read(bytes, 4, 4);
  const uint64_t want = kHeaderBytes + channels * channel_bytes;
  if (bytes.size() == want) return absl::OkStatus();
  return AmountError("exact", Concat(bytes.size(), " bytes"), Concat(want, " for ", channels, " channels"),
                     kExactSumsReason);
}

absl::Status CheckCount(uint64_t count, const NonFinite& non_finite) {
  if (count > kMaxSummed) return Malformed("count", Concat(count), Concat("at most ", kMaxSummed));
  const uint64_t kinds =
      uint64_t{non_finite.nan} + uint64_t{non_finite.positive_infinity} + uint64_t{non_finite.negative_infinity};
  if (kinds > count) {
    return Malformed("count", Concat(count), Concat("at least ", kinds, ", the kinds of elements that are not finite"));
  }
  return absl::OkStatus();
}

// Whether `number` is a multiple of 2^exponent.
bool IsMultipleOf(const Dyadic& number, int64_t exponent) {
  const int64_t below = exponent - number.exponent();
  if (number.sign() == 0 || below <= 0) return true;
  if (below >= 64) return false;  // its lowest word is not 0
  return number.word(0) << (64 - below) == 0;
}

// Checks a sum of at most `finite` terms that are multiples of 2^grid and under 2^top.
absl::Status CheckSum(std::string_view field, const Dyadic& sum, uint64_t finite, int64_t grid, int64_t top) {
  if (!IsMultipleOf(sum, grid)) {
    return Malformed(field, Concat("no multiple of 2^", grid), Concat("a multiple of 2^", grid));
  }
  if (Compare(sum.Magnitude(), Dyadic(1, finite, top)) > 0) {
    return Malformed(field, Concat("beyond ", finite, " * 2^", top),
                     Concat("at most 2^", top, " for each of ", finite, " finite elements"));
  }
  return absl::OkStatus();
}

template <typename Range>
absl::Status CheckSums(const ExactSums<Range>& sums) {
  NORMD_RETURN_IF_ERROR(CheckCount(sums.count(), sums.non_finite()));
  const NonFinite& flags = sums.non_finite();
  ExactTotals totals = sums.Totals();
  totals.count -= uint64_t{flags.nan} + uint64_t{flags.positive_infinity} + uint64_t{flags.negative_infinity};
  NORMD_RETURN_IF_ERROR(CheckSum("sum", totals.sum, totals.count, Range::kGrid, Range::kTop));
  if (totals.squares.sign() < 0) return Malformed("squares", "negative", "at least 0");
  NORMD_RETURN_IF_ERROR(CheckSum("squares", totals.squares, totals.count, 2 * Range::kGrid, 2 * Range::kTop));
  if (ScaledVariance(totals).sign() >= 0) return absl::OkStatus();
  return Malformed("squares", "less than sum^2 / count", "at least that, because no variance is negative");
}

template <typename Range>
ExactSums<Range> ReadSums(std::string_view channel) {
  const uint64_t head = Read(channel, 0, 8);
  const NonFinite non_finite = {.nan = (head & kNaNBit) != 0,
                                .positive_infinity = (head & kPositiveBit) != 0,
                                .negative_infinity = (head & kNegativeBit) != 0};
  using SumWords = typename Range::Sum::Words;
  const auto sum = Range::Sum::FromWords(ReadWords<SumWords>(channel, 8));
  const auto squares =
      Range::Squares::FromWords(ReadWords<typename Range::Squares::Words>(channel, 8 + sizeof(SumWords)));
  return ExactSums<Range>::FromParts(head & (kNaNBit - 1), non_finite, sum, squares);
}

}  // namespace

template <typename Range>
std::string EncodeExactSums(absl::Span<const ExactSums<Range>> channels) {
  std::string bytes;
  bytes.reserve(kHeaderBytes + channels.size() * kChannelBytes<Range>);
  Append(kVersion, 1, &bytes);
  Append(kRangeNumber<Range>, 1, &bytes);
  Append(0, 2, &bytes);
  Append(channels.size(), 4, &bytes);
  for (const ExactSums<Range>& sums : channels) {
    const NonFinite& flags = sums.non_finite();
    const uint64_t bits = (flags.nan ? kNaNBit : 0) | (flags.positive_infinity ? kPositiveBit : 0) |
                          (flags.negative_infinity ? kNegativeBit : 0);
    Append(sums.count() | bits, 8, &bytes);
    AppendWords(sums.sum().words(), &bytes);
    AppendWords(sums.squares().words(), &bytes);
  }
  return bytes;
}

template <typename Range>
absl::StatusOr<std::vector<ExactSums<Range>>> DecodeExactSums(std::string_view bytes) {
  constexpr size_t kSize = kChannelBytes<Range>;
  NORMD_RETURN_IF_ERROR(CheckHeader(bytes, kRangeNumber<Range>, kSize));
  std::vector<ExactSums<Range>> channels;
  channels.reserve(bytes.size() / kSize);
  for (size_t at = kHeaderBytes; at < bytes.size(); at += kSize) {
    channels.push_back(ReadSums<Range>(bytes.substr(at, kSize)));
    const absl::Status status = CheckSums(channels.back());
    if (!status.ok()) return PrefixField(status, Concat("exact.channels[", channels.size() - 1, "]"));
  }
  return channels;
}

bool IsWideExactSums(std::string_view bytes) {
  return bytes.size() >= kHeaderBytes && Read(bytes, 1, 1) == kRangeNumber<WideRange>;
}

template std::string EncodeExactSums<NarrowRange>(absl::Span<const NarrowExactSums>);
template std::string EncodeExactSums<WideRange>(absl::Span<const WideExactSums>);
template absl::StatusOr<std::vector<NarrowExactSums>> DecodeExactSums<NarrowRange>(std::string_view);
template absl::StatusOr<std::vector<WideExactSums>> DecodeExactSums<WideRange>(std::string_view);

}  // namespace normd
