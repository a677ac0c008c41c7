// Exact sums (kernels/exact_sums/) beside the plain f64 sums of the same elements, and what becomes of them: one
// thread.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/strings.h"
#include "kernels/cpu/exact_sums.h"
#include "kernels/cpu/kernels.h"
#include "kernels/exact_sums/bytes.h"
#include "kernels/exact_sums/nearest_moments.h"
#include "kernels/exact_sums/nearest_step.h"
#include "tests/bench/comparison.h"
#include "tests/bench/kernels/kernel_comparison.h"
#include "tests/bench/machine.h"
#include "tests/support/random.h"

namespace normd::bench {

namespace {

struct SumShape {
  std::string_view name;
  DType dtype;
  int64_t positions, columns;  // 1 column: a row
};

// What exponents elements have; kWide: all of them.
enum class Exponents : uint8_t { kNormal, kForty, kWide };

uint64_t ElementBits(DType dtype, Exponents exponents, Random& random) {
  double x = 0.3 + random.Normal();
  if (exponents == Exponents::kForty) x = std::ldexp(x, -static_cast<int>(random.Below(36)));
  const bool any = exponents == Exponents::kWide;
  if (dtype == DType::kF64)
    return std::bit_cast<uint64_t>(any ? std::ldexp(x, static_cast<int>(random.Below(1900)) - 950) : x);
  if (any) x = std::ldexp(x, static_cast<int>(random.Below(240)) - 125);
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
  return dtype == DType::kF32 ? bits : bits >> 16;
}

// Elements of f32, bf16 or f64, of which a few million are repeated.
std::vector<std::byte> MakeElements(DType dtype, Exponents exponents, int64_t n) {
  const auto size = static_cast<size_t>(SizeOf(dtype));
  std::vector<std::byte> bytes(static_cast<size_t>(n) * size);
  const int64_t period = std::min<int64_t>(n, 1 << 20);
  Random random(3);
  for (int64_t i = 0; i < period; ++i) {
    const uint64_t bits = ElementBits(dtype, exponents, random);
    std::memcpy(bytes.data() + static_cast<size_t>(i) * size, &bits, size);
  }
  for (int64_t at = period; at < n; at += period) {
    std::memcpy(bytes.data() + static_cast<size_t>(at) * size, bytes.data(),
                static_cast<size_t>(std::min(period, n - at)) * size);
  }
  return bytes;
}

// The plain sums of a training step, as the backend takes them: blocks of positions, or chunks of a row.
void SumPlainly(const SumShape& shape, const void* x, std::vector<double>& scratch, std::vector<PairSums>& chunks) {
  const cpu::Elements elements = {.dtype = shape.dtype, .data = x};
  if (shape.columns == 1) {
    const cpu::RowChunks row = {.x = elements, .n = shape.positions};
    chunks.resize(static_cast<size_t>(order::RowChunks(shape.positions)));
    return cpu::ReduceRowChunks({}, row, 0, order::RowChunks(shape.positions), chunks.data());
  }
  const int64_t room = cpu::RoomOf(shape.columns);
  scratch.assign(static_cast<size_t>(4 * room), 0);
  double* const sums = scratch.data();
  for (int64_t p = 0; p < shape.positions; p += order::kColumnBlock) {
    const cpu::ColumnBlock block = {.x = elements.At(p * shape.columns),
                                    .positions = std::min(order::kColumnBlock, shape.positions - p),
                                    .columns = shape.columns,
                                    .stride = shape.columns};
    cpu::ReduceNarrowColumnBlock(Statistic::kMeanVariance, Precision::kExact, block, sums, sums + room);
    cpu::AddSums(sums, 2 * room, sums + 2 * room);
  }
}

template <typename Sums>
void SumExactly(const SumShape& shape, const void* x, std::vector<Sums>& sums) {
  sums.assign(static_cast<size_t>(shape.columns), Sums());
  if (shape.columns == 1) return cpu::AddExactly({.dtype = shape.dtype, .data = x, .n = shape.positions}, sums.data());
  cpu::AddExactly({.dtype = shape.dtype,
                   .data = x,
                   .positions = shape.positions,
                   .columns = shape.columns,
                   .stride = shape.columns},
                  sums.data());
}

// Nanoseconds a unit of work, each candidate's median.
std::vector<double> Nanoseconds(const Flags& flags, double units,
                                const std::vector<std::function<void()>>& candidates) {
  const double least = flags.Pick(0.02, 0.005, 0.0);  // seconds of a round
  const auto run = [&](size_t candidate, bool /*warm_up*/) -> absl::StatusOr<double> {
    int64_t calls = 0;
    const absl::Time begin = SteadyNow();
    double seconds = 0;
    do {
      candidates[candidate]();
      ++calls;
      seconds = absl::ToDoubleSeconds(SteadyNow() - begin);
    } while (seconds < least);
    return seconds / static_cast<double>(calls) / units * 1e9;
  };
  std::vector<double> medians;
  const auto rounds = Interleave<double>(candidates.size(), flags.Pick(15, 5, 1), run);
  for (const std::vector<double>& times : *rounds) medians.push_back(Median(times));
  return medians;
}

void AddShape(const Flags& flags, const SumShape& shape, Exponents exponents, Report* report) {
  const int64_t n = shape.positions * shape.columns;
  const std::vector<std::byte> x = MakeElements(shape.dtype, exponents, n);
  std::vector<double> scratch;
  std::vector<PairSums> chunks;
  std::vector<NarrowExactSums> narrow;
  std::vector<WideExactSums> wide;
  std::vector<std::function<void()>> candidates = {[&] {
    if (shape.dtype == DType::kF64) return SumExactly(shape, x.data(), wide);
    SumExactly(shape, x.data(), narrow);
  }};
  if (shape.dtype != DType::kF64) candidates.emplace_back([&] { SumPlainly(shape, x.data(), scratch, chunks); });
  const std::vector<double> times = Nanoseconds(flags, static_cast<double>(n), candidates);
  const Cell per_byte = Amount(times[0] / static_cast<double>(SizeOf(shape.dtype)));
  const std::string_view suffix = exponents == Exponents::kNormal  ? ""
                                  : exponents == Exponents::kForty ? ", 36 exponents"
                                                                   : ", all exponents";
  const std::string name = Concat(shape.name, " ", shape.positions, "x", shape.columns, suffix);
  if (times.size() == 1) return report->Row(name, {{}, Amount(times[0]), {}, per_byte});
  report->Row(name, {Amount(times[1]), Amount(times[0]), Ratio(times[0] / times[1]), per_byte});
}

template <typename Range>
void AddState(const Flags& flags, std::string_view name, DType dtype, Report* report) {
  constexpr int64_t kChannels = 256;
  const SumShape shape = {.name = name, .dtype = dtype, .positions = 64, .columns = kChannels};
  const std::vector<std::byte> x = MakeElements(dtype, Exponents::kWide, shape.positions * shape.columns);
  std::vector<ExactSums<Range>> sums;
  SumExactly(shape, x.data(), sums);
  const std::string bytes = EncodeExactSums<Range>(sums);
  const StepWeight weight = StepWeight::Of({}, 1);
  double kept = 0;
  const std::vector<double> times =
      Nanoseconds(flags, kChannels * 1e3,
                  {[&] { kept += DecodeExactSums<Range>(bytes).ok() ? 1 : 0; },
                   [&] {
                     for (auto& channel : sums) kept += NearestMoment(channel.Totals()).m2;
                   },
                   [&] {
                     for (auto& channel : sums) {
                       StepStatistics step;
                       step.Add(channel.Totals());
                       kept += step.NextMean(weight, 0.5) + step.NextVariance(weight, RunningVariance::kUnbiased, 0.5);
                     }
                   },
                   [&] {
                     for (auto& channel : sums)
                       kept += NearestMerge({{3, 0}, {0.1, 0}, {7, 0}}, 1, channel.Totals()).m2.hi;
                   }});
  if (kept == 0.125) report->Note("kept", "so that nothing is left out");
  const double nanoseconds_a_byte = times[0] * 1e3 * kChannels / static_cast<double>(bytes.size());
  report->Row(std::string(name),
              {Amount(times[0]), Amount(nanoseconds_a_byte), Amount(times[1]), Amount(times[2]), Amount(times[3])});
}

}  // namespace

void MeasureExactSums(const Flags& flags, Report* report) {
  report->Table("ns an element, one thread: sums of x and x^2",
                {"plain f64", "exact", "exact/plain", "exact, ns a byte"});
  for (const SumShape& shape : {SumShape{"columns f32 L2", DType::kF32, 1024, 256},
                                {"columns f32 L3", DType::kF32, 8192, 512},
                                {"columns f32 DRAM", DType::kF32, 131072, 512},
                                {"columns f32 DRAM narrow", DType::kF32, 524288, 64},
                                {"columns bf16 L2", DType::kBF16, 1024, 256},
                                {"columns bf16 DRAM", DType::kBF16, 131072, 512},
                                {"row f32 L2", DType::kF32, 1 << 17, 1},
                                {"row f32 L3", DType::kF32, 1 << 22, 1},
                                {"row f32 DRAM", DType::kF32, 1 << 26, 1},
                                {"row bf16 L2", DType::kBF16, 1 << 17, 1},
                                {"row bf16 DRAM", DType::kBF16, 1 << 26, 1}}) {
    if (flags.smoke && shape.positions * shape.columns > 1 << 22) continue;
    AddShape(flags, shape, Exponents::kNormal, report);
  }
  for (const Exponents exponents : {Exponents::kNormal, Exponents::kForty, Exponents::kWide}) {
    for (const SumShape& shape : {SumShape{"columns f32 L2", DType::kF32, 1024, 256},
                                  {"row f32 L2", DType::kF32, 1 << 17, 1},
                                  {"columns bf16 L2", DType::kBF16, 1024, 256},
                                  {"columns f64 L2", DType::kF64, 1024, 128},
                                  {"row f64 L2", DType::kF64, 1 << 16, 1}}) {
      if (exponents == Exponents::kNormal && shape.dtype != DType::kF64) continue;
      AddShape(flags, shape, exponents, report);
    }
  }
  report->Table("us a channel, all exponents", {"decode", "decode, ns a byte", "moments", "step", "merge of samples"});
  AddState<NarrowRange>(flags, "f32", DType::kF32, report);
  AddState<WideRange>(flags, "f64", DType::kF64, report);
}

}  // namespace normd::bench
