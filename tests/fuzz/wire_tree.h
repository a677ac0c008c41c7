// A message as a tree of its fields on the wire, for mutation: the order, the padding of varints and wrong lengths are
// kept, so that what no serialiser writes can be written. In the path: between libFuzzer's input and its next one.
#ifndef NORMD_TESTS_FUZZ_WIRE_TREE_H_
#define NORMD_TESTS_FUZZ_WIRE_TREE_H_

#include <google/protobuf/descriptor.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/wire/writer.h"

namespace normd::fuzz {

struct WireField {
  uint32_t number = 1;
  wire::WireType type = wire::WireType::kVarint;
  uint64_t value = 0;                                     // of a varint
  std::string bytes;                                      // of a fixed or delimited one without fields
  const google::protobuf::Descriptor* message = nullptr;  // of `fields`; null: none
  std::vector<WireField> fields;
  // What a serialiser leaves at 0: bytes more than needed for the tag, and for the value or the length; and how much
  // the length says too much.
  int tag_padding = 0, value_padding = 0, length_error = 0;
};

inline void AppendPadded(uint64_t value, int padding, std::string& out) {
  wire::AppendVarint(value, out);
  for (; padding > 0; --padding) {
    out.back() = static_cast<char>(out.back() | '\x80');
    out.push_back('\0');
  }
}

inline std::string WriteFields(const std::vector<WireField>& fields) {
  std::string out;
  for (const WireField& field : fields) {
    AppendPadded(wire::TagOf(field.number, field.type), field.tag_padding, out);
    const std::string bytes = field.message == nullptr ? field.bytes : WriteFields(field.fields);
    if (field.type == wire::WireType::kVarint) AppendPadded(field.value, field.value_padding, out);
    if (field.type == wire::WireType::kDelimited) {
      AppendPadded(bytes.size() + static_cast<uint64_t>(int64_t{field.length_error}), field.value_padding, out);
    }
    out += bytes;
  }
  return out;
}

// Takes a varint off the front of `in`.
inline bool TakeVarint(std::string_view& in, uint64_t& value) {
  value = 0;
  for (size_t i = 0; i < in.size() && i < wire::kMaxVarintBytes; ++i) {
    value |= (uint64_t{static_cast<uint8_t>(in[i])} & 0x7f) << 7 * i;
    if (static_cast<uint8_t>(in[i]) >= 0x80) continue;
    in.remove_prefix(i + 1);
    return true;
  }
  return false;
}

// False when the bytes are no fields, or have groups; `fields` has those before. Varints lose their padding.
inline bool ReadFields(std::string_view in, const google::protobuf::Descriptor& message,
                       std::vector<WireField>& fields) {
  while (!in.empty()) {
    WireField field;
    uint64_t tag = 0;
    uint64_t size = 0;
    if (!TakeVarint(in, tag) || tag >> 3 == 0 || tag >> 32 != 0) return false;
    field.number = static_cast<uint32_t>(tag >> 3);
    field.type = static_cast<wire::WireType>(tag & 7);
    if (field.type == wire::WireType::kVarint) {
      if (!TakeVarint(in, field.value)) return false;
    } else if (field.type == wire::WireType::kDelimited) {
      if (!TakeVarint(in, size)) return false;
    } else if (field.type == wire::WireType::kFixed64 || field.type == wire::WireType::kFixed32) {
      size = field.type == wire::WireType::kFixed64 ? 8 : 4;
    } else {
      return false;
    }
    if (size > in.size()) return false;
    field.bytes = in.substr(0, size);
    in.remove_prefix(size);
    const auto* const known = message.FindFieldByNumber(static_cast<int>(field.number));
    if (field.type == wire::WireType::kDelimited && known != nullptr && known->message_type() != nullptr) {
      if (ReadFields(field.bytes, *known->message_type(), field.fields)) field.message = known->message_type();
    }
    fields.push_back(std::move(field));
  }
  return true;
}

}  // namespace normd::fuzz

#endif  // NORMD_TESTS_FUZZ_WIRE_TREE_H_
