#include "server/rpc/codec/message.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "proto/wire/split.h"
#include "proto/wire/writer.h"
#include "server/base/error_reasons.h"
#include "server/base/tsan_annotations.h"
#include "server/rpc/codec/element_count.h"

namespace normd::rpc {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

void FreeBlock(void* block) {
  TsanAcquire(block);
  Buffer::Free(block);
}

absl::Status MalformedError(const grpc::ByteBuffer& bytes, const google::protobuf::Message& into) {
  const std::string size = Concat(bytes.Length(), " bytes");
  return MakeError(ServerReason("MALFORMED_MESSAGE"),
                   {.field = "message", .value = size, .limit = Concat("a valid ", into.GetTypeName())},
                   Concat("of ", size, " is no valid ", into.GetTypeName()));
}

// Joins the slices of a message that came in very many tiny ones, because a hostile peer can send a message in a
// million pieces, each of which costs more memory than its bytes.
std::vector<grpc::Slice> JoinIfTiny(std::vector<grpc::Slice> slices, size_t size_bytes) {
  constexpr size_t kFewSlices = 64;
  constexpr size_t kTinyBytes = 1024;  // gRPC itself reads 8 KiB and more at a time
  if (slices.size() <= kFewSlices || size_bytes / slices.size() >= kTinyBytes) return slices;
  grpc::Slice contiguous(size_bytes);
  auto* to = const_cast<uint8_t*>(contiguous.begin());
  for (const grpc::Slice& slice : slices) to = std::copy(slice.begin(), slice.end(), to);
  return {contiguous};
}

absl::Status CheckElements(const grpc::ByteBuffer& bytes, const google::protobuf::Message& into) {
  const std::optional<int64_t> elements = CountElements(bytes, *into.GetDescriptor());
  if (!elements.has_value()) return MalformedError(bytes, into);
  if (*elements <= kMaxElements) return absl::OkStatus();
  return AmountError("message", Concat("more than ", kMaxElements, " fields"), Concat("at most ", kMaxElements),
                     ServerReason("TOO_MANY_ELEMENTS"));
}

}  // namespace

absl::Status ParseInto(const grpc::ByteBuffer& bytes, google::protobuf::Message* into) {
  if (bytes.Length() == 0) return absl::OkStatus();  // every field is absent; gRPC's reader cannot read no slices
  NORMD_RETURN_IF_ERROR(CheckElements(bytes, *into));
  grpc::ByteBuffer readable(bytes);  // shares the slices; the reader takes a pointer to a mutable buffer
  grpc::ProtoBufferReader reader(&readable);
  const bool ok = reader.status().ok() && into->ParseFromZeroCopyStream(&reader);
  return ok ? absl::OkStatus() : MalformedError(bytes, *into);
}

ReceivedBytes TakeBytes(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return {};
  return ReceivedBytes(JoinIfTiny(std::move(slices), bytes.Length()));
}

ReceivedMessage Receive(const grpc::ByteBuffer& bytes, const wire::MessageLayout& layout) {
  ReceivedMessage message;
  message.whole = bytes;
  message.bytes = TakeBytes(bytes);
  if (!message.bytes.segments().empty()) message.split = wire::Split(message.bytes.segments(), layout);
  return message;
}

ReceivedMessage ReceiveOnly(ReceivedBytes bytes, const wire::Block& part, const wire::MessageLayout& layout) {
  ReceivedMessage message;
  message.split = wire::Split(wire::SegmentsOf(bytes.segments(), part), layout);
  if (message.split.has_value()) {
    for (wire::Block& block : message.split->blocks) block.offset += part.offset;
  }
  message.bytes = std::move(bytes);
  return message;
}

ReceivedMessage ReceivePart(const ReceivedBytes& bytes, const wire::Block& part, const wire::MessageLayout& layout) {
  ReceivedMessage message;
  message.bytes = ReceivedBytes(bytes.SlicesOf(part));
  message.split = wire::Split(message.bytes.segments(), layout);
  return message;
}

absl::Status ParseInto(ReceivedMessage message, google::protobuf::Message* into, TensorSource* tensors) {
  if (!message.split.has_value()) return ParseInto(message.whole, into);
  const std::string& metadata = message.split->metadata;
  // A message has no more elements than bytes, so few messages need counting.
  if (static_cast<int64_t>(metadata.size()) > kMaxElements) {
    const grpc::Slice whole(metadata.data(), metadata.size(), grpc::Slice::STATIC_SLICE);
    NORMD_RETURN_IF_ERROR(CheckElements(grpc::ByteBuffer(&whole, 1), *into));
  }
  if (!into->ParseFromArray(metadata.data(), static_cast<int>(metadata.size()))) {
    return MalformedError(message.whole, *into);
  }
  tensors->SetBlocks(std::move(message.bytes), std::move(message.split->blocks));
  return absl::OkStatus();
}

uint64_t FindVarintField(const grpc::ByteBuffer& bytes, int field) {
  if (bytes.Length() == 0) return 0;
  grpc::ByteBuffer readable(bytes);
  grpc::ProtoBufferReader reader(&readable);
  CodedInputStream input(&reader);
  const uint32_t wanted = WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_VARINT);
  while (const uint32_t tag = input.ReadTag()) {
    uint64_t value = 0;
    if (tag == wanted) return input.ReadVarint64(&value) ? value : 0;
    if (!WireFormatLite::SkipField(&input, tag)) return 0;
  }
  return 0;
}

grpc::ByteBuffer Serialize(const google::protobuf::Message& message) {
  const size_t size_bytes = message.ByteSizeLong();
  grpc::Slice slice(size_bytes);
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  return grpc::ByteBuffer(&slice, 1);
}

grpc::Slice ToSlice(Buffer block) {
  const size_t size_bytes = block.size_bytes();
  if (size_bytes == 0) return {};
  std::byte* const data = block.release();
  TsanRelease(data);
  return grpc::Slice(data, size_bytes, FreeBlock);
}

std::string& WireBody::Head() {
  if (pieces_.empty() || pieces_.back().block.size() != 0) pieces_.emplace_back();
  return pieces_.back().head;
}

void WireBody::Append(std::string_view text) {
  Head().append(text);
  size_bytes_ += text.size();
}

void WireBody::AppendVarintField(int field, uint64_t value) {
  std::string text;
  wire::AppendVarintField(static_cast<uint32_t>(field), value, text);
  Append(text);
}

void WireBody::AppendBlock(grpc::Slice bytes) {
  Head();
  size_bytes_ += bytes.size();
  pieces_.back().block = std::move(bytes);
}

void WireBody::AppendBlock(Buffer bytes) { AppendBlock(ToSlice(std::move(bytes))); }

void WireBody::AppendBytesField(int field, Buffer bytes) { AppendBytesField(field, ToSlice(std::move(bytes))); }

void WireBody::AppendBytesField(int field, grpc::Slice bytes) {
  std::string text;
  wire::AppendDelimitedHead(static_cast<uint32_t>(field), bytes.size(), text);
  Append(text);
  AppendBlock(std::move(bytes));
}

void WireBody::AppendMessageField(int field, WireBody body) {
  std::string text;
  wire::AppendDelimitedHead(static_cast<uint32_t>(field), body.size_bytes_, text);
  Append(text);
  Append(std::move(body));
}

void WireBody::Append(WireBody body) {
  size_bytes_ += body.size_bytes_;
  for (Piece& piece : body.pieces_) {
    Head().append(piece.head);
    pieces_.back().block = std::move(piece.block);
  }
}

std::string_view WireBody::TextBeforeBlock() const {
  const bool one = pieces_.size() == 1 && pieces_.front().block.size() != 0;
  return one ? std::string_view(pieces_.front().head) : std::string_view();
}

grpc::ByteBuffer WireBody::ToByteBuffer() && {
  std::vector<grpc::Slice> slices;
  slices.reserve(2 * pieces_.size());
  for (Piece& piece : pieces_) {
    if (!piece.head.empty()) slices.emplace_back(piece.head.data(), piece.head.size());
    if (piece.block.size() != 0) slices.push_back(std::move(piece.block));
  }
  if (slices.empty()) slices.emplace_back();
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace normd::rpc
