#include "server/base/traceparent.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/escaping.h"
#include "server/base/random_number.h"

namespace normd {
namespace {

constexpr size_t kHeaderLength = 55;  // of version 00
constexpr uint8_t kSampledFlag = 1;

// The value of a digit; the standard has lower case only. Negative if it is none.
int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Reads two digits for each byte. REQUIRES: `text` has them.
template <size_t kSize>
bool ReadHex(std::string_view text, std::array<uint8_t, kSize>& bytes) {
  for (size_t i = 0; i < kSize; ++i) {
    const int high = HexDigit(text[2 * i]), low = HexDigit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return true;
}

template <size_t kSize>
bool IsZero(const std::array<uint8_t, kSize>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

template <size_t kSize>
std::string HexText(const std::array<uint8_t, kSize>& bytes) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

// Random bytes that are not all zero.
template <size_t kSize>
std::array<uint8_t, kSize> RandomId() {
  std::array<uint8_t, kSize> id;
  do {
    for (size_t i = 0; i < kSize; i += sizeof(uint64_t)) {
      const uint64_t number = RandomNumber();
      std::memcpy(id.data() + i, &number, sizeof(number));
    }
  } while (IsZero(id));
  return id;
}

}  // namespace

std::optional<TraceParent> ParseTraceparent(std::string_view header) {
  // version-trace_id-span_id-flags; what a later version appends begins with one more dash.
  if (header.size() < kHeaderLength || header[2] != '-' || header[35] != '-' || header[52] != '-') return std::nullopt;
  std::array<uint8_t, 1> version, flags;
  TraceParent parent;
  if (!ReadHex(header, version) || !ReadHex(header.substr(3), parent.trace_id) ||
      !ReadHex(header.substr(36), parent.span_id) || !ReadHex(header.substr(53), flags)) {
    return std::nullopt;
  }
  if (version[0] == 0xff || IsZero(parent.trace_id) || IsZero(parent.span_id)) return std::nullopt;
  if (header.size() > kHeaderLength && (version[0] == 0 || header[kHeaderLength] != '-')) return std::nullopt;
  parent.sampled = (flags[0] & kSampledFlag) != 0;
  return parent;
}

std::string FormatTraceparent(const TraceParent& parent) {
  return "00-" + HexText(parent.trace_id) + "-" + HexText(parent.span_id) + (parent.sampled ? "-01" : "-00");
}

std::string TraceIdText(const TraceId& id) { return HexText(id); }

TraceId MakeTraceId() { return RandomId<16>(); }
SpanId MakeSpanId() { return RandomId<8>(); }

}  // namespace normd
