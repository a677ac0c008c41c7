#include "server/rpc/codec/message.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "proto/wire/split.h"
#include "proto/wire/writer.h"
#include "server/base/error_reasons.h"
#include "server/rpc/codec/element_count.h"
#include "server/rpc/codec/message_input.h"

namespace normd::rpc {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

absl::Status MalformedError(const MessageBytes& bytes, const google::protobuf::Message& into) {
  const std::string size = Concat(bytes.size_bytes(), " bytes");
  return MakeError(ServerReason("MALFORMED_MESSAGE"),
                   {.field = "message", .value = size, .limit = Concat("a valid ", into.GetTypeName())},
                   Concat("of ", size, " is no valid ", into.GetTypeName()));
}

// Joins the slices of a message that came in very many tiny ones, because a hostile peer can send a message in a
// million pieces, each of which costs more memory than its bytes.
MessageBytes JoinIfTiny(const MessageBytes& bytes) {
  constexpr size_t kFewSlices = 64;
  constexpr size_t kTinyBytes = 1024;  // transports read 8 KiB and more at a time
  const auto size_bytes = static_cast<size_t>(bytes.size_bytes());
  const size_t count = bytes.slices().size();
  if (count <= kFewSlices || size_bytes / count >= kTinyBytes) return bytes;
  Buffer contiguous(size_bytes);
  std::byte* to = contiguous.data();
  for (const Slice& slice : bytes.slices()) {
    std::memcpy(to, slice.data(), slice.size());
    to += slice.size();
  }
  return MessageBytes(Slice(std::move(contiguous)));
}

absl::Status CheckElements(const MessageBytes& bytes, const google::protobuf::Message& into) {
  const std::optional<int64_t> elements = CountElements(bytes, *into.GetDescriptor());
  if (!elements.has_value()) return MalformedError(bytes, into);
  if (*elements <= kMaxElements) return absl::OkStatus();
  return AmountError("message", Concat("more than ", kMaxElements, " fields"), Concat("at most ", kMaxElements),
                     ServerReason("TOO_MANY_ELEMENTS"));
}

}  // namespace

absl::Status ParseInto(const MessageBytes& bytes, google::protobuf::Message* into) {
  NORMD_RETURN_IF_ERROR(CheckElements(bytes, *into));
  MessageInput input(bytes);
  return into->ParseFromZeroCopyStream(&input) ? absl::OkStatus() : MalformedError(bytes, *into);
}

ReceivedBytes TakeBytes(const MessageBytes& bytes) { return ReceivedBytes(JoinIfTiny(bytes)); }

ReceivedMessage Receive(const MessageBytes& bytes, const wire::MessageLayout& layout) {
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
  message.bytes = ReceivedBytes(bytes.PartOf(part));
  message.split = wire::Split(message.bytes.segments(), layout);
  return message;
}

absl::Status ParseInto(ReceivedMessage message, google::protobuf::Message* into, TensorSource* tensors) {
  if (!message.split.has_value()) return ParseInto(message.whole, into);
  const std::string& metadata = message.split->metadata;
  // A message has no more elements than bytes, so few messages need counting.
  if (static_cast<int64_t>(metadata.size()) > kMaxElements) {
    NORMD_RETURN_IF_ERROR(CheckElements(MessageBytes(Slice(metadata, nullptr)), *into));
  }
  if (!into->ParseFromArray(metadata.data(), static_cast<int>(metadata.size()))) {
    return MalformedError(message.whole, *into);
  }
  tensors->SetBlocks(std::move(message.bytes), std::move(message.split->blocks));
  return absl::OkStatus();
}

uint64_t FindVarintField(const MessageBytes& bytes, int field) {
  MessageInput reader(bytes);
  CodedInputStream input(&reader);
  const uint32_t wanted = WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_VARINT);
  while (const uint32_t tag = input.ReadTag()) {
    uint64_t value = 0;
    if (tag == wanted) return input.ReadVarint64(&value) ? value : 0;
    if (!WireFormatLite::SkipField(&input, tag)) return 0;
  }
  return 0;
}

MessageBytes Serialize(const google::protobuf::Message& message) {
  return MessageBytes(Slice(message.SerializeAsString()));
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

void WireBody::AppendBlock(Slice bytes) {
  Head();
  size_bytes_ += bytes.size();
  pieces_.back().block = std::move(bytes);
}

void WireBody::AppendBlock(Buffer bytes) { AppendBlock(Slice(std::move(bytes))); }

void WireBody::AppendBytesField(int field, Buffer bytes) { AppendBytesField(field, Slice(std::move(bytes))); }

void WireBody::AppendBytesField(int field, Slice bytes) {
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

MessageBytes WireBody::ToBytes() && {
  MessageBytes bytes;
  for (Piece& piece : pieces_) {
    bytes.Append(Slice(std::move(piece.head)));
    bytes.Append(std::move(piece.block));
  }
  return bytes;
}

}  // namespace normd::rpc
