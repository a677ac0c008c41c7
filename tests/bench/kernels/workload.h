// What is compared: an operation on a shape and dtype, in one regime of memory. The shapes are those of models in use,
// each once in every regime that its rows or images allow: as listed where that lies in the regime, else with more or
// fewer rows (images). Plain values.
#ifndef NORMD_TESTS_BENCH_KERNELS_WORKLOAD_H_
#define NORMD_TESTS_BENCH_KERNELS_WORKLOAD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/plan.h"
#include "tests/bench/suite.h"

namespace normd::bench {

enum class Op : uint8_t { kLayer, kRms, kPRms, kScale, kBatchTraining, kBatchInference, kGroup, kInstance };

// Where x and y lie, by their bytes. kBetween: in none of the three, or partly in two.
enum class Regime : uint8_t { kL2, kL3, kDram, kBetween };
std::string_view RegimeName(Regime regime);  // "L2"
std::string_view OpName(Op op);              // "BN-train"

inline constexpr int64_t kMaxL2Bytes = 512 << 10;
inline constexpr int64_t kMinL3Bytes = 1 << 20, kMaxL3Bytes = 24 << 20;
inline constexpr int64_t kGroups = 32;      // of GroupNorm
inline constexpr double kPartial = 0.0625;  // p of pRMSNorm

// What x holds. The others than kNormal are hard to round to the nearest value.
enum class Fill : uint8_t {
  kNormal,    // 3 N + 1
  kConstant,  // 0.75 throughout
  kZeros,
  kSteps,  // integers from -2 to 2 in turn, so that a fifth of the elements are the mean
  kSigns,  // 1 and -1 in turn; with an eps of 0, elements are ties
};
std::string_view FillName(Fill fill);  // "signs"

struct Workload {
  Op op = Op::kLayer;
  Layout layout = Layout::kUnspecified;  // kUnspecified: rows
  int64_t outer = 1;                     // rows, or images
  int64_t channels = 1;                  // 1 for rows
  int64_t side = 1;                      // of a square image
  int64_t row = 1;                       // elements of a row; 1 for images
  DType dtype = DType::kF32;
  Regime regime = Regime::kBetween;
  Fill fill = Fill::kNormal;
  std::optional<double> eps = {};  // absent: the default
  bool keeps_moments = true;       // of BatchNorm's training, for the running statistics

  bool IsRows() const { return layout == Layout::kUnspecified; }
  int64_t OuterElements() const { return channels * side * side * row; }
  int64_t Elements() const { return outer * OuterElements(); }
  // Of x read and y written: what GB/s count.
  int64_t Bytes() const { return 2 * Elements() * SizeOf(dtype); }
  std::vector<int64_t> ShapeOf() const;
  // "LN f32 256x768", "BN-train bf16 nchw 8x64@112"
  std::string Name() const;
  // "L3 LN f32 256x768"
  std::string FullName() const;
  // The same without dtype and number of rows or images: what differs in nothing else is comparable.
  std::string Kind() const;

  NormSpec Spec() const;
  PlanOptions Options(Precision precision) const;
  bool TakesBias() const { return op != Op::kScale && op != Op::kRms && op != Op::kPRms; }
};

// 4 times the last-level cache, of which no more than 128 MiB are counted: larger ones are shared by many.
int64_t DramBytes();

// The list, or of it what `flags` choose by "REGIME NAME"; those that fit no regime are kBetween. --quick: f16 on rows
// alone; from DRAM only the first shape of an operation and layout, there bf16 on rows and no f16. --smoke: L2 alone.
std::vector<Workload> Workloads(const Flags& flags);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_KERNELS_WORKLOAD_H_
