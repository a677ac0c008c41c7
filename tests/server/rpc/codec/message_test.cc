#include "server/rpc/codec/message.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "normd/v1/normalizer.pb.h"
#include "proto/wire/writer.h"
#include "server/rpc/codec/element_count.h"
#include "server/rpc/codec/message_input.h"

namespace normd::rpc {
namespace {

std::string Field(uint32_t number, const std::string& bytes) {
  std::string field;
  wire::AppendDelimitedField(number, bytes, field);
  return field;
}

MessageBytes InOneSlice(const std::string& bytes) { return MessageBytes(Slice(bytes)); }

// In pieces of `size` bytes.
MessageBytes InPieces(const std::string& bytes, size_t size) {
  MessageBytes pieces;
  for (size_t at = 0; at < bytes.size(); at += size) pieces.Append(Slice(bytes.substr(at, size)));
  return pieces;
}

bool Takes(const std::string& bytes) {
  v1::NormalizeRequest plain;
  v1::NormalizeRequest with_layout;
  TensorSource tensors;
  const bool plainly = ParseInto(InOneSlice(bytes), &plain).ok();
  EXPECT_EQ(ParseInto(rpc::Receive(InOneSlice(bytes), wire::kNormalizeRequest), &with_layout, &tensors).ok(), plainly);
  return plainly;
}

std::string TextOf(const MessageBytes& bytes) {
  std::string text;
  for (const Slice& slice : bytes.slices()) text.append(slice.text());
  return text;
}

TEST(MessageInputTest, ParsesAMessageInPiecesOfAnySize) {
  v1::NormalizeRequest message;
  message.set_session(std::string(300, 's'));
  message.mutable_x()->set_dtype(v1::DTYPE_F32);
  for (int i = 0; i < 40; ++i) message.mutable_x()->add_shape(int64_t{1} << i);
  message.mutable_x()->set_data(std::string(1000, 'x'));
  const std::string bytes = message.SerializeAsString();
  for (size_t size = 1; size <= bytes.size(); ++size) {
    v1::NormalizeRequest parsed;
    ASSERT_TRUE(ParseInto(InPieces(bytes, size), &parsed).ok()) << size;
    ASSERT_EQ(parsed.SerializeAsString(), bytes) << size;
    ASSERT_FALSE(ParseInto(InPieces(bytes.substr(0, bytes.size() - 1), size), &parsed).ok()) << size;
  }
}

// Skips and steps back within a piece and over the border of two.
TEST(MessageInputTest, SkipsAndBacksUp) {
  const MessageBytes bytes = InPieces("abcdefgh", 3);
  MessageInput input(bytes);
  const void* data = nullptr;
  int size = 0;
  const auto next = [&] {
    return input.Next(&data, &size) ? std::string(static_cast<const char*>(data), static_cast<size_t>(size)) : "";
  };
  EXPECT_EQ(next(), "abc");
  input.BackUp(1);
  EXPECT_EQ(input.ByteCount(), 2);
  EXPECT_EQ(next(), "c");
  EXPECT_TRUE(input.Skip(4));
  EXPECT_EQ(input.ByteCount(), 7);
  EXPECT_EQ(next(), "h");
  input.BackUp(1);
  EXPECT_EQ(next(), "h");
  EXPECT_EQ(next(), "");
  EXPECT_FALSE(input.Skip(1));
  EXPECT_EQ(input.ByteCount(), 8);
}

TEST(WireBodyTest, HoldsTheBytesThatProtobufWrites) {
  for (const size_t size : {size_t{1}, size_t{100}, size_t{128}, size_t{70000}}) {
    v1::NormalizeResponse response;
    v1::Output* const output = response.add_outputs();
    output->set_kind(v1::OUTPUT_KIND_Y);
    output->mutable_tensor()->set_dtype(v1::DTYPE_F32);
    output->mutable_tensor()->set_data(std::string(size, 'y'));
    WireBody tensor;
    tensor.AppendVarintField(v1::Tensor::kDtypeFieldNumber, v1::DTYPE_F32);
    Buffer data(size);
    std::memset(data.data(), 'y', size);
    tensor.AppendBytesField(v1::Tensor::kDataFieldNumber, std::move(data));
    WireBody inner;
    inner.AppendVarintField(v1::Output::kKindFieldNumber, v1::OUTPUT_KIND_Y);
    inner.AppendMessageField(v1::Output::kTensorFieldNumber, std::move(tensor));
    WireBody body;
    body.AppendMessageField(v1::NormalizeResponse::kOutputsFieldNumber, std::move(inner));
    const std::string expected = response.SerializeAsString();
    EXPECT_EQ(body.size_bytes(), expected.size());
    EXPECT_EQ(TextOf(std::move(body).ToBytes()), expected) << size;
  }
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
