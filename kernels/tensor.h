// Tensors as the kernels see them: an element type, a shape and borrowed bytes.
// In the path: made by rpc's codec over the request's bytes, read by MakePlan and the backends.
// Views never own; the bytes must outlive every call that was given the view. Any alignment, little-endian.
// Plain values: safe to copy and to read from several threads.
#ifndef NORMD_KERNELS_TENSOR_H_
#define NORMD_KERNELS_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/types.h"

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

// Where bytes lie. Only code for a space may follow its addresses: host code those of the host alone.
enum class MemoryKind : uint8_t { kHost, kCuda };
struct MemorySpace {
  MemoryKind kind = MemoryKind::kHost;
  int index = 0;  // of the device, as its driver counts them; 0 for the host

  bool is_host() const { return kind == MemoryKind::kHost; }
  bool operator==(const MemorySpace&) const = default;
};
constexpr MemorySpace CudaSpace(int device) { return {MemoryKind::kCuda, device}; }

// A piece of scattered bytes. Any length, any alignment: an element may straddle two.
using Segment = absl::Span<const std::byte>;

struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const void* data = nullptr;  // borrowed; null means "absent", or scattered over `segments`
  int64_t size_bytes = 0;
  absl::Span<const Segment> segments = {};  // borrowed, as the pieces are; none empty; where x alone may be scattered
  MemorySpace space = {};                   // where `data` lies

  bool scattered() const { return !segments.empty(); }
  bool present() const { return data != nullptr || scattered(); }
};

// Copies bytes [offset, offset + size_bytes) of the scattered bytes to `to`. REQUIRES: there are as many.
void GatherSegments(absl::Span<const Segment> segments, int64_t offset, int64_t size_bytes, void* to);

}  // namespace normd

#endif  // NORMD_KERNELS_TENSOR_H_
