#include "server/rpc/http2/grpc_headers.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace normd::rpc::http2 {
namespace {

constexpr size_t kMaxTimeoutDigits = 8;
constexpr std::string_view kGrpcContentType = "application/grpc";
constexpr std::string_view kProtobufFormat = "+proto";

std::optional<absl::Duration> TimeoutUnit(char unit) {
  switch (unit) {
    case 'H':
      return absl::Hours(1);
    case 'M':
      return absl::Minutes(1);
    case 'S':
      return absl::Seconds(1);
    case 'm':
      return absl::Milliseconds(1);
    case 'u':
      return absl::Microseconds(1);
    case 'n':
      return absl::Nanoseconds(1);
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<absl::Duration> ParseTimeout(std::string_view text) {
  if (text.size() < 2 || text.size() > kMaxTimeoutDigits + 1) return std::nullopt;
  const std::optional<absl::Duration> unit = TimeoutUnit(text.back());
  if (!unit.has_value()) return std::nullopt;
  int64_t count = 0;
  for (const char digit : text.substr(0, text.size() - 1)) {
    if (digit < '0' || digit > '9') return std::nullopt;
    count = count * 10 + (digit - '0');
  }
  return *unit * count;
}

std::string PercentEncode(std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte >= 0x20 && byte <= 0x7E && byte != '%') {
      encoded += character;
    } else {
      encoded += '%';
      encoded += kHex[byte >> 4];
      encoded += kHex[byte & 0xF];
    }
  }
  return encoded;
}

std::string EncodeBinary(std::string_view bytes) {
  std::string encoded = absl::Base64Escape(absl::string_view(bytes.data(), bytes.size()));
  while (!encoded.empty() && encoded.back() == '=') encoded.pop_back();
  return encoded;
}

std::optional<std::string> DecodeBinary(std::string_view text) {
  std::string decoded;
  if (!absl::Base64Unescape(absl::string_view(text.data(), text.size()), &decoded)) return std::nullopt;
  return decoded;
}

bool IsGrpcContentType(std::string_view type) {
  if (!type.starts_with(kGrpcContentType)) return false;
  type.remove_prefix(kGrpcContentType.size());
  if (type.starts_with(kProtobufFormat)) type.remove_prefix(kProtobufFormat.size());
  // Blanks may stand before the parameters (RFC 9110, 8.3.1).
  const size_t end = type.find_first_not_of(" \t");
  return type.empty() || (end != std::string_view::npos && type[end] == ';');
}

}  // namespace normd::rpc::http2
