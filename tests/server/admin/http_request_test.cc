#include "server/admin/http_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

namespace normd {
namespace {

using Kind = HttpRequest::Kind;

// What comes at once.
HttpRequest Parse(std::string_view received) {
  HttpScan scan;
  return ParseHttpRequest(received, &scan);
}

int RefusalOf(const std::string& received) {
  const HttpRequest request = Parse(received);
  return request.kind == Kind::kRefused ? request.status : 0;
}

TEST(HttpRequest, IsWholeWithTheEmptyLine) {
  const std::string whole = "GET /metrics?a=b HTTP/1.1\r\nHost: x\r\n\r\n";
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(Parse(whole.substr(0, size)).kind, Kind::kIncomplete) << size;
  }
  const HttpRequest request = Parse(whole);
  EXPECT_EQ(request.kind, Kind::kGet);
  EXPECT_EQ(request.path, "/metrics");
  EXPECT_EQ(request.host, "x");
  EXPECT_EQ(Parse("HEAD / HTTP/1.0\r\n\r\n").kind, Kind::kHead);
}

TEST(HttpRequest, IsTheSameInAnyPieces) {
  const std::string whole = "GET /a HTTP/1.1\r\nA: b\r\nHost: x\r\nC: \r\n\r\n";
  for (size_t piece = 1; piece < whole.size(); ++piece) {
    HttpScan scan;
    HttpRequest request;
    for (size_t size = 0; size < whole.size();) {
      size = std::min(size + piece, whole.size());
      request = ParseHttpRequest(std::string_view(whole).substr(0, size), &scan);
      EXPECT_EQ(request.kind, size == whole.size() ? Kind::kGet : Kind::kIncomplete) << piece << " " << size;
    }
    EXPECT_EQ(request.path, "/a");
    EXPECT_EQ(request.host, "x");
  }
}

// The work that a caller causes is in proportion to the bytes that it sends, however it cuts them.
TEST(HttpRequest, CostsTheSameByteByByte) {
  const std::string line = "GET / HTTP/1.1\r\n";
  std::string fields = line;
  while (fields.size() < kMaxHttpHeadBytes) fields += "a:\r\n";
  for (const std::string& received : {"GET /" + std::string(kMaxHttpHeadBytes, 'a'), line + std::string(8000, '\r'),
                                      line + std::string(8000, 'a'), fields}) {
    HttpScan scan;
    size_t size = 0;
    while (size < received.size() && ParseHttpRequest(received.substr(0, ++size), &scan).kind == Kind::kIncomplete) {
    }
    EXPECT_GE(size, 8000U);
    EXPECT_LE(scan.work_bytes, 5 * size) << received.substr(0, 20);
  }
}

TEST(HttpRequest, RefusesNonsenseAsSoonAsItShows) {
  EXPECT_EQ(RefusalOf("\x16\x03\x01"), 400) << "TLS";
  EXPECT_EQ(RefusalOf("get / HTTP/1.1\r\n"), 400);
  EXPECT_EQ(RefusalOf("\r\n"), 400);
  EXPECT_EQ(RefusalOf("GET\r\n"), 400);
  EXPECT_EQ(RefusalOf("GET / \r\n"), 400);
  EXPECT_EQ(RefusalOf("GET  HTTP/1.1\r\n"), 400);
  EXPECT_EQ(RefusalOf("GET /a b HTTP/1.1\r\n"), 400);
  EXPECT_EQ(RefusalOf("GET / HTTP/2.0\r\n"), 400);
  EXPECT_EQ(RefusalOf("PRI * HTTP/2.0\r\n"), 400) << "the preface of HTTP/2";
  EXPECT_EQ(RefusalOf("AMETHODTHATISFARTOOLONG"), 400);
  EXPECT_EQ(RefusalOf(std::string("GE\0T / HTTP/1.1\r\n", 17)), 400);
}

TEST(HttpRequest, RefusesOtherMethodsBeforeTheirBodies) {
  EXPECT_EQ(RefusalOf("POST /metrics HTTP/1.1\r\n"), 405);
  EXPECT_EQ(RefusalOf("DELETE / HTTP/1.1\r\n\r\n"), 405);
}

TEST(HttpRequest, HasTheHostOfItsOnlyHostHeader) {
  EXPECT_EQ(Parse("GET / HTTP/1.1\r\nA: b\r\nhOsT: \t a:1 \r\nHostess: c\r\n\r\n").host, "a:1");
  EXPECT_EQ(Parse("GET / HTTP/1.1\r\nHost:\r\n\r\n").host, "");
  EXPECT_EQ(Parse("GET / HTTP/1.0\r\nX-Host: a\r\n\r\n").host, std::nullopt);
  EXPECT_EQ(RefusalOf("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"), 400);
}

TEST(HttpRequest, RefusesAHeadOverTheLimit) {
  const std::string line = "GET / HTTP/1.1\r\n";
  const std::string largest = line + std::string(kMaxHttpHeadBytes - line.size() - 4, 'a') + "\r\n\r\n";
  EXPECT_EQ(Parse(largest).kind, Kind::kGet);
  EXPECT_EQ(Parse(largest.substr(0, kMaxHttpHeadBytes - 1)).kind, Kind::kIncomplete);
  EXPECT_EQ(RefusalOf("GET /" + std::string(kMaxHttpHeadBytes, 'a')), 431);
  EXPECT_EQ(RefusalOf(line + std::string(kMaxHttpHeadBytes, 'a') + "\r\n\r\n"), 431);
}

TEST(HttpResponse, IsWholeAndEndsItsConnection) {
  const HttpResponse response = {.status = 200, .content_type = "text/html", .body = "page"};
  EXPECT_EQ(EncodeHttpResponse(response, /*head_only=*/false),
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\nConnection: close\r\n\r\npage");
  EXPECT_EQ(EncodeHttpResponse(response, /*head_only=*/true),
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(EncodeHttpResponse(HttpError(405), false), ::testing::HasSubstr("\r\nAllow: GET, HEAD\r\n"));
}

}  // namespace
}  // namespace normd
