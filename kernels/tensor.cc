#include "kernels/tensor.h"

#include <cstring>
#include <limits>

#include "kernels/base/errors.h"
#include "kernels/base/strings.h"

namespace normd {

namespace {

// Counted in the widest element, so that a shape is refused either for every dtype or for none.
constexpr int64_t kMaxElements = std::numeric_limits<int64_t>::max() / SizeOf(DType::kF64);

// Enough dimensions to recognise a shape, and few enough that a hostile shape cannot fill a message.
constexpr size_t kShownExtents = 16;

}  // namespace

std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF64:
      return "f64";
  }
  return "unknown";
}

absl::StatusOr<int64_t> CheckedElementCount(absl::Span<const int64_t> shape, std::string_view field) {
  const std::string path = Concat(field, ".shape");
  if (shape.size() > kMaxRank) return RankError(path, static_cast<int64_t>(shape.size()), 1, kMaxRank);
  int64_t product = 1;
  bool empty = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) return DimensionError(Concat(path, "[", i, "]"), shape[i]);
  }
  for (const int64_t extent : shape) {
    if (extent == 0) {
      empty = true;  // not part of the product: an overflow beside a 0 is still a wrong shape
      continue;
    }
    if (product > kMaxElements / extent) return ShapeOverflowError(path, ShapeText(shape));
    product *= extent;
  }
  return empty ? 0 : product;
}

int64_t ElementCount(absl::Span<const int64_t> shape) {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

std::string ShapeText(absl::Span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size() && i < kShownExtents; ++i) text += Concat(i == 0 ? "" : ",", shape[i]);
  return text + (shape.size() > kShownExtents ? ",...]" : "]");
}

void GatherSegments(absl::Span<const Segment> segments, int64_t offset, int64_t size_bytes, void* to) {
  auto* out = static_cast<std::byte*>(to);
  auto skip = static_cast<size_t>(offset);
  auto left = static_cast<size_t>(size_bytes);
  for (const Segment& segment : segments) {
    if (left == 0) return;
    if (skip >= segment.size()) {
      skip -= segment.size();
      continue;
    }
    const Segment piece = segment.subspan(skip, left);
    std::memcpy(out, piece.data(), piece.size());
    out += piece.size();
    left -= piece.size();
    skip = 0;
  }
}

}  // namespace normd
