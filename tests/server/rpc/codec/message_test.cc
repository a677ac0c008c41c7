#include "server/rpc/codec/message.h"

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "normd/v1/normalizer.pb.h"
#include "proto/wire/writer.h"
#include "server/rpc/codec/element_count.h"

namespace normd::rpc {
namespace {

std::string Field(uint32_t number, const std::string& bytes) {
  std::string field;
  wire::AppendDelimitedField(number, bytes, field);
  return field;
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

std::string TextOf(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(bytes.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) text.append(slice.begin(), slice.end());
  return text;
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
    EXPECT_EQ(TextOf(std::move(body).ToByteBuffer()), expected) << size;
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
