#include "server/rpc/http2/http_rules.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace normd::rpc::http2 {
namespace {

// Bits of HttpRules::seen_.
constexpr uint16_t kMethod = 1, kScheme = 2, kPath = 4, kAuthority = 8, kHost = 16, kRegular = 32, kHttpScheme = 64,
                   kRootedPath = 128, kAsterisk = 256, kOptions = 512, kConnect = 1024;

// RFC 9113, 8.2.2: fields of a connection of HTTP/1.1.
constexpr std::array<std::string_view, 5> kConnectionFields = {"connection", "keep-alive", "proxy-connection",
                                                               "transfer-encoding", "upgrade"};

const uint8_t* Bytes(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

bool IsName(std::string_view text) { return nghttp2_check_header_name(Bytes(text), text.size()) != 0; }

bool IsValue(std::string_view text) { return nghttp2_check_header_value(Bytes(text), text.size()) != 0; }

bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }

bool IsScheme(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || IsUpper(c); };
  return !text.empty() && is_letter(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
  });
}

bool IsTrailers(std::string_view text) {
  constexpr std::string_view kTrailers = "trailers";
  return std::equal(text.begin(), text.end(), kTrailers.begin(), kTrailers.end(),
                    [](char a, char b) { return (IsUpper(a) ? a + ('a' - 'A') : a) == b; });
}

// Judges the characters of a regular field. As nghttp2 does, because the Internet is full of such fields, those with
// characters that they may not have are left out; but capitals in a name are HTTP/1's, and break the rules.
HttpRules::Verdict JudgeText(std::string_view name, std::string_view value) {
  if (std::any_of(name.begin(), name.end(), IsUpper)) return HttpRules::Verdict::kBroken;
  return IsName(name) && IsValue(value) ? HttpRules::Verdict::kGood : HttpRules::Verdict::kIgnored;
}

bool IsConnectionField(std::string_view name) {
  return std::find(kConnectionFields.begin(), kConnectionFields.end(), name) != kConnectionFields.end();
}

}  // namespace

bool HttpRules::Once(uint16_t field) {
  if ((seen_ & field) != 0) return false;
  seen_ |= field;
  return true;
}

HttpRules::Verdict HttpRules::AddHeader(std::string_view name, std::string_view value) {
  if (name.starts_with(':')) return (seen_ & kRegular) != 0 ? Verdict::kBroken : AddPseudo(name, value);
  seen_ |= kRegular;
  const Verdict text = JudgeText(name, value);
  return text == Verdict::kGood ? AddRegular(name, value) : text;
}

HttpRules::Verdict HttpRules::AddPseudo(std::string_view name, std::string_view value) {
  const auto judge = [](bool good) { return good ? Verdict::kGood : Verdict::kBroken; };
  if (name == ":authority") return judge(IsValue(value) && Once(kAuthority));
  if (value.empty()) return Verdict::kBroken;
  if (name == ":method") {
    if (value == "OPTIONS") seen_ |= kOptions;
    if (value == "CONNECT") seen_ |= kConnect;
    return judge(nghttp2_check_method(Bytes(value), value.size()) != 0 && Once(kMethod));
  }
  if (name == ":path") {
    if (value[0] == '/') seen_ |= kRootedPath;
    if (value == "*") seen_ |= kAsterisk;
    return judge(nghttp2_check_path(Bytes(value), value.size()) != 0 && Once(kPath));
  }
  if (name == ":scheme") {
    if (value == "http" || value == "https") seen_ |= kHttpScheme;
    return judge(IsScheme(value) && Once(kScheme));
  }
  return Verdict::kBroken;
}

HttpRules::Verdict HttpRules::AddRegular(std::string_view name, std::string_view value) {
  if (name == "host") return Once(kHost) ? Verdict::kGood : Verdict::kBroken;
  if (name == "te") return IsTrailers(value) ? Verdict::kGood : Verdict::kBroken;
  if (name == "content-length") {
    if (content_length_ >= 0) return Verdict::kBroken;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), content_length_);
    const bool good = error == std::errc() && end == value.data() + value.size() && content_length_ >= 0;
    return good ? Verdict::kGood : Verdict::kBroken;
  }
  return IsConnectionField(name) ? Verdict::kBroken : Verdict::kGood;
}

HttpRules::Verdict HttpRules::AddTrailer(std::string_view name, std::string_view value) const {
  if (name.starts_with(':')) return Verdict::kBroken;
  const Verdict text = JudgeText(name, value);
  if (text != Verdict::kGood) return text;
  const bool bad = IsConnectionField(name) || (name == "te" && !IsTrailers(value));
  return bad ? Verdict::kBroken : Verdict::kGood;
}

bool HttpRules::IsComplete() const {
  constexpr uint16_t kAll = kMethod | kScheme | kPath;
  const bool has_authority = (seen_ & (kAuthority | kHost)) != 0;
  // RFC 9113, 8.5; refused later, as every method but POST is.
  if ((seen_ & kConnect) != 0) return (seen_ & (kScheme | kPath)) == 0 && (seen_ & kAuthority) != 0;
  if ((seen_ & kAll) != kAll || !has_authority) return false;
  if ((seen_ & kHttpScheme) == 0 || (seen_ & kRootedPath) != 0) return true;
  return (seen_ & kOptions) != 0 && (seen_ & kAsterisk) != 0;
}

bool HttpRules::AddBody(size_t bytes) {
  received_ += static_cast<int64_t>(bytes);
  return content_length_ < 0 || received_ <= content_length_;
}

}  // namespace normd::rpc::http2
