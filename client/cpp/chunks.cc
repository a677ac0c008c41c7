#include "client/cpp/chunks.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cpp/without_tensors.h"
#include "proto/wire/crc32c.h"

namespace normd::client {
namespace {

// The size of the chunks that servers send (kSentChunkBytes there). Larger chunks gain nothing.
constexpr int64_t kChunkBytes = int64_t{1} << 20;
constexpr int64_t kSmallestChunkBytes = 256;
constexpr int64_t kOtherFieldsBytes = 256;  // the other fields of a chunk's message

// Only a `data` payload becomes `chunked`; other payloads stay as they are.
void NameAsChunked(const v1::Tensor& from, v1::Tensor* to) {
  if (from.has_data()) to->mutable_chunked()->set_size_bytes(from.data().size());
}

absl::Status Broken(absl::string_view what) { return absl::DataLossError(absl::StrCat("reply in chunks: ", what)); }

}  // namespace

v1::NormalizeRequest WithoutData(const v1::NormalizeRequest& request) {
  v1::NormalizeRequest out;
  CopyWithoutTensors(request, &out);
  if (request.has_x()) NameAsChunked(request.x(), out.mutable_x());
  const v1::Residual& residual = request.residual();
  if (residual.has_tensor()) NameAsChunked(residual.tensor(), out.mutable_residual()->mutable_tensor());
  return out;
}

v1::Chunk CutChunk(absl::string_view data, size_t offset, size_t chunk_bytes) {
  const absl::string_view piece = data.substr(offset, chunk_bytes);
  v1::Chunk chunk;
  chunk.set_offset(static_cast<int64_t>(offset));
  chunk.mutable_data()->assign(piece.data(), piece.size());
  chunk.set_last(offset + piece.size() == data.size());
  chunk.set_crc32c(wire::Crc32c(chunk.data()));
  return chunk;
}

size_t ChunkBytes(const v1::Limits& limits) {
  int64_t bytes = kChunkBytes;
  if (limits.max_chunk_bytes() > 0) bytes = std::min(bytes, limits.max_chunk_bytes());
  if (limits.max_message_bytes() > 0) bytes = std::min(bytes, limits.max_message_bytes() - kOtherFieldsBytes);
  return static_cast<size_t>(std::max(bytes, kSmallestChunkBytes));
}

absl::Status ReplyJoiner::Take(const v1::StreamResponse& message) {
  if (message.sequence() != sequence_) return Broken(absl::StrCat("it is of call ", message.sequence()));
  if (complete()) return Broken("a message came after the end");
  if (message.has_reply() != !has_reply_) return Broken(has_reply_ ? "a second reply came" : "chunks came first");
  if (has_reply_) return TakeChunk(message.chunk());
  has_reply_ = true;
  response_ = message.reply();
  SkipInline();
  return absl::OkStatus();
}

absl::Status ReplyJoiner::TakeChunk(const v1::Chunk& chunk) {
  v1::Tensor& tensor = *response_.mutable_outputs(next_)->mutable_tensor();
  const uint64_t size_bytes = tensor.chunked().size_bytes();
  if (static_cast<uint64_t>(chunk.offset()) != data_.size()) {
    return Broken(absl::StrCat("a chunk for offset ", chunk.offset(), " came at ", data_.size()));
  }
  if (wire::Crc32c(chunk.data()) != chunk.crc32c()) {
    return Broken(absl::StrCat("the checksum of the chunk at ", chunk.offset(), " is wrong"));
  }
  data_ += chunk.data();
  if (data_.size() > size_bytes || chunk.last() != (data_.size() == size_bytes)) {
    return Broken(
        absl::StrCat("chunks of ", data_.size(), " bytes", chunk.last() ? "" : " and more", " for ", size_bytes));
  }
  if (!chunk.last()) return absl::OkStatus();
  tensor.set_data(std::move(data_));
  data_.clear();
  ++next_;
  SkipInline();
  return absl::OkStatus();
}

void ReplyJoiner::SkipInline() {
  while (next_ < response_.outputs_size() && !response_.outputs(next_).tensor().has_chunked()) ++next_;
}

}  // namespace normd::client
