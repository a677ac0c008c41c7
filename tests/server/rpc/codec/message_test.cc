#include "server/rpc/codec/message.h"

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <string>

#include "normd/v1/normalizer.pb.h"
#include "server/rpc/codec/element_count.h"

namespace normd::rpc {
namespace {

std::string Field(int number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) + bytes;
}

grpc::ByteBuffer InOneSlice(const std::string& bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  return grpc::ByteBuffer(&slice, 1);
}

bool Takes(const std::string& bytes) {
  v1::NormalizeRequest plain;
  v1::NormalizeRequest with_layout;
  TensorSource tensors;
  const bool plainly = ParseInto(InOneSlice(bytes), &plain).ok();
  EXPECT_EQ(ParseInto(rpc::Receive(InOneSlice(bytes), wire::kNormalizeRequest), &with_layout, &tensors).ok(), plainly);
  return plainly;
}

// Found by the fuzzer: they were taken in fields that the walker copies and refused elsewhere.
TEST(ParseIntoTest, TakesUnknownGroupsWhereverTheyAre) {
  const std::string group = "\x33\x08\x01\x34";  // field 6: field 1 is 1
  EXPECT_TRUE(Takes("\xa3\x06\xa4\x06"));
  EXPECT_TRUE(Takes(Field(1, group)));
  EXPECT_TRUE(Takes(Field(15, Field(3, group))));
  EXPECT_TRUE(Takes(Field(15, group)));
  EXPECT_FALSE(Takes("\x34"));
  EXPECT_FALSE(Takes("\x33"));
  EXPECT_FALSE(Takes(Field(15, "\x33\x7a\x01")));
}

TEST(CountElementsTest, CountsAGroupByItsBytes) {
  std::string bytes = "\x33";
  for (int64_t i = 0; i < kMaxElements / 2; ++i) bytes += std::string("\x08\x01");
  bytes += '\x34';
  const auto count = CountElements(InOneSlice(bytes), *v1::NormalizeRequest::descriptor());
  ASSERT_TRUE(count.has_value());
  EXPECT_GT(*count, kMaxElements);
  v1::NormalizeRequest request;
  EXPECT_FALSE(ParseInto(InOneSlice(bytes), &request).ok());
}

}  // namespace
}  // namespace normd::rpc
