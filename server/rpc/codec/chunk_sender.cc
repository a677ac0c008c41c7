#include "server/rpc/codec/chunk_sender.h"

#include <algorithm>
#include <utility>

#include "proto/wire/crc32c.h"
#include "server/rpc/codec/encode.h"
#include "server/rpc/codec/message.h"

namespace normd::rpc {
namespace {

// Ordinary stubs refuse messages over 4 MiB, and a transport holds a chunk for a slow reader. With smaller chunks, the
// tens of microseconds that each message costs would outweigh the time of the bytes themselves.
constexpr size_t kSentChunkBytes = size_t{1} << 20;

}  // namespace

ChunkSender::ChunkSender(uint64_t sequence, std::vector<Buffer> outputs) : sequence_(sequence) {
  for (Buffer& output : outputs) {
    size_bytes_ += static_cast<int64_t>(output.size_bytes());
    outputs_.emplace_back(std::move(output));
  }
}

std::optional<MessageBytes> ChunkSender::Next() {
  if (current_ == outputs_.size()) return std::nullopt;
  Slice& output = outputs_[current_];
  const size_t end = std::min(output.size(), offset_ + kSentChunkBytes);
  const bool last = end == output.size();
  Slice data = output.Part(offset_, end);
  const ChunkPlace place = {static_cast<int64_t>(offset_), last, wire::Crc32c(data.text())};
  offset_ = last ? 0 : end;
  if (last) {
    output = Slice();
    ++current_;
  }
  return EncodeStreamChunk(sequence_, place, std::move(data)).ToBytes();
}

}  // namespace normd::rpc
