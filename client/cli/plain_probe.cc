#include "client/cli/plain_probe.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "client/cli/probe_socket.h"

namespace normd::client {
namespace {

using std::string_literals::operator""s;

// The preface of HTTP/2, empty SETTINGS, and a PING, whose answer says that the server has nothing more to say.
const std::string& Greeting() {
  static const std::string& greeting =
      *new std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"s + "\0\0\0\4\0\0\0\0\0"s + "\0\0\10\6\0\0\0\0\0normctl?"s);
  return greeting;
}

constexpr size_t kHeadBytes = 9;
constexpr size_t kMostBytes = 64 << 10;
enum FrameType { kSettings = 4, kPing = 6, kGoAway = 7 };

uint32_t Number(absl::string_view bytes) {
  uint32_t out = 0;
  for (const char byte : bytes) out = out << 8 | static_cast<unsigned char>(byte);
  return out;
}

std::optional<int> MaxStreams(absl::string_view settings) {
  constexpr uint32_t kMaxConcurrentStreams = 3;
  for (; settings.size() >= 6; settings.remove_prefix(6)) {
    if (Number(settings.substr(0, 2)) != kMaxConcurrentStreams) continue;
    return static_cast<int>(std::min<uint32_t>(Number(settings.substr(2, 4)), INT32_MAX));
  }
  return std::nullopt;
}

// A server begins with SETTINGS of stream 0, or, where it lets nobody in, with GOAWAY.
bool BeginsAsHttp2(absl::string_view bytes) {
  const auto type = static_cast<unsigned char>(bytes[3]);
  if (Number(bytes.substr(5, 4)) != 0) return false;
  const uint32_t length = Number(bytes.substr(0, 3));
  return (type == kSettings && bytes[4] == 0 && length % 6 == 0 && length < 1024) || (type == kGoAway && length >= 8);
}

PlainAnswer Other(absl::string_view bytes) {
  constexpr size_t kShown = 32;
  for (const absl::string_view start : {"HTTP/", "<!DOCTYPE", "<html"}) {  // old servers answer the page alone
    if (absl::StartsWithIgnoreCase(bytes, start)) return {PlainKind::kHttp1, {}, ""};
  }
  const absl::string_view line = bytes.substr(0, std::min(bytes.find_first_of("\r\n"), kShown));
  const bool is_text = std::all_of(line.begin(), line.end(), [](unsigned char c) { return absl::ascii_isprint(c); });
  return {PlainKind::kOther, {}, is_text ? std::string(line) : ""};
}

// What is known when no more bytes come.
PlainAnswer AtTheEnd(absl::string_view bytes, bool closed) {
  if (bytes.empty()) return {closed ? PlainKind::kClosed : PlainKind::kSilent, {}, ""};
  if (bytes.size() < kHeadBytes || !BeginsAsHttp2(bytes)) return Other(bytes);
  const absl::string_view body = bytes.substr(kHeadBytes);
  return {PlainKind::kHttp2, MaxStreams(body.substr(0, Number(bytes.substr(0, 3)))), ""};
}

}  // namespace

std::optional<PlainAnswer> ReadAnswer(absl::string_view bytes) {
  if (bytes.size() < kHeadBytes) return std::nullopt;
  if (!BeginsAsHttp2(bytes)) return Other(bytes);
  PlainAnswer answer{PlainKind::kHttp2, {}, ""};
  while (bytes.size() >= kHeadBytes) {
    const size_t length = Number(bytes.substr(0, 3));
    if (bytes.size() < kHeadBytes + length) return std::nullopt;
    const absl::string_view body = bytes.substr(kHeadBytes, length);
    const auto type = static_cast<unsigned char>(bytes[3]);
    const bool is_answer = bytes[4] != 0;
    if (type == kSettings && !is_answer) answer.max_streams = MaxStreams(body);
    if (type == kGoAway && length >= 8) {
      answer.text = std::string(body.substr(8));
      return answer;
    }
    if (type == kPing && is_answer) return answer;
    bytes.remove_prefix(kHeadBytes + length);
  }
  return std::nullopt;
}

PlainAnswer AskInPlainText(const std::string& target) {
  const ProbeSocket socket(target);
  if (socket.fd() < 0) return {};
  const std::string& greeting = Greeting();
  send(socket.fd(), greeting.data(), greeting.size(), MSG_NOSIGNAL);
  std::string bytes;
  while (bytes.size() < kMostBytes) {
    char piece[4096];
    const ssize_t count = recv(socket.fd(), piece, sizeof(piece), 0);
    if (count <= 0) return AtTheEnd(bytes, count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK));
    bytes.append(piece, static_cast<size_t>(count));
    if (std::optional<PlainAnswer> answer = ReadAnswer(bytes); answer.has_value()) return *std::move(answer);
  }
  return AtTheEnd(bytes, false);
}

}  // namespace normd::client
