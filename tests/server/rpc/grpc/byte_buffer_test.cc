#include "server/rpc/grpc/byte_buffer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace normd::rpc {
namespace {

std::string MessageText(const MessageBytes& message) {
  std::string text;
  for (const Slice& slice : message.slices()) text.append(slice.text());
  return text;
}

std::vector<grpc::Slice> SlicesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  return slices;
}

TEST(ByteBufferTest, MessagesOfAllSizesComeBack) {
  for (const size_t size : {0, 1, 23, 24, 256, 257, 100'000}) {
    MessageBytes message(Slice(std::string(size, 'a')));
    for (int pieces = 1; pieces <= 3; ++pieces) {
      const grpc::ByteBuffer buffer = ToByteBuffer(message);
      EXPECT_TRUE(buffer.Valid()) << "gRPC refuses to send a message without a slice";
      EXPECT_EQ(MessageText(ToMessageBytes(buffer)), MessageText(message)) << size << " in " << pieces;
      message.Append(Slice(std::string(size, 'b')));
    }
  }
}

TEST(ByteBufferTest, LargeSlicesAreNotCopied) {
  const Slice slice(std::string(1000, 'a'));
  const grpc::ByteBuffer buffer = ToByteBuffer(MessageBytes(slice));
  EXPECT_EQ(reinterpret_cast<const char*>(SlicesOf(buffer).front().begin()), slice.data());
  const MessageBytes back = ToMessageBytes(buffer);
  EXPECT_EQ(back.slices().front().data(), slice.data());
}

TEST(ByteBufferTest, EachSideKeepsTheBytesAlive) {
  std::weak_ptr<const void> owner;
  MessageBytes back;
  {
    Slice slice(std::string(1000, 'a'));
    owner = slice.owner();
    back = ToMessageBytes(ToByteBuffer(MessageBytes(std::move(slice))));
  }
  EXPECT_FALSE(owner.expired());
  EXPECT_EQ(MessageText(back), std::string(1000, 'a'));
  back = MessageBytes();
  EXPECT_TRUE(owner.expired());
}

}  // namespace
}  // namespace normd::rpc
