#include "server/rpc/http2/request_headers.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace normd::rpc::http2 {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

// As a call takes a field. Returns whether it goes on.
bool Add(std::string_view name, std::string_view value, RequestHeaders* headers) {
  if (!headers->Count(name, value)) return false;
  headers->Add(name, value);
  return true;
}

RequestHeaders Headers(const Fields& extra = {}, int64_t max_bytes = 1000) {
  RequestHeaders headers(max_bytes);
  Add(":method", "POST", &headers);
  Add(":path", "/a.B/C", &headers);
  Add("content-type", "application/grpc", &headers);
  for (const auto& [name, value] : extra) Add(name, value, &headers);
  return headers;
}

Fields MetadataOf(const RequestHeaders& headers) {
  Fields fields;
  headers.VisitMetadata([&fields](std::string_view key, std::string_view value) { fields.emplace_back(key, value); });
  return fields;
}

TEST(RequestHeadersTest, ACallHasAPathATimeoutAndMetadataInTheOrderOfArrival) {
  const RequestHeaders headers = Headers(
      {{"b", "1"}, {"te", "trailers"}, {"grpc-timeout", "2S"}, {"a", ""}, {"b", "2"}, {"grpc-encoding", "identity"}});
  EXPECT_FALSE(headers.Judge().has_value());
  EXPECT_EQ(headers.path(), "/a.B/C");
  EXPECT_EQ(headers.timeout(), absl::Seconds(2));
  EXPECT_EQ(MetadataOf(headers), (Fields{{"b", "1"}, {"a", ""}, {"b", "2"}}));
}

TEST(RequestHeadersTest, BinaryValuesAreDecodedAndTakenApart) {
  EXPECT_EQ(MetadataOf(Headers({{"k-bin", "AAE"}})), (Fields{{"k-bin", std::string("\0\1", 2)}}));
  EXPECT_EQ(MetadataOf(Headers({{"k-bin", "YQ==,Yg"}})), (Fields{{"k-bin", "a"}, {"k-bin", "b"}}));
  EXPECT_EQ(Headers({{"k-bin", "*"}}).Judge()->status.code(), absl::StatusCode::kInternal);
}

// 16 KiB of commas behind a long name would otherwise be 64 MiB of names.
TEST(RequestHeadersTest, JoinedValuesShareTheirKeyAndEachCountsAsAField) {
  constexpr int64_t kLimit = 16 << 10;
  const std::string name = std::string(7000, 'k') + "-bin";
  RequestHeaders two = Headers({{name, "YQ,Yg"}}, kLimit);
  EXPECT_FALSE(two.Judge().has_value());
  EXPECT_EQ(MetadataOf(two), (Fields{{name, "a"}, {name, "b"}}));
  EXPECT_LT(two.held_bytes(), kLimit);
  const RequestHeaders three = Headers({{name, "YQ,Yg,Yw"}}, kLimit);
  EXPECT_EQ(three.Judge()->reason, TransportRefusal::kTooLarge);
  std::string values = "YQ";
  while (values.size() < 8000) values += ",YQ";
  const RequestHeaders many = Headers({{"k-bin", values}}, kLimit);
  EXPECT_EQ(many.Judge()->reason, TransportRefusal::kTooLarge);
  EXPECT_LT(many.held_bytes(), 2 * kLimit);
}

TEST(RequestHeadersTest, EmptyPartsOfAJoinedValueAreRefused) {
  EXPECT_EQ(MetadataOf(Headers({{"k-bin", ""}})), (Fields{{"k-bin", ""}}));
  for (const char* value : {",", "YQ,", ",YQ", "YQ,,YQ"}) {
    EXPECT_EQ(Headers({{"k-bin", value}}).Judge()->reason, TransportRefusal::kMalformed) << value;
  }
  const RequestHeaders commas = Headers({{std::string(7994, 'k') + "-bin", std::string(7990, ',')}}, 16 << 10);
  EXPECT_TRUE(commas.Judge().has_value());
  EXPECT_LT(commas.held_bytes(), 64 << 10);
}

TEST(RequestHeadersTest, ATimeoutComesOnce) {
  EXPECT_EQ(Headers({{"grpc-timeout", "1S"}, {"grpc-timeout", "2S"}}).Judge()->reason, TransportRefusal::kMalformed);
}

TEST(RequestHeadersTest, TrailersCountWithTheHeaders) {
  RequestHeaders headers = Headers({}, 1000);
  EXPECT_TRUE(headers.CountTrailer("a", std::string(500, 'x')));
  EXPECT_FALSE(headers.CountTrailer("a", std::string(500, 'x')));
  EXPECT_FALSE(headers.Judge().has_value());
}

TEST(RequestHeadersTest, ARefusedRequestKeepsNoMetadata) {
  RequestHeaders headers = Headers({{"a", std::string(500, 'x')}});
  EXPECT_GT(headers.held_bytes(), 500);
  headers.Drop();
  EXPECT_LT(headers.held_bytes(), 32);
}

TEST(RequestHeadersTest, ARequestThatIsNotGrpcGetsAnHttpStatus) {
  EXPECT_EQ(Headers({{":method", "GET"}}).Judge()->http_status, 405);
  EXPECT_EQ(Headers({{"content-type", "text/plain"}}).Judge()->http_status, 415);
}

TEST(RequestHeadersTest, CompressionAndMalformedTimeoutsAreRefused) {
  EXPECT_EQ(Headers({{"grpc-encoding", "gzip"}}).Judge()->status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Headers({{"grpc-timeout", "soon"}}).Judge()->status.code(), absl::StatusCode::kInternal);
}

TEST(RequestHeadersTest, EachRefusalHasItsReason) {
  EXPECT_EQ(Headers({{":method", "GET"}}).Judge()->reason, TransportRefusal::kNotGrpc);
  EXPECT_EQ(Headers({{"content-type", "text/plain"}}).Judge()->reason, TransportRefusal::kNotGrpc);
  EXPECT_EQ(Headers({{"grpc-timeout", "soon"}}).Judge()->reason, TransportRefusal::kMalformed);
  EXPECT_EQ(Headers({{"k-bin", "*"}}).Judge()->reason, TransportRefusal::kMalformed);
  EXPECT_EQ(Headers({{"grpc-encoding", "gzip"}}).Judge()->reason, TransportRefusal::kCompressed);
  EXPECT_EQ(Headers({{"a", std::string(1000, 'x')}}).Judge()->reason, TransportRefusal::kTooLarge);
}

TEST(RequestHeadersTest, FieldsThatAreNotAddedCount) {
  RequestHeaders headers = Headers({}, 300);
  EXPECT_TRUE(headers.Count("a", std::string(300, 'x')));
  EXPECT_EQ(headers.Judge()->reason, TransportRefusal::kTooLarge);
  EXPECT_FALSE(headers.Count("a", std::string(1000, 'x')));
}

TEST(RequestHeadersTest, FieldsBeyondTheLimitAreCountedAndNotKept) {
  RequestHeaders headers = Headers({}, 300);
  EXPECT_TRUE(Add("a", std::string(200, 'x'), &headers));
  const absl::Status status = headers.Judge()->status;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message().find("--"), std::string::npos) << "no option sets this limit: " << status.message();
  EXPECT_TRUE(MetadataOf(headers).empty());
  EXPECT_TRUE(Add("a", std::string(500, 'x'), &headers));
  EXPECT_FALSE(Add("a", std::string(500, 'x'), &headers));
}

}  // namespace
}  // namespace normd::rpc::http2
