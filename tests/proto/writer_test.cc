// proto/wire/writer.h beside protobuf's own writer: the same bytes, and as many as the sizes say.
#include "proto/wire/writer.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "normd/store/v1/record.pb.h"
#include "normd/v1/normalizer.pb.h"

namespace normd::wire {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;
using store::v1::ClientRecord;
using store::v1::Outcome;
using store::v1::SessionRecord;

constexpr uint32_t kMaxField = (1u << 29) - 1;

// Where another byte begins, and where the last one ends.
std::vector<uint64_t> Numbers() {
  std::vector<uint64_t> numbers = {0, 150, std::numeric_limits<uint64_t>::max()};
  for (int bit = 0; bit < 64; ++bit) {
    for (const int64_t more : {-1, 0, 1}) numbers.push_back((uint64_t{1} << bit) + static_cast<uint64_t>(more));
  }
  return numbers;
}

std::vector<uint32_t> Fields() { return {1, 2, 15, 16, 127, 128, 2047, 2048, (1u << 18) - 1, 1u << 18, kMaxField}; }

std::string TextOf(const uint8_t* begin, const uint8_t* end) { return {begin, end}; }

std::string VarintOf(uint64_t value) {
  std::string bytes;
  AppendVarint(value, bytes);
  return bytes;
}

TEST(WriterTest, VarintsAreThoseOfProtobuf) {
  for (const uint64_t number : Numbers()) {
    uint8_t expected[kMaxVarintBytes];
    const uint8_t* const end = CodedOutputStream::WriteVarint64ToArray(number, expected);
    EXPECT_EQ(VarintOf(number), TextOf(expected, end)) << number;
    EXPECT_EQ(VarintSize(number), CodedOutputStream::VarintSize64(number)) << number;
  }
  EXPECT_EQ(VarintSize(std::numeric_limits<uint64_t>::max()), static_cast<size_t>(kMaxVarintBytes));
}

TEST(WriterTest, TagsAreThoseOfProtobuf) {
  const std::pair<WireType, WireFormatLite::WireType> types[] = {
      {WireType::kVarint, WireFormatLite::WIRETYPE_VARINT},
      {WireType::kFixed64, WireFormatLite::WIRETYPE_FIXED64},
      {WireType::kDelimited, WireFormatLite::WIRETYPE_LENGTH_DELIMITED},
      {WireType::kFixed32, WireFormatLite::WIRETYPE_FIXED32}};
  for (const uint32_t field : Fields()) {
    for (const auto& [type, theirs] : types) {
      const uint32_t tag = WireFormatLite::MakeTag(static_cast<int>(field), theirs);
      EXPECT_EQ(TagOf(field, type), tag) << field;
      uint8_t expected[kMaxVarintBytes];
      const uint8_t* const end = CodedOutputStream::WriteTagToArray(tag, expected);
      std::string written;
      AppendTag(field, type, written);
      EXPECT_EQ(written, TextOf(expected, end)) << field;
      EXPECT_EQ(TagSize(field), written.size()) << field;
    }
  }
}

// From https://protobuf.dev/programming-guides/encoding: what they are, whatever a library does.
TEST(WriterTest, TheExamplesOfTheFormatAreWrittenAsItSays) {
  std::string bytes;
  AppendVarintField(1, 150, bytes);
  EXPECT_EQ(bytes, "\x08\x96\x01");
  bytes.clear();
  AppendDelimitedField(2, "testing", bytes);
  EXPECT_EQ(bytes, "\x12\x07testing");
  bytes.clear();
  AppendFixed32Field(20, 0x04030201, bytes);
  EXPECT_EQ(bytes, "\xa5\x01\x01\x02\x03\x04");
}

TEST(WriterTest, ScalarFieldsAreWhatAMessageOfThemIs) {
  for (const uint64_t number : Numbers()) {
    if (number == 0) continue;  // the message leaves it out
    Outcome outcome;
    outcome.set_sequence(number);
    outcome.set_moments_hash(number);
    outcome.set_applied(true);
    std::string bytes;
    AppendVarintField(Outcome::kSequenceFieldNumber, number, bytes);
    AppendFixed64Field(Outcome::kMomentsHashFieldNumber, number, bytes);
    AppendVarintField(Outcome::kAppliedFieldNumber, 1, bytes);
    EXPECT_EQ(bytes, outcome.SerializeAsString()) << number;

    const auto half = static_cast<uint32_t>(number);
    if (half == 0) continue;
    SessionRecord record;
    record.set_crc32c(half);
    bytes.clear();
    AppendFixed32Field(SessionRecord::kCrc32CFieldNumber, half, bytes);
    EXPECT_EQ(bytes, record.SerializeAsString()) << half;
  }
}

TEST(WriterTest, ANegativeNumberIsTheUnsignedOneThatItConvertsTo) {
  for (const int64_t number : {int64_t{-1}, int64_t{-300}, std::numeric_limits<int64_t>::min()}) {
    SessionRecord record;
    record.set_num_channels(number);
    record.mutable_update_time()->set_nanos(-1);
    std::string nanos;
    AppendVarintField(google::protobuf::Timestamp::kNanosFieldNumber, static_cast<uint64_t>(int64_t{-1}), nanos);
    std::string bytes;
    AppendVarintField(SessionRecord::kNumChannelsFieldNumber, static_cast<uint64_t>(number), bytes);
    AppendDelimitedField(SessionRecord::kUpdateTimeFieldNumber, nanos, bytes);
    EXPECT_EQ(bytes, record.SerializeAsString()) << number;
  }
}

TEST(WriterTest, ZeroIsWritten) {
  std::string bytes;
  AppendVarintField(1, 0, bytes);
  AppendFixed32Field(2, 0, bytes);
  AppendFixed64Field(3, 0, bytes);
  AppendDelimitedField(4, "", bytes);
  const std::string_view expected("\x08\0\x15\0\0\0\0\x19\0\0\0\0\0\0\0\0\x22\0", 18);
  EXPECT_EQ(bytes, expected);
}

TEST(WriterTest, DelimitedFieldsOfEveryLengthAreWhatAMessageOfThemIs) {
  for (const size_t size : {1, 127, 128, 16383, 16384, 3000000}) {
    v1::Tensor tensor;
    tensor.set_data(std::string(size, 'x'));
    const std::string expected = tensor.SerializeAsString();
    std::string bytes;
    AppendDelimitedField(v1::Tensor::kDataFieldNumber, tensor.data(), bytes);
    EXPECT_EQ(bytes, expected) << size;
    std::string head;
    AppendDelimitedHead(v1::Tensor::kDataFieldNumber, size, head);
    EXPECT_EQ(head, expected.substr(0, expected.size() - size)) << size;
    EXPECT_EQ(head.size(), TagSize(v1::Tensor::kDataFieldNumber) + VarintSize(size)) << size;
  }
}

TEST(WriterTest, MessagesAndPackedNumbersAreDelimitedFields) {
  SessionRecord record;
  std::string doubles;
  for (const double value : {1.5, -0.0, 1e300}) {
    record.add_mean(value);
    AppendFixed(std::bit_cast<uint64_t>(value), doubles);
  }
  ClientRecord* const client = record.add_clients();
  client->set_client_id("trainer");
  client->add_outcomes()->set_version(1 << 20);
  client->add_outcomes();

  std::string outcome, inner, bytes;
  AppendVarintField(Outcome::kVersionFieldNumber, 1 << 20, outcome);
  AppendDelimitedField(ClientRecord::kClientIdFieldNumber, "trainer", inner);
  AppendDelimitedField(ClientRecord::kOutcomesFieldNumber, outcome, inner);
  AppendDelimitedField(ClientRecord::kOutcomesFieldNumber, "", inner);
  AppendDelimitedField(SessionRecord::kMeanFieldNumber, doubles, bytes);
  AppendDelimitedField(SessionRecord::kClientsFieldNumber, inner, bytes);
  EXPECT_EQ(bytes, record.SerializeAsString());
}

TEST(WriterTest, WhatIsThereStaysInFront) {
  std::string bytes = "there";
  AppendVarint(1, bytes);
  AppendTag(1, WireType::kFixed32, bytes);
  AppendFixed(uint32_t{0x5a595857}, bytes);
  AppendDelimitedHead(1, 3, bytes);
  EXPECT_EQ(bytes, "there\x01\x0dWXYZ\x0a\x03");
}

}  // namespace
}  // namespace normd::wire
