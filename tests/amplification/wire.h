// The bytes of a peer of HTTP/2, made by hand: frames, and header fields as HPACK writes them (RFC 7541). And the count
// of the units in such bytes, whoever made them. Pure functions.
#ifndef NORMD_TESTS_AMPLIFICATION_WIRE_H_
#define NORMD_TESTS_AMPLIFICATION_WIRE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/rpc/edge/http2.h"
#include "tests/amplification/bounds.h"

namespace normd::wire_bytes {

inline constexpr uint8_t kData = 0, kHeaders = 1, kPriority = 2, kReset = 3, kSettings = 4, kPushPromise = 5, kPing = 6,
                         kGoAway = 7, kWindowUpdate = 8, kContinuation = 9, kPriorityUpdate = 16, kUnknown = 0xEE;
inline constexpr uint8_t kEndStream = 1, kAck = 1, kEndHeaders = 4, kPadded = 8;

inline std::string BigEndian(uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xFF);
  return text;
}

inline std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  std::string frame = BigEndian(static_cast<uint32_t>(payload.size()) << 8).substr(0, 3);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  frame += BigEndian(stream);
  return frame.append(payload);
}

inline std::string Repeated(std::string_view text, size_t times) {
  std::string all;
  all.reserve(text.size() * times);
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

// An integer of HPACK with a prefix of `bits`; `first` has the bits before it.
inline std::string Integer(uint64_t value, int bits, uint8_t first = 0) {
  const uint64_t most = (uint64_t{1} << bits) - 1;
  if (value < most) return {static_cast<char>(first | value)};
  std::string text = {static_cast<char>(first | most)};
  for (value -= most; value >= 128; value >>= 7) text += static_cast<char>((value & 127) | 128);
  return text += static_cast<char>(value);
}

inline constexpr uint8_t kNotIndexed = 0, kIndexing = 0x40;

// A field whose name and value are there, as they are.
inline std::string Literal(std::string_view name, std::string_view value, uint8_t first = kNotIndexed) {
  std::string field(1, static_cast<char>(first));
  field.append(Integer(name.size(), 7)).append(name);
  return field.append(Integer(value.size(), 7)).append(value);
}

// The same, with a value that is Huffman-coded already.
inline std::string HuffmanLiteral(std::string_view name, std::string_view coded) {
  std::string field(1, '\0');
  field.append(Integer(name.size(), 7)).append(name);
  return field.append(Integer(coded.size(), 7, 0x80)).append(coded);
}

// A field of the table. 62 is the one that was put into it last.
inline std::string Indexed(uint64_t index) { return Integer(index, 7, 0x80); }
inline constexpr uint64_t kNewestIndex = 62;

inline std::string TableSize(uint64_t bytes) { return Integer(bytes, 5, 0x20); }

inline std::string RequestFields(std::string_view path, std::string_view method = "POST",
                                 std::string_view scheme = "http") {
  return Literal(":method", method) + Literal(":scheme", scheme) + Literal(":path", path) +
         Literal(":authority", "peer") + Literal("content-type", "application/grpc");
}

// A block in one HEADERS frame of at most `frame_bytes`, and CONTINUATIONs.
inline std::string HeaderFrames(uint32_t stream, uint8_t flags, std::string_view block, size_t frame_bytes) {
  std::string frames;
  bool is_first = true;
  do {
    const std::string_view piece = block.substr(0, frame_bytes);
    block.remove_prefix(piece.size());
    const uint8_t end = block.empty() ? kEndHeaders : 0;
    frames += Frame(is_first ? kHeaders : kContinuation, end | (is_first ? flags : 0), stream, piece);
    is_first = false;
  } while (!block.empty());
  return frames;
}

inline std::string Message(std::string_view body) {
  return std::string(1, '\0') + BigEndian(static_cast<uint32_t>(body.size())).append(body);
}

// The preface and the peer's SETTINGS, and the acknowledgement of the server's.
inline std::string Preface() {
  return std::string(rpc::http2::kMagic) + Frame(kSettings, 0, 0, "") + Frame(kSettings, kAck, 0, "");
}

// The units in what a peer sends from its first byte on, or behind its preface. Every fifth byte of DATA may be a
// message: an empty one has five.
inline Units CountUnits(std::string_view bytes) {
  Units units = {.bytes = static_cast<double>(bytes.size())};
  if (bytes.starts_with(rpc::http2::kMagic)) bytes.remove_prefix(rpc::http2::kMagic.size());
  while (bytes.size() >= rpc::http2::kFrameHeaderBytes) {
    const auto byte = [&bytes](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(bytes[i])); };
    const size_t size = byte(0) << 16 | byte(1) << 8 | byte(2);
    const size_t type = byte(3);
    bytes.remove_prefix(rpc::http2::kFrameHeaderBytes);
    const size_t came = std::min(size, bytes.size());
    bytes.remove_prefix(came);
    ++units.frames;
    if (type == kHeaders) ++units.header_blocks;
    if (type == kData) units.messages += static_cast<double>(came / 5);
  }
  return units;
}

}  // namespace normd::wire_bytes

#endif  // NORMD_TESTS_AMPLIFICATION_WIRE_H_
