#include "server/base/traceparent.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace normd {
namespace {

constexpr char kExample[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";  // the standard's

TEST(TraceparentTest, ReadsAndWritesTheStandardsExample) {
  const auto parent = ParseTraceparent(kExample);
  ASSERT_TRUE(parent.has_value());
  EXPECT_TRUE(parent->sampled);
  EXPECT_EQ(TraceIdText(parent->trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(parent->span_id, (SpanId{0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7}));
  EXPECT_EQ(FormatTraceparent(*parent), kExample);
}

TEST(TraceparentTest, OnlyTheLowestFlagSaysThatTheTraceIsRecorded) {
  const std::string head = std::string(kExample).substr(0, 53);
  EXPECT_FALSE(ParseTraceparent(head + "00")->sampled);
  EXPECT_FALSE(ParseTraceparent(head + "fe")->sampled);
  EXPECT_TRUE(ParseTraceparent(head + "ff")->sampled);
  EXPECT_EQ(FormatTraceparent(*ParseTraceparent(head + "fe")), head + "00");
}

TEST(TraceparentTest, LaterVersionsMayHaveMoreAndAreReadAsFarAsThisOneGoes) {
  const std::string later = "cc" + std::string(kExample).substr(2);
  EXPECT_TRUE(ParseTraceparent(later).has_value());
  EXPECT_TRUE(ParseTraceparent(later + "-what-comes").has_value());
  EXPECT_FALSE(ParseTraceparent(later + ".what").has_value());
  EXPECT_FALSE(ParseTraceparent(std::string(kExample) + "-more").has_value());
}

TEST(TraceparentTest, EverythingElseIsNoTrace) {
  const std::string example = kExample;
  const std::string wrong[] = {"",
                               "00",
                               example.substr(0, 54),
                               "ff" + example.substr(2),
                               "0x" + example.substr(2),
                               "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                               "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                               "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                               "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                               "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
                               "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
                               std::string(55, '\0'),
                               std::string(5000, '0')};
  for (const std::string& header : wrong) EXPECT_FALSE(ParseTraceparent(header).has_value()) << header;
}

TEST(TraceparentTest, NewIdsDiffer) {
  std::set<TraceId> traces;
  std::set<SpanId> spans;
  for (int i = 0; i < 1000; ++i) {
    traces.insert(MakeTraceId());
    spans.insert(MakeSpanId());
  }
  EXPECT_EQ(traces.size(), 1000u);
  EXPECT_EQ(spans.size(), 1000u);
}

}  // namespace
}  // namespace normd
