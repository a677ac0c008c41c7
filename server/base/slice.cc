#include "server/base/slice.h"

namespace normd {

Slice::Slice(Buffer block) {
  const size_t size = block.size_bytes();
  if (size == 0) return;
  std::byte* const data = block.release();
  owner_ = std::shared_ptr<const void>(data, [](const void* bytes) { Buffer::Free(const_cast<void*>(bytes)); });
  bytes_ = std::string_view(reinterpret_cast<const char*>(data), size);
}

Slice::Slice(std::string text) {
  if (text.empty()) return;
  auto owner = std::make_shared<const std::string>(std::move(text));
  bytes_ = *owner;
  owner_ = std::move(owner);
}

void MessageBytes::Append(Slice slice) {
  if (slice.size() == 0) return;
  size_bytes_ += static_cast<int64_t>(slice.size());
  slices_.push_back(std::move(slice));
}

}  // namespace normd
