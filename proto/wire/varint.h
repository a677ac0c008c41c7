// Varints and tags of the protobuf wire format, written. Shared by server and client. Pure functions.
#ifndef NORMD_PROTO_WIRE_VARINT_H_
#define NORMD_PROTO_WIRE_VARINT_H_

#include <cstdint>
#include <string>

namespace normd::wire {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5 };

inline constexpr int kMaxVarintBytes = 10;

// Writes at most kMaxVarintBytes and returns the end.
inline char* WriteVarint(uint64_t value, char* out) {
  while (value >= 0x80) {
    *out++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<char>(value);
  return out;
}

inline void AppendVarint(uint64_t value, std::string& out) {
  char bytes[kMaxVarintBytes];
  out.append(bytes, static_cast<size_t>(WriteVarint(value, bytes) - bytes));
}

inline void AppendTag(uint32_t field, WireType type, std::string& out) {
  AppendVarint(uint64_t{field} << 3 | static_cast<uint64_t>(type), out);
}

}  // namespace normd::wire

#endif  // NORMD_PROTO_WIRE_VARINT_H_
