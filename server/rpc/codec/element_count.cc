#include "server/rpc/codec/element_count.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include "server/rpc/codec/message_input.h"

namespace normd::rpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

class Walker {
 public:
  explicit Walker(CodedInputStream* input) : input_(input) {}

  int64_t count() const { return count_; }

  // Walks to the end of the input or to its current limit. No type contains itself, so the depth is bounded.
  bool Walk(const Descriptor& type) {
    while (const uint32_t tag = input_->ReadTag()) {
      if (++count_ > kMaxElements) return true;
      switch (WireFormatLite::GetTagWireType(tag)) {
        case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
          if (!WalkDelimited(type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag)))) return false;
          if (count_ > kMaxElements) return true;
          break;
        case WireFormatLite::WIRETYPE_START_GROUP:
          if (!SkipGroup(tag)) return false;
          break;
        case WireFormatLite::WIRETYPE_END_GROUP:
          return false;
        default:
          if (!WireFormatLite::SkipField(input_, tag)) return false;
      }
    }
    return input_->ConsumedEntireMessage();
  }

 private:
  // No type of ours has groups, so a group is an unknown field, whose bytes the parser would keep.
  bool SkipGroup(uint32_t tag) {
    const int begin = input_->CurrentPosition();
    if (!WireFormatLite::SkipField(input_, tag)) return false;
    count_ += input_->CurrentPosition() - begin;
    return true;
  }

  bool WalkDelimited(const FieldDescriptor* field) {
    int size = 0;
    if (!input_->ReadVarintSizeAsInt(&size)) return false;
    if (field == nullptr) return input_->Skip(size);
    if (field->is_packable()) count_ += size;
    if (field->type() != FieldDescriptor::TYPE_MESSAGE) return input_->Skip(size);
    const CodedInputStream::Limit outer = input_->PushLimit(size);
    const bool ok = input_->BytesUntilLimit() == size && Walk(*field->message_type());
    input_->PopLimit(outer);
    return ok;
  }

  CodedInputStream* const input_;
  int64_t count_ = 0;
};

}  // namespace

std::optional<int64_t> CountElements(const MessageBytes& bytes, const Descriptor& type) {
  MessageInput reader(bytes);
  CodedInputStream input(&reader);
  Walker walker(&input);
  if (!walker.Walk(type)) return std::nullopt;
  return walker.count();
}

}  // namespace normd::rpc
