// Writes protobuf's wire format (https://protobuf.dev/programming-guides/encoding). A message is a sequence of fields.
// A field is its tag (the field number and the wire type) and its value; strings, bytes, messages and packed numbers
// have their length in front.
// In the path: codec, store and client use it for bytes that generated code would copy and for messages that generated
// code would have to build first; split.h reads. Pure functions, which append to `out`.
#ifndef NORMD_PROTO_WIRE_WRITER_H_
#define NORMD_PROTO_WIRE_WRITER_H_

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace normd::wire {

// How a value is encoded. Types 3 and 4 are groups, which no serialiser writes any more.
enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5 };

inline constexpr int kMaxVarintBytes = 10;

// The size of a varint, which has seven bits in each byte, the lowest first; the eighth bit says that another byte
// follows.
constexpr size_t VarintSize(uint64_t value) { return (static_cast<size_t>(std::bit_width(value | 1)) + 6) / 7; }

// Appends byte by byte, because most varints have one or two bytes.
inline void AppendVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// The value whose varint is the tag.
constexpr uint64_t TagOf(uint32_t field, WireType type) { return uint64_t{field} << 3 | static_cast<uint64_t>(type); }
constexpr size_t TagSize(uint32_t field) { return VarintSize(TagOf(field, WireType::kVarint)); }

inline void AppendTag(uint32_t field, WireType type, std::string& out) { AppendVarint(TagOf(field, type), out); }

// Appends the lowest byte first, on every machine.
template <std::unsigned_integral Unsigned>
void AppendFixed(Unsigned value, std::string& out) {
  char bytes[sizeof(value)];
  for (size_t i = 0; i < sizeof(value); ++i) bytes[i] = static_cast<char>(value >> 8 * i);
  out.append(bytes, sizeof(value));
}

// ---- Whole fields. A value of 0 is written, too ----

// For int32, int64, uint32, uint64, bool and enum. A negative number is the uint64_t that it converts to.
inline void AppendVarintField(uint32_t field, uint64_t value, std::string& out) {
  AppendTag(field, WireType::kVarint, out);
  AppendVarint(value, out);
}

inline void AppendFixed32Field(uint32_t field, uint32_t value, std::string& out) {
  AppendTag(field, WireType::kFixed32, out);
  AppendFixed(value, out);
}

inline void AppendFixed64Field(uint32_t field, uint64_t value, std::string& out) {
  AppendTag(field, WireType::kFixed64, out);
  AppendFixed(value, out);
}

// Appends all of a delimited field but its `size` bytes, which the caller appends next.
inline void AppendDelimitedHead(uint32_t field, size_t size, std::string& out) {
  AppendTag(field, WireType::kDelimited, out);
  AppendVarint(size, out);
}

inline void AppendDelimitedField(uint32_t field, std::string_view bytes, std::string& out) {
  AppendDelimitedHead(field, bytes.size(), out);
  out.append(bytes);
}

}  // namespace normd::wire

#endif  // NORMD_PROTO_WIRE_WRITER_H_
