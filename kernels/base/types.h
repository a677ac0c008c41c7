// The closed sets of choices that specs, plans and kernels are made of; kernels/spec.h explains the attributes. Values
// equal the wire's enum numbers. 0 on the wire means "not given" and is resolved before it gets here (a Layout alone
// may stay unspecified).
// In the path: the codec casts the wire's enums to these types, and all layers below use them. Standard headers only,
// because device code includes this file. Plain values.
#ifndef NORMD_KERNELS_BASE_TYPES_H_
#define NORMD_KERNELS_BASE_TYPES_H_

#include <cstdint>

namespace normd {

enum class DType : uint8_t { kF32 = 1, kF16 = 2, kBF16 = 3, kF64 = 4 };

// Every dtype, declared once. The enumerators equal the wire's DType numbers.
inline constexpr DType kAllDTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64};

// Bytes of one element; 0 for a number that is no DType.
constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kF32:
      return 4;
    case DType::kF64:
      return 8;
  }
  return 0;
}

enum class Layout : uint8_t { kUnspecified = 0, kChannelsFirst = 1, kChannelsLast = 2 };
enum class EpsMode : uint8_t { kInsideSqrt = 1, kAddToRoot = 2, kClampRoot = 3 };
enum class CastOrder : uint8_t { kAffineThenCast = 1, kCastThenAffine = 2 };
enum class MomentumOf : uint8_t { kNew = 1, kOld = 2 };
enum class RunningVariance : uint8_t { kUnbiased = 1, kBiased = 2 };
enum class SingleValue : uint8_t { kRefuse = 1, kZeroVariance = 2 };
enum class KRounding : uint8_t { kCeil = 1, kFloor = 2 };
enum class Mode : uint8_t { kInference = 1, kTraining = 2 };
enum class Precision : uint8_t { kExact = 1, kFast = 2 };
enum class ResidualRounding : uint8_t { kRoundFirst = 1, kKeepWide = 2 };

// What the reduce pass computes of the elements x of a group.
enum class Statistic : uint8_t {
  kMeanVariance,  // mean, and M2 = sum of (x - mean)^2; S = M2 / n
  kMeanSquare,    // sum of squares; S = sum / n (RMSNorm, pRMSNorm, PowerNorm)
  kSumSquares,    // sum of squares; S = sum (ScaleNorm, L2)
  kAbsSum,        // sum of |x|; R = sum (L1)
  kPowerSum,      // R = the p-th root of the sum of |x|^p (Lp), see kernels/power_sum.h
  kMaxAbs,        // R = the largest |x| (L-infinity)
};

// True for statistics that need the largest |x| first. They are calculated in f64 pairs whatever the dtype is.
constexpr bool SumsPowers(Statistic statistic) {
  return statistic == Statistic::kPowerSum || statistic == Statistic::kMaxAbs;
}

// The two access patterns of the kernels: the innermost extent is reduced (kRows) or kept (kColumns).
enum class Pattern : uint8_t { kRows, kColumns };

// How the index of a parameter follows from the place of an element: one for each element of a group, or one for each
// channel. See NormPlan.
enum class AffineIndex : uint8_t { kElement, kChannel };

}  // namespace normd

#endif  // NORMD_KERNELS_BASE_TYPES_H_
