// Protobuf's wire format, written: https://protobuf.dev/programming-guides/encoding. A message is its fields one after
// the other, a field is its tag (the number and how its value is stored) and the value; what has a length (strings,
// bytes, messages, packed numbers) has it in front. Shared by server and client, for bytes that generated code would
// copy and messages that it would have to build first; reading is split.h's. Pure functions: what they write goes
// behind what is in `out`.
#ifndef NORMD_PROTO_WIRE_WRITER_H_
#define NORMD_PROTO_WIRE_WRITER_H_

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace normd::wire {

// How a value is stored. Types 3 and 4 are groups, which nobody writes any more.
enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5 };

inline constexpr int kMaxVarintBytes = 10;

// Seven bits a byte, the lowest first; the eighth says that another byte follows.
constexpr size_t VarintSize(uint64_t value) { return (static_cast<size_t>(std::bit_width(value | 1)) + 6) / 7; }

// Byte by byte, since most have one or two.
inline void AppendVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// The value that a tag is the varint of.
constexpr uint64_t TagOf(uint32_t field, WireType type) { return uint64_t{field} << 3 | static_cast<uint64_t>(type); }
constexpr size_t TagSize(uint32_t field) { return VarintSize(TagOf(field, WireType::kVarint)); }

inline void AppendTag(uint32_t field, WireType type, std::string& out) { AppendVarint(TagOf(field, type), out); }

// The lowest byte first, on every machine.
template <std::unsigned_integral Unsigned>
void AppendFixed(Unsigned value, std::string& out) {
  char bytes[sizeof(value)];
  for (size_t i = 0; i < sizeof(value); ++i) bytes[i] = static_cast<char>(value >> 8 * i);
  out.append(bytes, sizeof(value));
}

// ---- whole fields; 0 is written, too

// Of an int32, int64, uint32, uint64, bool or enum. Negative numbers are the uint64_t that they convert to.
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

// All of a delimited field but its `size` bytes, which are to follow.
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
