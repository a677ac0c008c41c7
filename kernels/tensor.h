// Tensors as the kernels see them: an element type, a shape and borrowed bytes.
// In the path: made by rpc's codec over the request's bytes, read by MakePlan and the backends.
// Views never own; the bytes must outlive every call that was given the view. Any alignment, little-endian.
// Plain values: safe to copy and to read from several threads.
#ifndef NORMD_KERNELS_TENSOR_H_
#define NORMD_KERNELS_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/attributes.h"

namespace normd {

// "f32", "f16", "bf16", "f64".
std::string_view Name(DType dtype);

inline constexpr int kMaxRank = 8;

using Shape = absl::InlinedVector<int64_t, kMaxRank>;

// The number of elements of `shape` (1 for rank 0). `field` is the tensor's path ("x"). INVALID_ARGUMENT naming
// "<field>.shape", or "<field>.shape[i]" for one dimension, when the rank is over kMaxRank, a dimension is negative, or
// the product of the dimensions (zero dimensions left out) times 8 bytes overflows int64.
absl::StatusOr<int64_t> CheckedElementCount(absl::Span<const int64_t> shape, std::string_view field);

// Product without checks. REQUIRES: CheckedElementCount(shape) is ok.
int64_t ElementCount(absl::Span<const int64_t> shape);

// "[2,3,5]", for messages; past 16 extents "...".
std::string ShapeText(absl::Span<const int64_t> shape);

// A piece of scattered bytes. Any length, any alignment: an element may straddle two.
using Segment = absl::Span<const std::byte>;

struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const void* data = nullptr;  // borrowed; null means "absent", or scattered over `segments`
  int64_t size_bytes = 0;
  absl::Span<const Segment> segments = {};  // borrowed, as the pieces are; none empty; where x alone may be scattered
  std::optional<int> cuda_device =
      std::nullopt;  // where `data` lies, and the host must not follow it; absent: the host

  bool scattered() const { return !segments.empty(); }
  bool in_cuda() const { return cuda_device.has_value(); }
  bool present() const { return data != nullptr || scattered(); }
};

// Copies bytes [offset, offset + size_bytes) of the scattered bytes to `to`. REQUIRES: there are as many.
void GatherSegments(absl::Span<const Segment> segments, int64_t offset, int64_t size_bytes, void* to);

struct MutableTensorView {
  DType dtype = DType::kF32;
  void* data = nullptr;  // borrowed; null means "not wanted"
};

}  // namespace normd

#endif  // NORMD_KERNELS_TENSOR_H_
