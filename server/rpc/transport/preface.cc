#include "server/rpc/transport/preface.h"

#include <algorithm>

#include "server/rpc/transport/http2.h"

namespace normd::rpc {
namespace {

unsigned Byte(std::string_view text, size_t at) { return static_cast<unsigned char>(text[at]); }

// True for a method in capitals followed by a space: "GET ", "OPTIONS ".
bool LooksLikeHttp1(std::string_view head) {
  const size_t space = head.find(' ');
  const std::string_view method = head.substr(0, space);
  return space != std::string_view::npos && space >= 3 && space <= 7 &&
         std::all_of(method.begin(), method.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

}  // namespace

Preface JudgePreface(std::string_view head) {
  const size_t same = std::min(head.size(), http2::kMagic.size());
  if (head.substr(0, same) != http2::kMagic.substr(0, same)) {
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

std::string_view Http1Answer() {
  return "HTTP/1.1 426 Upgrade Required\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: 99\r\n\r\n"
         "This port speaks gRPC, which is HTTP/2 without TLS here; metrics and health are on the admin port.\n";
}

}  // namespace normd::rpc
