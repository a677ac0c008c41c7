#include "server/rpc/message.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <cstdlib>
#include <optional>
#include <string_view>

#include "kernels/errors.h"
#include "kernels/text.h"
#include "server/rpc/element_count.h"
#include "server/rpc/tsan_annotations.h"

namespace normd::rpc {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

void AppendVarint(uint64_t value, std::string& out) {
  uint8_t bytes[10];
  uint8_t* const end = CodedOutputStream::WriteVarint64ToArray(value, bytes);
  out.append(reinterpret_cast<const char*>(bytes), end - bytes);
}

void AppendTag(int field, WireFormatLite::WireType type, std::string& out) {
  AppendVarint(WireFormatLite::MakeTag(field, type), out);
}

void FreeBlock(void* block) {
  TsanAcquire(block);
  std::free(block);
}

grpc::Slice ToSlice(Buffer block) {
  const size_t size_bytes = block.size_bytes();
  std::byte* const data = block.release();
  TsanRelease(data);
  return grpc::Slice(data, size_bytes, FreeBlock);
}

}  // namespace

absl::Status ParseInto(const grpc::ByteBuffer& bytes, google::protobuf::Message* into) {
  if (bytes.Length() == 0) return absl::OkStatus();  // every field absent; gRPC's reader has no slices to start from
  const std::optional<int64_t> elements = CountElements(bytes, *into->GetDescriptor());
  if (elements.has_value() && *elements > kMaxElements) {
    return OutOfRangeError("message", Concat("more than ", kMaxElements, " fields"), Concat("at most ", kMaxElements),
                           "TOO_MANY_ELEMENTS");
  }
  grpc::ByteBuffer readable(bytes);  // shares the slices; the reader wants a pointer to a mutable one
  grpc::ProtoBufferReader reader(&readable);
  const bool ok = elements.has_value() && reader.status().ok() && into->ParseFromZeroCopyStream(&reader);
  if (ok) return absl::OkStatus();
  return OutOfRangeError("message", Concat(bytes.Length(), " bytes"), Concat("a valid ", into->GetTypeName()),
                         "MALFORMED_MESSAGE");
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

std::string& WireBody::Head() {
  if (pieces_.empty() || pieces_.back().block.size_bytes() != 0) pieces_.emplace_back();
  return pieces_.back().head;
}

void WireBody::Append(std::string_view text) {
  Head().append(text);
  size_bytes_ += text.size();
}

void WireBody::AppendVarintField(int field, uint64_t value) {
  std::string text;
  AppendTag(field, WireFormatLite::WIRETYPE_VARINT, text);
  AppendVarint(value, text);
  Append(text);
}

void WireBody::AppendBytesField(int field, Buffer bytes) {
  std::string text;
  AppendTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED, text);
  AppendVarint(bytes.size_bytes(), text);
  Append(text);
  size_bytes_ += bytes.size_bytes();
  pieces_.back().block = std::move(bytes);
}

void WireBody::AppendMessageField(int field, WireBody body) {
  std::string text;
  AppendTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED, text);
  AppendVarint(body.size_bytes_, text);
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

grpc::ByteBuffer WireBody::ToByteBuffer() && {
  std::vector<grpc::Slice> slices;
  slices.reserve(2 * pieces_.size());
  for (Piece& piece : pieces_) {
    if (!piece.head.empty()) slices.emplace_back(piece.head.data(), piece.head.size());
    if (piece.block.size_bytes() != 0) slices.push_back(ToSlice(std::move(piece.block)));
  }
  if (slices.empty()) slices.emplace_back();
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace normd::rpc
