#include "server/rpc/transport/preface.h"

#include <string>

#include "gtest/gtest.h"

namespace normd::rpc {
namespace {

const std::string kMagic = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Settings(int entries) {
  const int length = 6 * entries;
  std::string frame = {
      static_cast<char>(length >> 16), static_cast<char>(length >> 8), static_cast<char>(length), 4, 0, 0, 0, 0, 0};
  return frame + std::string(static_cast<size_t>(length), '\1');
}

TEST(PrefaceTest, IsCompleteWithTheWholeSettingsFrameAndNotAByteBefore) {
  const std::string whole = kMagic + Settings(3);
  for (size_t size = 1; size < whole.size(); ++size) {
    EXPECT_EQ(JudgePreface(whole.substr(0, size)), Preface::kIncomplete) << size;
  }
  EXPECT_EQ(JudgePreface(whole), Preface::kComplete);
  EXPECT_EQ(JudgePreface(whole + "what follows"), Preface::kComplete);
  EXPECT_EQ(JudgePreface(kMagic + Settings(0)), Preface::kComplete);
}

TEST(PrefaceTest, AnOlderHttpIsToldSo) {
  EXPECT_EQ(JudgePreface("GET"), Preface::kIncomplete);
  EXPECT_EQ(JudgePreface("GET /metrics HTTP/1.1\r\n"), Preface::kHttp1);
  EXPECT_EQ(JudgePreface("OPTIONS * HTTP/1.1\r\n"), Preface::kHttp1);
  const std::string answer(Http1Answer());
  const size_t body = answer.find("\r\n\r\n") + 4;
  EXPECT_NE(answer.find("Content-Length: " + std::to_string(answer.size() - body)), std::string::npos) << answer;
}

TEST(PrefaceTest, WhatCannotBecomeHttp2IsForeign) {
  EXPECT_EQ(JudgePreface(std::string("\x16\x03\x01\x02", 4)), Preface::kForeign);  // TLS
  EXPECT_EQ(JudgePreface("PRI/1 * HTTP"), Preface::kForeign);
  EXPECT_EQ(JudgePreface("hello"), Preface::kForeign);
  EXPECT_EQ(JudgePreface(kMagic + std::string("\0\0\4\0\0\0\0\0\0data", 13)), Preface::kForeign) << "not SETTINGS";
  EXPECT_EQ(JudgePreface(kMagic + Settings(200)), Preface::kForeign) << "more than the window";
}

}  // namespace
}  // namespace normd::rpc
