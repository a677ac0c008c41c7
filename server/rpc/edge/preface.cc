#include "server/rpc/edge/preface.h"

#include <algorithm>

#include "server/rpc/edge/http2.h"

namespace normd::rpc {
namespace {

// RFC 8446, 5.1 and 4: a record has a type, a version (2 bytes) and a length (2); a handshake message begins with its
// type.
constexpr char kHandshakeRecord = 22;
constexpr char kVersionMajor = 3;
constexpr size_t kRecordHeaderBytes = 5;
constexpr char kClientHelloMessage = 1;
constexpr size_t kMaxRecordBytes = 1 << 14;

unsigned Byte(std::string_view text, size_t at) { return static_cast<unsigned char>(text[at]); }

// True for a method in capitals followed by a space: "GET ", "OPTIONS ".
bool LooksLikeHttp1(std::string_view head) {
  const size_t space = head.find(' ');
  const std::string_view method = head.substr(0, space);
  return space != std::string_view::npos && space >= 3 && space <= 7 &&
         std::all_of(method.begin(), method.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

// What fits a length of one byte in HPACK.
constexpr size_t kMostFieldBytes = 126;

// Adds a literal field that is not indexed (RFC 7541, 6.2.2).
void AddField(std::string_view name, std::string_view value, std::string* block) {
  block->push_back('\0');
  for (const std::string_view text : {name, value}) {
    block->push_back(static_cast<char>(text.size()));
    block->append(text);
  }
}

void AddBigEndian(uint32_t value, std::string* out) {
  for (int shift = 24; shift >= 0; shift -= 8) out->push_back(static_cast<char>(value >> shift & 0xFF));
}

void AddFrame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload, std::string* out) {
  std::string length;
  AddBigEndian(static_cast<uint32_t>(payload.size()), &length);
  out->append(length, 1, 3);
  out->push_back(static_cast<char>(type));
  out->push_back(static_cast<char>(flags));
  AddBigEndian(stream, out);
  out->append(payload);
}

// The response that a client of an older HTTP gets.
std::string_view Http1Answer(bool tls) {
  if (tls) {
    return "HTTP/1.1 426 Upgrade Required\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: "
           "96\r\n\r\n"
           "This port speaks gRPC, which is HTTP/2 over TLS here; metrics and health are on the admin port.\n";
  }
  return "HTTP/1.1 426 Upgrade Required\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: 99\r\n\r\n"
         "This port speaks gRPC, which is HTTP/2 without TLS here; metrics and health are on the admin port.\n";
}

}  // namespace

Preface JudgePreface(std::string_view head) {
  const size_t same = std::min(head.size(), http2::kMagic.size());
  if (head.substr(0, same) != http2::kMagic.substr(0, same)) {
    if (head[0] == kHandshakeRecord) return Preface::kTls;
    if (LooksLikeHttp1(head)) return Preface::kHttp1;
    // A few capitals such as "GET" may still become "GET /".
    const bool letters =
        head.size() < 8 && std::all_of(head.begin(), head.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
    return letters ? Preface::kIncomplete : Preface::kForeign;
  }
  if (head.size() < http2::kMagic.size() + http2::kFrameHeaderBytes) return Preface::kIncomplete;
  const std::string_view frame = head.substr(http2::kMagic.size());
  const size_t length = Byte(frame, 0) << 16 | Byte(frame, 1) << 8 | Byte(frame, 2);
  const bool settings = Byte(frame, 3) == http2::kSettingsType && Byte(frame, 4) == 0;
  const size_t whole = http2::kMagic.size() + http2::kFrameHeaderBytes + length;
  if (!settings || whole > kPrefaceWindowBytes) return Preface::kForeign;
  return head.size() >= whole ? Preface::kComplete : Preface::kIncomplete;
}

Preface JudgeClientHello(std::string_view head, size_t received) {
  if (head[0] != kHandshakeRecord) {
    const Preface plain = JudgePreface(head);
    return plain == Preface::kComplete ? Preface::kHttp2 : plain;
  }
  if (head.size() > 1 && head[1] != kVersionMajor) return Preface::kForeign;
  if (head.size() <= kRecordHeaderBytes) return Preface::kIncomplete;
  const size_t length = Byte(head, 3) << 8 | Byte(head, 4);
  if (head[kRecordHeaderBytes] != kClientHelloMessage || length > kMaxRecordBytes) return Preface::kForeign;
  return received >= kRecordHeaderBytes + length ? Preface::kComplete : Preface::kIncomplete;
}

Farewell FarewellTo(Preface spoken, bool tls) {
  if (spoken == Preface::kHttp1) return {tls ? RefusedFor::kPlaintext : RefusedFor::kForeign, Http1Answer(tls)};
  if (spoken == Preface::kHttp2) return {RefusedFor::kPlaintext, ""};
  // Whoever speaks TLS finds that this is none, as with every server without TLS.
  if (spoken == Preface::kTls) return {RefusedFor::kTls, http2::kEmptySettings};
  return {RefusedFor::kForeign, ""};
}

std::optional<uint32_t> FirstCall(std::string_view head) {
  size_t at = http2::kMagic.size();
  while (head.size() >= at + http2::kFrameHeaderBytes) {
    const std::string_view frame = head.substr(at);
    if (Byte(frame, 3) == http2::kHeadersType) {
      return (Byte(frame, 5) & 0x7F) << 24 | Byte(frame, 6) << 16 | Byte(frame, 7) << 8 | Byte(frame, 8);
    }
    at += http2::kFrameHeaderBytes + (Byte(frame, 0) << 16 | Byte(frame, 1) << 8 | Byte(frame, 2));
  }
  return std::nullopt;
}

std::string RefusedCall(uint32_t stream, std::string_view why) {
  constexpr char kIndexedStatus200 = static_cast<char>(0x88);  // RFC 7541, appendix A
  constexpr char kUnavailable[] = "14";
  std::string block(1, kIndexedStatus200);
  AddField("content-type", "application/grpc", &block);
  AddField("grpc-status", kUnavailable, &block);
  AddField("grpc-message", why.substr(0, kMostFieldBytes), &block);
  constexpr uint8_t kEndOfStreamAndHeaders = 0x5;
  std::string frames;
  AddFrame(http2::kHeadersType, kEndOfStreamAndHeaders, stream, block, &frames);
  std::string goaway;
  AddBigEndian(stream, &goaway);  // the last that was answered
  AddBigEndian(0, &goaway);       // NO_ERROR
  AddFrame(http2::kGoAwayType, 0, 0, goaway + std::string(why), &frames);
  return frames;
}

}  // namespace normd::rpc
