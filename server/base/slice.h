// Immutable bytes with a shared owner, and messages that consist of several such pieces: how messages travel between
// the transport and the services without being copied.
// Ownership: a Slice keeps the memory of its bytes alive; parts of a slice share its owner.
// Threads: values; the bytes are constant, so several threads may read them.
#ifndef NORMD_SERVER_BASE_SLICE_H_
#define NORMD_SERVER_BASE_SLICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "server/base/buffer.h"

namespace normd {

class Slice {
 public:
  Slice() = default;
  // `owner` keeps the bytes alive; null for bytes that live for ever, or longer than all copies of the slice.
  Slice(std::string_view bytes, std::shared_ptr<const void> owner) : owner_(std::move(owner)), bytes_(bytes) {}
  // Takes over the block.
  explicit Slice(Buffer block);
  explicit Slice(std::string text);

  static Slice Copy(std::string_view bytes) { return Slice(std::string(bytes)); }

  const char* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  std::string_view text() const { return bytes_; }
  const std::shared_ptr<const void>& owner() const { return owner_; }

  // The bytes from `begin` to `end`, with the same owner.
  Slice Part(size_t begin, size_t end) const { return {bytes_.substr(begin, end - begin), owner_}; }

 private:
  std::shared_ptr<const void> owner_;
  std::string_view bytes_;
};

// One message: its slices in order.
class MessageBytes {
 public:
  MessageBytes() = default;
  explicit MessageBytes(Slice slice) { Append(std::move(slice)); }

  // Appends a slice; an empty one has no effect.
  void Append(Slice slice);

  absl::Span<const Slice> slices() const { return slices_; }
  int64_t size_bytes() const { return size_bytes_; }
  bool empty() const { return size_bytes_ == 0; }

 private:
  absl::InlinedVector<Slice, 2> slices_;
  int64_t size_bytes_ = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_BASE_SLICE_H_
