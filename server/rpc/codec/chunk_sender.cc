#include "server/rpc/codec/chunk_sender.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "kernels/base/tsan_annotations.h"
#include "proto/wire/crc32c.h"
#include "server/rpc/codec/encode.h"
#include "server/rpc/codec/message.h"

namespace normd::rpc {
namespace {

// Ordinary stubs refuse messages over 4 MiB, and a slow reader holds a few of these in gRPC; smaller ones would pay the
// tens of microseconds that a message costs more often than the bytes themselves take.
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
  // The block is freed by whoever drops the last part of it, on any thread.
  TsanRelease(const_cast<uint8_t*>(output.begin()));
  offset_ = last ? 0 : end;
  if (last) {
    output = grpc::Slice();
    ++current_;
  }
  return EncodeStreamChunk(sequence_, place, std::move(data)).ToByteBuffer();
}

}  // namespace normd::rpc
