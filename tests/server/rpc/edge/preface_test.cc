#include "server/rpc/edge/preface.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "server/rpc/edge/http2.h"

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

TEST(PrefaceTest, AnOlderHttpGetsAnAnswerThatSaysSo) {
  EXPECT_EQ(JudgePreface("GET"), Preface::kIncomplete);
  EXPECT_EQ(JudgePreface("GET /metrics HTTP/1.1\r\n"), Preface::kHttp1);
  EXPECT_EQ(JudgePreface("OPTIONS * HTTP/1.1\r\n"), Preface::kHttp1);
  for (const bool tls : {false, true}) {
    const std::string answer(FarewellTo(Preface::kHttp1, tls).answer);
    const size_t body = answer.find("\r\n\r\n") + 4;
    EXPECT_NE(answer.find("Content-Length: " + std::to_string(answer.size() - body)), std::string::npos) << answer;
    EXPECT_NE(answer.find(tls ? "over TLS" : "without TLS"), std::string::npos);
  }
}

TEST(PrefaceTest, BytesThatCannotBecomeHttp2AreForeign) {
  EXPECT_EQ(JudgePreface("PRI/1 * HTTP"), Preface::kForeign);
  EXPECT_EQ(JudgePreface("hello"), Preface::kForeign);
  EXPECT_EQ(JudgePreface(kMagic + std::string("\0\0\4\0\0\0\0\0\0data", 13)), Preface::kForeign) << "not SETTINGS";
  EXPECT_EQ(JudgePreface(kMagic + Settings(200)), Preface::kForeign) << "more than the window";
}

TEST(PrefaceTest, DistinguishesTlsFromJunkOnAPlainPort) {
  EXPECT_EQ(JudgePreface("\x16"), Preface::kTls);
  EXPECT_EQ(JudgePreface(std::string("\x16\x03\x01\x02", 4)), Preface::kTls);
}

// The first record of a TLS connection: a ClientHello of `length` bytes.
std::string ClientHello(size_t length) {
  std::string record = {22, 3, 1, static_cast<char>(length >> 8), static_cast<char>(length), 1};
  return record + std::string(length - 1, 'x');
}

Preface Judge(const std::string& received) {
  return JudgeClientHello(received.substr(0, kPrefaceWindowBytes), received.size());
}

TEST(PrefaceTest, AClientHelloIsCompleteWithItsRecordAndNotAByteBefore) {
  for (const size_t length : {1, 300, 1019, 1020, 5000, 1 << 14}) {  // up to the largest record, the window apart
    const std::string whole = ClientHello(length);
    EXPECT_EQ(Judge(whole), Preface::kComplete) << length;
    EXPECT_EQ(Judge(whole + "what follows"), Preface::kComplete) << length;
    EXPECT_EQ(Judge(whole.substr(0, whole.size() - 1)), Preface::kIncomplete) << length;
    EXPECT_EQ(Judge(whole.substr(0, 1)), Preface::kIncomplete);
    EXPECT_EQ(Judge(whole.substr(0, 5)), Preface::kIncomplete);
  }
}

TEST(PrefaceTest, DistinguishesPlainTextFromJunkOnATlsPort) {
  EXPECT_EQ(Judge(kMagic + Settings(3)), Preface::kHttp2);
  EXPECT_EQ(Judge(kMagic), Preface::kIncomplete);
  EXPECT_EQ(Judge("GET /metrics HTTP/1.1\r\n"), Preface::kHttp1);
  EXPECT_EQ(Judge("hello"), Preface::kForeign);
  EXPECT_EQ(Judge(std::string("\x16\x02\x00", 3)), Preface::kForeign) << "no version of TLS";
  EXPECT_EQ(Judge(std::string("\x16\x03\x01\x00\x05\x02", 6)), Preface::kForeign) << "no ClientHello";
  EXPECT_EQ(Judge(std::string("\x16\x03\x01\x40\x01\x01", 6)), Preface::kForeign) << "more than a record holds";
  EXPECT_EQ(Judge(std::string("\x80\x2e\x01\x03\x01", 5)), Preface::kForeign) << "the hello of SSL 2";
}

// What a peer over a limit is answered; gRPC's clients show it in tests/e2e/connections_test.cc.
TEST(RefusedCallTest, AnswersTheFirstCall) {
  const std::string head = std::string(http2::kMagic) + std::string(http2::kEmptySettings);
  EXPECT_EQ(FirstCall(head), std::nullopt);
  EXPECT_EQ(FirstCall(head.substr(0, 10)), std::nullopt);
  const std::string call("\0\0\4\1\4\x80\0\0\7", 9);
  EXPECT_EQ(FirstCall(head + call), 7u) << "its head will do, and the reserved bit does not count";
  const std::string answer = RefusedCall(7, "full");
  EXPECT_NE(answer.find(std::string("grpc-message\4full")), std::string::npos);
  EXPECT_EQ(answer.substr(answer.size() - 12), std::string("\0\0\0\7\0\0\0\0full", 12)) << "GOAWAY";
}

}  // namespace
}  // namespace normd::rpc
