// Tensors as the kernels see them: an element type, a shape and borrowed bytes.
// In the path: rpc's codec makes views over the bytes of a request, MakePlan and the backends read them.
// Ownership: a view never owns; the bytes must outlive every call that was given the view. Bytes are little-endian and
// may have any alignment.
// Threads: plain values, safe to copy and to read from several threads.
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

// "f32", "f16", "bf16" or "f64"; "unknown" for a number that is no DType.
std::string_view Name(DType dtype);

inline constexpr int kMaxRank = 8;

using Shape = absl::InlinedVector<int64_t, kMaxRank>;

// The number of elements of `shape`; 1 for rank 0. `field` is the tensor's path ("x"). INVALID_ARGUMENT naming
// "<field>.shape", or "<field>.shape[i]" for one dimension, if the rank is over kMaxRank, a dimension is negative, or 8
// bytes times the product of the non-zero dimensions overflows int64.
absl::StatusOr<int64_t> CheckedElementCount(absl::Span<const int64_t> shape, std::string_view field);

// The product of the dimensions, unchecked. REQUIRES: CheckedElementCount(shape) is ok.
int64_t ElementCount(absl::Span<const int64_t> shape);

// The shape for messages, "[2,3,5]". After 16 dimensions the text ends in "...".
std::string ShapeText(absl::Span<const int64_t> shape);

// The memory in which bytes lie. Host code may dereference addresses of the host alone, and the kernels of a device
// those of its own memory.
enum class MemoryKind : uint8_t { kHost, kCuda };
struct MemorySpace {
  MemoryKind kind = MemoryKind::kHost;
  int index = 0;  // the driver's number of the device; 0 for the host

  bool is_host() const { return kind == MemoryKind::kHost; }
  bool operator==(const MemorySpace&) const = default;
};
// The memory of CUDA device `device`.
constexpr MemorySpace CudaSpace(int device) { return {MemoryKind::kCuda, device}; }

// A piece of scattered bytes, of any length and alignment: an element may straddle two pieces.
using Segment = absl::Span<const std::byte>;

// A borrowed tensor: absent, contiguous at `data`, or scattered over `segments`.
struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const void* data = nullptr;  // null: absent, or scattered over `segments`
  int64_t size_bytes = 0;
  // The pieces of a scattered tensor in order, none empty. Both the list and the pieces are borrowed. Only x may be
  // scattered.
  absl::Span<const Segment> segments = {};
  MemorySpace space = {};  // the memory of `data`; segments are in host memory

  bool scattered() const { return !segments.empty(); }
  bool present() const { return data != nullptr || scattered(); }
};

// Copies bytes [offset, offset + size_bytes) of the scattered bytes to `to`. REQUIRES: `segments` have at least that
// many.
void GatherSegments(absl::Span<const Segment> segments, int64_t offset, int64_t size_bytes, void* to);

}  // namespace normd

#endif  // NORMD_KERNELS_TENSOR_H_
