#include "server/base/slice.h"

#include <gtest/gtest.h>

#include <cstring>

namespace normd {
namespace {

TEST(SliceTest, APartKeepsTheBytesAlive) {
  Slice part;
  std::weak_ptr<const void> owner;
  {
    Buffer block(100);
    std::memset(block.data(), 'a', 100);
    std::memcpy(block.data() + 40, "bytes", 5);
    const Slice whole(std::move(block));
    EXPECT_EQ(whole.size(), 100U);
    part = whole.Part(40, 45);
    owner = whole.owner();
  }
  EXPECT_EQ(part.text(), "bytes");
  EXPECT_FALSE(owner.expired());
  part = Slice();
  EXPECT_TRUE(owner.expired());
}

TEST(SliceTest, ShortAndEmptyTextsAreKept) {
  const Slice original(std::string("ab"));
  const Slice copy = original;
  EXPECT_EQ(copy.data(), original.data()) << "copies share the bytes";
  EXPECT_EQ(Slice(std::string()).size(), 0U);
  EXPECT_EQ(Slice(Buffer(0)).size(), 0U);
}

TEST(MessageBytesTest, LeavesOutEmptySlices) {
  MessageBytes message;
  EXPECT_TRUE(message.empty());
  message.Append(Slice());
  message.Append(Slice::Copy("abc"));
  message.Append(Slice(std::string()));
  message.Append(Slice::Copy("de"));
  EXPECT_EQ(message.slices().size(), 2U);
  EXPECT_EQ(message.size_bytes(), 5);
}

}  // namespace
}  // namespace normd
