// Messages with something about them: the check of codec_fuzz.cc on inputs that are mutated field by field, so that
// most stay messages: fields set, cleared, doubled (submessages to be merged, payloads of a oneof in turn) and moved,
// unknown ones, padded varints, lengths off by a little, other cuts.
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/codec_check.h"
#include "tests/fuzz/wire_tree.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace normd::fuzz {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using wire::WireType;

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  void Mutate(const Descriptor& top, std::vector<WireField>& top_fields) {
    // Down to some message of the tree, the top one as likely as the next.
    const Descriptor* message = &top;
    std::vector<WireField>* fields = &top_fields;
    while (Chance(2)) {
      std::vector<WireField*> inner;
      for (WireField& field : *fields) {
        if (field.message != nullptr) inner.push_back(&field);
      }
      if (inner.empty()) break;
      WireField* const next = inner[Below(inner.size())];
      message = next->message;
      fields = &next->fields;
    }
    if (fields->empty() || Chance(3)) {
      fields->insert(fields->begin() + static_cast<ptrdiff_t>(Below(fields->size() + 1)), NewField(*message, 0));
    } else {
      Change(*fields);
    }
  }

  size_t Below(size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random_); }

 private:
  bool Chance(size_t one_in) { return Below(one_in) == 0; }

  uint64_t Number() { return Chance(2) ? (uint64_t{1} << Below(64)) - Below(2) : random_() % 256; }

  std::string Bytes(size_t size) {
    std::string bytes(size, '\0');
    const bool text = !Chance(8);
    for (char& byte : bytes) byte = static_cast<char>(text ? 'a' + Below(26) : Below(256));
    return bytes;
  }

  // Of the message, with a value of its type; or one that the message does not know.
  WireField NewField(const Descriptor& message, int depth) {
    WireField field;
    const FieldDescriptor* known = nullptr;
    if (message.field_count() > 0 && !Chance(8)) known = message.field(static_cast<int>(Below(message.field_count())));
    if (known == nullptr || Chance(16)) {  // unknown, or known and not of its type
      static constexpr WireType kTypes[] = {WireType::kVarint, WireType::kFixed64, WireType::kDelimited,
                                            WireType::kFixed32};
      field.number = known != nullptr ? static_cast<uint32_t>(known->number()) : 1 + random_() % (1U << Below(29));
      field.type = kTypes[Below(std::size(kTypes))];
    } else {
      field.number = static_cast<uint32_t>(known->number());
      field.message = known->message_type();
      field.type = TypeOf(*known);
    }
    field.value = Number();
    if (field.type == WireType::kFixed64) field.bytes = Bytes(8);
    if (field.type == WireType::kFixed32) field.bytes = Bytes(4);
    if (field.type == WireType::kDelimited && field.message == nullptr) field.bytes = Bytes(Below(40));
    for (size_t n = field.message == nullptr || depth > 3 ? 0 : Below(4); n > 0; --n) {
      field.fields.push_back(NewField(*field.message, depth + 1));
    }
    return field;
  }

  static WireType TypeOf(const FieldDescriptor& field) {
    if (field.is_packable()) return WireType::kDelimited;
    switch (field.type()) {
      case FieldDescriptor::TYPE_MESSAGE:
      case FieldDescriptor::TYPE_STRING:
      case FieldDescriptor::TYPE_BYTES:
        return WireType::kDelimited;
      case FieldDescriptor::TYPE_DOUBLE:
        return WireType::kFixed64;
      case FieldDescriptor::TYPE_FIXED32:
        return WireType::kFixed32;
      default:
        return WireType::kVarint;
    }
  }

  void Change(std::vector<WireField>& fields) {
    const size_t at = Below(fields.size());
    WireField& field = fields[at];
    switch (Chance(8) ? 5 + Below(3) : Below(5)) {
      case 0:
        fields.erase(fields.begin() + static_cast<ptrdiff_t>(at));
        break;
      case 1:
        fields.insert(fields.begin() + static_cast<ptrdiff_t>(Below(fields.size() + 1)), WireField(field));
        break;
      case 2:
        std::swap(field, fields[Below(fields.size())]);
        break;
      case 3:
        field.value = Number();
        break;
      case 4:
        field.bytes = field.type == WireType::kDelimited ? Bytes(Below(300)) : Bytes(field.bytes.size());
        break;
      case 5:
        field.tag_padding = static_cast<int>(Below(5));
        break;
      case 6:
        field.value_padding = static_cast<int>(Below(10));
        break;
      default:
        if (field.type == WireType::kDelimited) field.length_error = Chance(2) ? -1 : 1;
        break;
    }
  }

  std::minstd_rand random_;
};

}  // namespace
}  // namespace normd::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  using namespace normd::fuzz;  // NOLINT(google-build-using-namespace): C linkage
  Mutator mutator(seed);
  const std::optional<CodecInput> input = ReadCodecInput({reinterpret_cast<const char*>(data), size});
  if (!input.has_value() || mutator.Below(16) == 0) return LLVMFuzzerMutate(data, size, max_size);
  const Descriptor& type = *input->type.prototype->GetDescriptor();
  std::vector<WireField> fields;
  ReadFields(input->message, type, fields);  // what can be read of it
  for (size_t n = 1 + mutator.Below(4); n > 0; --n) mutator.Mutate(type, fields);
  const std::string message = WriteFields(fields);
  if (kCodecHeaderBytes + message.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data + kCodecHeaderBytes, message.data(), message.size());
  if (mutator.Below(4) == 0) data[1] = static_cast<uint8_t>(mutator.Below(256));
  return kCodecHeaderBytes + message.size();
}

// One message after the other, which merges them.
extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data1, size_t size1, const uint8_t* data2, size_t size2,
                                            uint8_t* out, size_t max_out_size, unsigned int /*seed*/) {
  using normd::fuzz::kCodecHeaderBytes;
  if (size1 < kCodecHeaderBytes || size2 < kCodecHeaderBytes) return 0;
  const size_t more = size2 - kCodecHeaderBytes;
  if (size1 + more > max_out_size) return 0;
  std::memcpy(out, data1, size1);
  std::memcpy(out + size1, data2 + kCodecHeaderBytes, more);
  return size1 + more;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  normd::fuzz::CheckCodec(data, size);
  return 0;
}
