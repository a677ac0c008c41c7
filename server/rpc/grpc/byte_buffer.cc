#include "server/rpc/grpc/byte_buffer.h"

#include <memory>
#include <utility>
#include <vector>

#include "server/base/tsan_annotations.h"

namespace normd::rpc {
namespace {

// Copying a short slice costs less than the two allocations of one that shares its owner.
constexpr size_t kCopiedBytes = 256;

void Release(void* kept) {
  TsanAcquire(kept);
  delete static_cast<Slice*>(kept);
}

grpc::Slice ToGrpcSlice(const Slice& slice) {
  if (slice.size() <= kCopiedBytes) return {slice.data(), slice.size()};
  auto* const kept = new Slice(slice);
  TsanRelease(kept);
  return {const_cast<char*>(kept->data()), kept->size(), Release, kept};
}

}  // namespace

MessageBytes ToMessageBytes(const grpc::ByteBuffer& buffer) {
  auto owner = std::make_shared<std::vector<grpc::Slice>>();
  MessageBytes message;
  if (!buffer.Dump(owner.get()).ok()) return message;
  for (const grpc::Slice& slice : *owner) {
    message.Append(Slice({reinterpret_cast<const char*>(slice.begin()), slice.size()}, owner));
  }
  return message;
}

grpc::ByteBuffer ToByteBuffer(const MessageBytes& message) {
  const absl::Span<const Slice> slices = message.slices();
  if (slices.size() == 1) {
    const grpc::Slice one = ToGrpcSlice(slices.front());
    return {&one, 1};
  }
  std::vector<grpc::Slice> converted;
  converted.reserve(slices.size());
  for (const Slice& slice : slices) converted.push_back(ToGrpcSlice(slice));
  if (converted.empty()) converted.emplace_back();  // an empty message needs a slice, too
  return {converted.data(), converted.size()};
}

}  // namespace normd::rpc
