#include "server/rpc/codec/chunk_receiver.h"

#include <cstring>
#include <utility>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "proto/wire/crc32c.h"
#include "server/base/error_reasons.h"
#include "server/rpc/edge/rpc_options.h"

namespace normd::rpc {
namespace {

// Smaller chunks are copied into common blocks, because a slice with its bookkeeping takes some hundred bytes, so that
// a tensor in chunks of one byte would take many times the memory that was reserved for it.
constexpr int64_t kMinKeptBytes = 16 << 10;
constexpr size_t kSmallBlockBytes = 64 << 10;

uint32_t CrcOf(const MessageBytes& data) {
  uint32_t crc = 0;
  for (const Slice& slice : data.slices()) crc = wire::ExtendCrc32c(crc, slice.text());
  return crc;
}

// Turns the copies of small chunks into a piece like the others.
void FlushSmall(std::string* small, std::vector<ReceivedBytes>* pieces) {
  if (small->empty()) return;
  pieces->emplace_back(MessageBytes(Slice::Copy(*small)));
  small->clear();
}

absl::Status CheckSize(const v1::Chunked& chunked, std::string_view field, int64_t max_bytes) {
  if (chunked.size_bytes() <= static_cast<uint64_t>(max_bytes)) return absl::OkStatus();
  const std::string limit = Concat("at most ", max_bytes);
  return MakeError(
      ServerReason("TENSOR_TOO_LARGE"),
      {.field = Concat(field, ".chunked.size_bytes"), .value = Concat(chunked.size_bytes()), .limit = limit},
      Concat("is ", chunked.size_bytes(), "; it must be ", limit,
             " (set by --max_tensor_bytes and --max_in_flight_bytes of the server)"));
}

}  // namespace

absl::StatusOr<std::vector<ChunkedTensor>> FindChunkedTensors(const v1::NormalizeRequest& call,
                                                              int64_t max_tensor_bytes) {
  std::vector<ChunkedTensor> tensors;
  const auto add = [&](const v1::Tensor& tensor, std::string_view field, bool in_one_piece) -> absl::Status {
    if (!tensor.has_chunked()) return absl::OkStatus();
    NORMD_RETURN_IF_ERROR(CheckSize(tensor.chunked(), field, max_tensor_bytes));
    tensors.push_back({field, static_cast<int64_t>(tensor.chunked().size_bytes()), in_one_piece});
    return absl::OkStatus();
  };
  NORMD_RETURN_IF_ERROR(add(call.residual().tensor(), "residual.tensor", /*in_one_piece=*/true));
  NORMD_RETURN_IF_ERROR(add(call.x(), "x", /*in_one_piece=*/false));
  return tensors;
}

ChunkReceiver::ChunkReceiver(uint64_t sequence, const std::vector<ChunkedTensor>& tensors, BufferPool* buffers)
    : sequence_(sequence) {
  for (const ChunkedTensor& tensor : tensors) {
    Incoming& incoming = tensors_.emplace_back();
    incoming.tensor = tensor;
    if (!tensor.in_one_piece) continue;
    const auto size_bytes = static_cast<size_t>(tensor.size_bytes);
    incoming.contiguous = buffers == nullptr ? Buffer(size_bytes) : buffers->Take(size_bytes);
  }
}

absl::Status ChunkReceiver::Take(const v1::StreamRequest& request, const TensorSource& message) {
  MessageBytes data = message.TakeChunk(request.chunk().data());
  NORMD_RETURN_IF_ERROR(Check(request, data));
  const int64_t size_bytes = data.size_bytes();
  Keep(std::move(data), &tensors_[current_]);
  tensors_[current_].received_bytes += size_bytes;
  if (!request.chunk().last()) return absl::OkStatus();
  FlushSmall(&tensors_[current_].small, &tensors_[current_].pieces);
  ++current_;
  return absl::OkStatus();
}

absl::Status ChunkReceiver::Check(const v1::StreamRequest& request, const MessageBytes& data) const {
  const v1::Chunk& chunk = request.chunk();
  const Incoming& incoming = tensors_[current_];
  const int64_t size_bytes = data.size_bytes();
  const int64_t missing_bytes = incoming.tensor.size_bytes - incoming.received_bytes;
  if (request.sequence() != sequence_) {
    return OutOfRangeError("sequence", Concat(request.sequence()),
                           Concat(sequence_, ", that of the call whose chunks are awaited"),
                           ServerReason("CHUNK_SEQUENCE"));
  }
  if (chunk.offset() != incoming.received_bytes) {
    return OutOfRangeError("chunk.offset", Concat(chunk.offset()),
                           Concat(incoming.received_bytes, ", where the chunks of ", incoming.tensor.field, " end"),
                           ServerReason("CHUNK_OFFSET"));
  }
  if (size_bytes > kMaxChunkBytes) {
    return AmountError("chunk.data", Concat(size_bytes, " bytes"), Concat("at most ", kMaxChunkBytes),
                       ServerReason("CHUNK_TOO_LARGE"));
  }
  if (size_bytes > missing_bytes) {
    return AmountError("chunk.data", Concat(size_bytes, " bytes"),
                       Concat("at most ", missing_bytes, ", what is missing of ", incoming.tensor.field),
                       ServerReason("CHUNK_PAST_END"));
  }
  if (size_bytes == 0 && missing_bytes > 0) return MissingError("chunk.data", "data in every chunk");
  if (chunk.last() != (size_bytes == missing_bytes)) {
    return OutOfRangeError("chunk.last", chunk.last() ? "true" : "false",
                           Concat("true of the chunk that completes ", incoming.tensor.field, ", and of no other"),
                           ServerReason("CHUNK_LAST"));
  }
  if (const uint32_t crc = CrcOf(data); crc != chunk.crc32c()) {
    return OutOfRangeError("chunk.crc32c", Concat(chunk.crc32c()), Concat(crc, ", that of the data"),
                           ServerReason("CHUNK_CRC"));
  }
  return absl::OkStatus();
}

void ChunkReceiver::Keep(MessageBytes data, Incoming* incoming) {
  if (incoming->tensor.in_one_piece) {
    std::byte* to = incoming->contiguous.data() + incoming->received_bytes;
    for (const Slice& slice : data.slices()) {
      std::memcpy(to, slice.data(), slice.size());
      to += slice.size();
    }
  } else if (data.size_bytes() < kMinKeptBytes) {
    for (const Slice& slice : data.slices()) incoming->small.append(slice.text());
    if (incoming->small.size() >= kSmallBlockBytes) FlushSmall(&incoming->small, &incoming->pieces);
  } else {
    FlushSmall(&incoming->small, &incoming->pieces);
    incoming->pieces.emplace_back(std::move(data));
  }
}

absl::Status ChunkReceiver::IncompleteError() const {
  const Incoming& incoming = tensors_[current_];
  return MissingError("chunk", Concat("the rest of ", incoming.tensor.field, ": ", incoming.received_bytes, " of ",
                                      incoming.tensor.size_bytes, " bytes came"));
}

void ChunkReceiver::MoveTo(TensorSource* tensors) {
  for (Incoming& incoming : tensors_) {
    if (incoming.tensor.in_one_piece) {
      tensors->AddChunked(incoming.tensor.field, std::move(incoming.contiguous));
    } else {
      tensors->AddChunked(incoming.tensor.field, std::move(incoming.pieces));
    }
  }
}

}  // namespace normd::rpc
