#include "server/rpc/codec/chunk_sender.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "proto/wire/crc32c.h"
#include "server/base/tsan_annotations.h"
#include "server/rpc/codec/encode.h"
#include "server/rpc/codec/message.h"

namespace normd::rpc {
namespace {

// Ordinary stubs refuse messages over 4 MiB, and gRPC buffers a few chunks for a slow reader. With smaller chunks, the
// tens of microseconds that each message costs would outweigh the time of the bytes themselves.
constexpr size_t kSentChunkBytes = size_t{1} << 20;

uint32_t CrcOf(const grpc::Slice& data) {
  return wire::Crc32c({reinterpret_cast<const char*>(data.begin()), data.size()});
}

}  // namespace

ChunkSender::ChunkSender(uint64_t sequence, std::vector<Buffer> outputs) : sequence_(sequence) {
  for (Buffer& output : outputs) {
    size_bytes_ += static_cast<int64_t>(output.size_bytes());
    outputs_.push_back(ToSlice(std::move(output)));
  }
}

std::optional<grpc::ByteBuffer> ChunkSender::Next() {
  if (current_ == outputs_.size()) return std::nullopt;
  grpc::Slice& output = outputs_[current_];
  const size_t end = std::min(output.size(), offset_ + kSentChunkBytes);
  const bool last = end == output.size();
  grpc::Slice data = output.sub(offset_, end);
  const ChunkPlace place = {static_cast<int64_t>(offset_), last, CrcOf(data)};
  // Any thread may drop the last reference to a part of the block, and so free the block.
  TsanRelease(const_cast<uint8_t*>(output.begin()));
  offset_ = last ? 0 : end;
  if (last) {
    output = grpc::Slice();
    ++current_;
  }
  return EncodeStreamChunk(sequence_, place, std::move(data)).ToByteBuffer();
}

}  // namespace normd::rpc
