#include "server/rpc/http2/grpc_headers.h"

#include <gtest/gtest.h>

#include <string>

namespace normd::rpc::http2 {
namespace {

TEST(GrpcHeadersTest, TimeoutsHaveUpToEightDigitsAndAUnit) {
  EXPECT_EQ(ParseTimeout("1H"), absl::Hours(1));
  EXPECT_EQ(ParseTimeout("20M"), absl::Minutes(20));
  EXPECT_EQ(ParseTimeout("3S"), absl::Seconds(3));
  EXPECT_EQ(ParseTimeout("250m"), absl::Milliseconds(250));
  EXPECT_EQ(ParseTimeout("99999999u"), absl::Microseconds(99999999));
  EXPECT_EQ(ParseTimeout("0n"), absl::ZeroDuration());
  EXPECT_EQ(ParseTimeout("99999999H"), absl::Hours(99999999));
}

TEST(GrpcHeadersTest, MalformedTimeoutsAreNotUnderstood) {
  for (const char* text :
       {"", "S", "1", "1s", "-1S", "+1S", "1.5S", " 1S", "1S ", "123456789S", "1SS", "S1", "\xFFS"}) {
    EXPECT_EQ(ParseTimeout(text), std::nullopt) << text;
  }
}

TEST(GrpcHeadersTest, MessagesArePercentEncoded) {
  EXPECT_EQ(PercentEncode(""), "");
  EXPECT_EQ(PercentEncode("x is -1; it must be ~1"), "x is -1; it must be ~1");
  EXPECT_EQ(PercentEncode("100 %"), "100 %25");
  EXPECT_EQ(PercentEncode("\xC3\xA4\n\x7F"), "%C3%A4%0A%7F");
  EXPECT_EQ(PercentEncode(std::string(1, '\0')), "%00");
}

TEST(GrpcHeadersTest, BinaryValuesAreBase64WithOrWithoutPadding) {
  for (size_t size = 0; size < 10; ++size) {
    std::string bytes;
    for (size_t i = 0; i < size; ++i) bytes += static_cast<char>(250 + i);
    const std::string text = EncodeBinary(bytes);
    EXPECT_EQ(text.find('='), std::string::npos) << text;
    EXPECT_EQ(DecodeBinary(text), bytes);
    EXPECT_EQ(DecodeBinary(text + std::string((4 - text.size() % 4) % 4, '=')), bytes) << text;
  }
  EXPECT_EQ(EncodeBinary("\xFB\xFF"), "+/8");
  EXPECT_EQ(DecodeBinary("a*b"), std::nullopt);
  EXPECT_EQ(DecodeBinary("a"), std::nullopt);
}

TEST(GrpcHeadersTest, ContentTypesAreGrpcsWithMessagesOfProtobuf) {
  EXPECT_TRUE(IsGrpcContentType("application/grpc"));
  EXPECT_TRUE(IsGrpcContentType("application/grpc+proto"));
  EXPECT_TRUE(IsGrpcContentType("application/grpc;charset=utf-8"));
  EXPECT_TRUE(IsGrpcContentType("application/grpc+proto ; a=b"));
  EXPECT_FALSE(IsGrpcContentType("application/grpc+json"));
  EXPECT_FALSE(IsGrpcContentType("application/grpc+protobuf"));
  EXPECT_FALSE(IsGrpcContentType("application/grpc+"));
  EXPECT_FALSE(IsGrpcContentType("application/grpc+proto+json"));
  EXPECT_FALSE(IsGrpcContentType("application/grpcx"));
  EXPECT_FALSE(IsGrpcContentType("application/grpc-web"));
  EXPECT_FALSE(IsGrpcContentType("application/json"));
  EXPECT_FALSE(IsGrpcContentType(""));
}

}  // namespace
}  // namespace normd::rpc::http2
