#include "server/rpc/http2/message_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

namespace normd::rpc::http2 {
namespace {

constexpr int64_t kLimit = 1 << 20;

std::string Message(const std::string& body) {
  std::string bytes(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(body.size() >> shift & 0xFF);
  return bytes + body;
}

std::string TextOf(const MessageBytes& message) {
  std::string text;
  for (const Slice& slice : message.slices()) text += slice.text();
  return text;
}

TEST(MessageReaderTest, MessagesComeWholeHoweverTheirBytesAreCut) {
  const std::string large(70000, 'y');
  const std::string bytes = Message("abc") + Message("") + Message(large) + Message("d");
  for (const size_t cut : {size_t{1}, size_t{2}, size_t{5}, size_t{6}, size_t{1000}, bytes.size()}) {
    MessageReader reader(kLimit, nullptr);
    std::string got;
    for (size_t begin = 0; begin < bytes.size(); begin += cut) {
      reader.Append(std::string_view(bytes).substr(begin, cut));
      reader.Open();
      for (; reader.complete(); reader.Open()) got += TextOf(reader.Take()) + "|";
    }
    EXPECT_EQ(got, "abc||" + large + "|d|") << cut;
    EXPECT_TRUE(reader.empty()) << cut;
  }
}

TEST(MessageReaderTest, ASmallMessageIsCollectedBeforeItIsAskedFor) {
  MessageReader reader(kLimit, nullptr);
  reader.Append(Message("abc") + Message("de"));
  EXPECT_TRUE(reader.complete());
  EXPECT_EQ(reader.front_bytes(), 3);
  EXPECT_EQ(TextOf(reader.Take()), "abc");
  EXPECT_TRUE(reader.complete());
  EXPECT_EQ(TextOf(reader.Take()), "de");
  EXPECT_TRUE(reader.empty());
}

TEST(MessageReaderTest, OnlyTheHeadOfARefusedMessageIsKept) {
  for (const size_t cut : {size_t{1}, size_t{63}, size_t{1000}, size_t{200'000}}) {
    MessageReader reader(kLimit, nullptr);
    const std::string large = "head" + std::string(100'000, 'z');
    const std::string bytes = Message(large) + Message("next");
    reader.Append(std::string_view(bytes).substr(0, 1000));
    ASSERT_EQ(reader.front_bytes(), 100'004);
    reader.KeepHead(64);
    reader.Open();
    for (size_t begin = 1000; begin < bytes.size(); begin += cut) {
      EXPECT_EQ(reader.complete(), begin >= large.size() + MessageReader::kPrefixBytes) << begin;
      reader.Append(std::string_view(bytes).substr(begin, cut));
    }
    ASSERT_TRUE(reader.complete());
    EXPECT_EQ(TextOf(reader.Take()), large.substr(0, 64));
    ASSERT_TRUE(reader.complete());
    EXPECT_EQ(TextOf(reader.Take()), "next");
    EXPECT_TRUE(reader.empty());
  }
}

TEST(MessageReaderTest, ALargeMessageHasNoBlockUntilItIsOpened) {
  MessageReader reader(kLimit, nullptr);
  const std::string bytes = Message(std::string(100000, 'z'));
  reader.Append(std::string_view(bytes).substr(0, 1005));
  EXPECT_EQ(reader.front_bytes(), 100000);
  EXPECT_EQ(reader.missing_bytes(), 99000);
  EXPECT_TRUE(reader.Destination().empty());
  reader.Open();
  EXPECT_EQ(reader.missing_bytes(), 99000);
  EXPECT_EQ(reader.Destination().size(), 99000U);
  reader.Append(std::string_view(bytes).substr(1005));
  EXPECT_TRUE(reader.complete());
  EXPECT_EQ(TextOf(reader.Take()), std::string(100000, 'z'));
}

TEST(MessageReaderTest, BytesThatAreReadToTheirDestinationStayThere) {
  MessageReader reader(kLimit, nullptr);
  reader.Open();
  const std::string bytes = Message(std::string(100000, 'w'));
  reader.Append(std::string_view(bytes).substr(0, 5));
  while (!reader.complete()) {
    const absl::Span<char> place = reader.Destination();
    const size_t size = std::min<size_t>(place.size(), 7777);
    std::memset(place.data(), 'w', size);
    reader.Append({place.data(), size});
  }
  const MessageBytes message = reader.Take();
  ASSERT_EQ(message.slices().size(), 1U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(message.slices()[0].data()) % Buffer::kAlignment, 0U);
  EXPECT_EQ(TextOf(message), std::string(100000, 'w'));
}

TEST(MessageReaderTest, AFaultShowsWithThePrefix) {
  MessageReader reader(1000, nullptr);
  reader.Append(Message("ok") + Message(std::string(1001, 'x')));
  EXPECT_EQ(reader.fault(), MessageReader::Fault::kNone);
  EXPECT_EQ(TextOf(reader.Take()), "ok");
  EXPECT_EQ(reader.fault(), MessageReader::Fault::kTooLarge);
  EXPECT_EQ(reader.front_bytes(), 1001);
  MessageReader compressed(1000, nullptr);
  compressed.Append(std::string("\1\0\0\0\1", 5));
  EXPECT_EQ(compressed.fault(), MessageReader::Fault::kCompressed);
}

TEST(MessageReaderTest, APartOfAMessageIsNotEmpty) {
  MessageReader reader(1000, nullptr);
  EXPECT_TRUE(reader.empty());
  reader.Append(std::string(3, '\0'));
  EXPECT_FALSE(reader.empty());
  EXPECT_EQ(reader.missing_bytes(), 2);
  reader.Clear();
  EXPECT_TRUE(reader.empty());
}

}  // namespace
}  // namespace normd::rpc::http2
