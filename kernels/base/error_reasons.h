// The reasons of errors: short names that programs compare, google.rpc.ErrorInfo.reason on the wire. Every reason is
// declared once, in a list: those of tensors and specs here, those of serving in server/base/error_reasons.h. An error
// takes an ErrorReason, and an ErrorReason is made only by finding a name in a list while the program is compiled, so
// a reason that no list declares does not compile. `normd --help=errors` prints both lists. Constant data.
#ifndef NORMD_KERNELS_BASE_ERROR_REASONS_H_
#define NORMD_KERNELS_BASE_ERROR_REASONS_H_

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"

namespace normd {

struct ReasonRow {
  std::string_view name;  // UPPER_SNAKE, never renamed: callers compare it
  absl::StatusCode code;
  std::string_view meaning;
  std::string_view remedy = "Correct the request.";  // what the caller does
};

class ErrorReason {
 public:
  // The row of `rows` that is called `name`.
  template <size_t count>
  consteval ErrorReason(const ReasonRow (&rows)[count], std::string_view name) : row_(Find(rows, name)) {}

  std::string_view name() const { return row_->name; }
  absl::StatusCode code() const { return row_->code; }

 private:
  // Not constexpr, so that a call ends the compilation and the compiler's message shows this name.
  static void NoListDeclaresThisReason();

  template <size_t count>
  static consteval const ReasonRow* Find(const ReasonRow (&rows)[count], std::string_view name) {
    for (const ReasonRow& row : rows) {
      if (row.name == name) return &row;
    }
    NoListDeclaresThisReason();
    return nullptr;
  }

  const ReasonRow* row_;
};

inline constexpr ReasonRow kKernelReasons[] = {
    {"ALPHA_FWD_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument, "PowerNorm's alpha_fwd is not between 0 and 1."},
    {"AXES_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument, "More axes are listed than a tensor can have."},
    {"AXIS_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument, "An axis does not exist in x."},
    {"BAD_CUDA_HANDLE", absl::StatusCode::kInvalidArgument,
     "A CUDA IPC handle has the wrong length, or no other process has memory, or an event, behind it on the named "
     "device."},
    {"BYTE_COUNT", absl::StatusCode::kInvalidArgument, "A tensor's bytes are not as many as its dtype and shape need."},
    {"CLIP_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument, "A clip is not above 0, or not finite."},
    {"CUDA_DEVICE", absl::StatusCode::kInvalidArgument,
     "The server does not use the named CUDA device, or the handle is registered with another device already.",
     "Name a device that Describe lists."},
    {"CUDA_NOT_AVAILABLE", absl::StatusCode::kFailedPrecondition,
     "Tensors lie in CUDA memory, or memory was offered as such, and the server can use no CUDA device.",
     "Keep the tensors in the host's memory, or use a server that has the GPU."},
    {"DUPLICATE_AXIS", absl::StatusCode::kInvalidArgument, "An axis is listed twice."},
    {"EPS_MODE_NOT_SUPPORTED", absl::StatusCode::kInvalidArgument, "The method does not have this eps_mode."},
    {"EPS_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument, "eps is negative, infinite or NaN."},
    {"EXACT_SUMS_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument,
     "The bytes of exact sums are malformed, no elements have such sums, or they are of too many elements."},
    {"K_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument,
     "pRMSNorm's k, given or computed from p, is not between 1 and the last extent of x."},
    {"MISSING_FIELD", absl::StatusCode::kInvalidArgument, "A field that is needed here is absent."},
    {"MOMENTUM_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument, "momentum is not between 0 and 1."},
    {"NEGATIVE_DIMENSION", absl::StatusCode::kInvalidArgument, "A shape has a negative dimension."},
    {"NOT_ALLOWED", absl::StatusCode::kInvalidArgument, "A field is given that has no place here."},
    {"NUM_GROUPS_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument,
     "num_groups is under 1, above the number of channels, or does not divide it."},
    {"ORDER_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument, "LpNorm's order is under 1."},
    {"PARAMETER_LENGTH", absl::StatusCode::kInvalidArgument,
     "A parameter or running statistic has the wrong number of elements."},
    {"P_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument,
     "p is not above 0 and at most 1 (pRMSNorm), or is under 1 (LpNorm)."},
    {"RANK_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument, "A tensor has too few or too many dimensions."},
    {"SAMPLES_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument,
     "A prior, decay or max_count of WEIGHTING_SAMPLES is not in its range."},
    {"SHAPE_MISMATCH", absl::StatusCode::kInvalidArgument, "A tensor's shape is not the shape that is needed here."},
    {"SHAPE_OVERFLOW", absl::StatusCode::kInvalidArgument, "The product of a shape's dimensions is too large."},
    {"SINGLE_VALUE_PER_CHANNEL", absl::StatusCode::kInvalidArgument,
     "Training would compute a variance of one value per channel.",
     "Send more values, or allow it: single_value ZERO_VARIANCE."},
    {"UNKNOWN_ENUM_VALUE", absl::StatusCode::kInvalidArgument, "An enum field has a value that this server lacks."},
    {"UNKNOWN_ISA", absl::StatusCode::kInvalidArgument,
     "--max_isa names an instruction set that this machine lacks; normd does not start.", "Correct the option."},
    {"UNSUPPORTED_DTYPE", absl::StatusCode::kInvalidArgument, "A dtype is not f32, f16, bf16 or f64."},
    {"WARMUP_ITERS_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument, "PowerNorm's warmup_iters is negative."},
    {"WEIGHT_OFFSET_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument, "weight_offset is neither 0 nor 1."},
};

consteval ErrorReason KernelReason(std::string_view name) { return ErrorReason(kKernelReasons, name); }

}  // namespace normd

#endif  // NORMD_KERNELS_BASE_ERROR_REASONS_H_
