// The golden norm as a C interface: one call normalises tensors in this process, and every result is the value of its
// type that is nearest to the real-number formula on the inputs as given, ties to even. For tests of kernels, from
// C, C++ or any language that calls C; src/normd_golden is the Python package over it.
//
//   float x[4] = {1, 2, 3, 4}, y[4];
//   normd_golden_call call = {0};
//   call.spec.method = NORMD_RMS_NORM;
//   call.x = (normd_golden_tensor){x, NORMD_F32, 1, {4}};
//   call.y = y;
//   char error[256];
//   if (normd_golden_run(&call, error, sizeof error) != 0) puts(error);
//
// Ownership: all pointers are borrowed until the function returns. Threads: a call runs on the caller's thread and
// shares nothing with other calls.
#ifndef NORMD_KERNELS_PYTHON_GOLDEN_H_
#define NORMD_KERNELS_PYTHON_GOLDEN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// NOLINTBEGIN(readability-identifier-naming): C has no namespaces, so its names begin with that of the library.
#define NORMD_GOLDEN_EXPORT __attribute__((visibility("default")))
#define NORMD_GOLDEN_MAX_RANK 8

// Numbers as in normd's contract (proto/normd/v1). 0 stands for an absent tensor, or for an attribute's default.
enum normd_golden_dtype { NORMD_ABSENT, NORMD_F32, NORMD_F16, NORMD_BF16, NORMD_F64 };
enum normd_golden_method {
  NORMD_BATCH_NORM = 1,
  NORMD_LAYER_NORM,
  NORMD_INSTANCE_NORM,
  NORMD_GROUP_NORM,
  NORMD_RMS_NORM,
  NORMD_P_RMS_NORM,
  NORMD_SCALE_NORM,
  NORMD_LP_NORM,
  NORMD_POWER_NORM
};
enum normd_golden_eps_mode { NORMD_INSIDE_SQRT = 1, NORMD_ADD_TO_ROOT, NORMD_CLAMP_ROOT };
enum normd_golden_cast_order { NORMD_AFFINE_THEN_CAST = 1, NORMD_CAST_THEN_AFFINE };
enum normd_golden_layout { NORMD_CHANNELS_FIRST = 1, NORMD_CHANNELS_LAST };
enum normd_golden_k_rounding { NORMD_K_CEIL = 1, NORMD_K_FLOOR };
enum normd_golden_residual_rounding { NORMD_ROUND_FIRST = 1, NORMD_KEEP_WIDE };

// A dense row-major tensor of any alignment. All zeros: absent.
typedef struct normd_golden_tensor {
  const void* data;
  int32_t dtype;
  int32_t rank;
  int64_t shape[NORMD_GOLDEN_MAX_RANK];
} normd_golden_tensor;

// A method with its attributes; zeros are the defaults of kernels/README.md, which `layout` has not. Attributes of
// other methods are ignored.
typedef struct normd_golden_spec {
  int32_t method, eps_mode, cast_order;
  int32_t layout;  // BatchNorm, InstanceNorm and GroupNorm, which must have one
  int32_t k_rounding;
  int32_t has_eps, has_p;    // non-zero: `eps`, `p` are given
  int32_t affine_per_group;  // GroupNorm
  double eps, weight_offset;
  double p;            // pRMSNorm: k = p * d; LpNorm: the power
  int64_t k;           // pRMSNorm; 0: absent
  int64_t num_groups;  // GroupNorm and PowerNorm; 0: 1
  int32_t normalized_rank, num_axes;
  int64_t normalized_shape[NORMD_GOLDEN_MAX_RANK];  // LayerNorm and RMSNorm, or `axes`
  int64_t axes[NORMD_GOLDEN_MAX_RANK];              // LayerNorm, RMSNorm and LpNorm
} normd_golden_spec;

typedef struct normd_golden_call {
  normd_golden_spec spec;
  int32_t training;           // BatchNorm and PowerNorm: non-zero uses the statistics of x, 0 those that are given
  int32_t residual_rounding;  // 0: ROUND_FIRST
  normd_golden_tensor x, weight, bias;
  normd_golden_tensor residual;  // h = x + residual_scale * residual is normalised instead of x
  double residual_scale;         // has no default: 1 adds the residual as it is
  // [num_given] each: BatchNorm's running mean and variance, both given; PowerNorm's phi is the variance.
  const double *given_mean, *given_variance;
  int64_t num_given;
  const uint8_t* mask;  // one byte a position, 0 leaves it out of the statistics; null: all positions count
  int64_t num_positions;
  // Outputs, null where not wanted. y and h are like x; mean and inverse_std have the shape and the dtype of the plan.
  void *y, *h, *mean, *inverse_std;
} normd_golden_call;

typedef struct normd_golden_plan_info {
  int32_t nearest;           // 1: y is the nearest value; 0: BOUNDED, within 1 ulp (f64: 4 ulp) of it
  int32_t statistics_dtype;  // of mean and inverse_std
  int32_t statistics_rank;
  int32_t parameter_rank;
  int64_t statistics_shape[NORMD_GOLDEN_MAX_RANK];
  int64_t parameter_shape[NORMD_GOLDEN_MAX_RANK];  // of weight and bias; rank 0: the method takes none
  int64_t k;                                       // pRMSNorm's; else 0
} normd_golden_plan_info;

// Both return 0, or 1 with a sentence that names argument, value and limit in `error` (cut to `error_bytes`, ends in
// 0). The outputs are undefined then. normd_golden_plan checks the call without reading or writing any element.
NORMD_GOLDEN_EXPORT int normd_golden_plan(const normd_golden_call* call, normd_golden_plan_info* info, char* error,
                                          size_t error_bytes);
NORMD_GOLDEN_EXPORT int normd_golden_run(const normd_golden_call* call, char* error, size_t error_bytes);

// What the nearest f64 leaves out of y, for elements of a call whose x is f64.
typedef struct normd_golden_exact_values {
  const int64_t* elements;  // indices in memory order; null: all
  int64_t count;
  double *low, *bound;  // of the size of y
} normd_golden_exact_values;

// Writes for each of the elements the f64 `low` that is nearest to what y leaves out of the real number of the formula,
// and its `bound`: the number lies within it of y + low, to about 100 bits. `call` is one that normd_golden_run has
// done, and y is read. Leaves the numbers of elements alone where y is all that is known: where it or its group is not
// finite, and of LpNorm with a p other than 1, 2 and infinity. x, and a residual, must be f64, the cast order
// AFFINE_THEN_CAST. Returns as normd_golden_run does.
NORMD_GOLDEN_EXPORT int normd_golden_exact(const normd_golden_call* call, const normd_golden_exact_values* values,
                                           char* error, size_t error_bytes);

// The sizes of normd_golden_call and normd_golden_plan_info, by which a caller of another language finds out that its
// structs are others.
NORMD_GOLDEN_EXPORT size_t normd_golden_call_bytes(void);
NORMD_GOLDEN_EXPORT size_t normd_golden_plan_info_bytes(void);
// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NORMD_KERNELS_PYTHON_GOLDEN_H_
