#include "server/rpc/http2/frame_scanner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace normd::rpc::http2 {
namespace {

std::string Frame(char type, char flags, char stream, const std::string& payload) {
  std::string frame;
  for (int shift = 16; shift >= 0; shift -= 8) frame += static_cast<char>(payload.size() >> shift & 0xFF);
  frame += type;
  frame += flags;
  frame += std::string(3, '\0') + stream;
  return frame + payload;
}

TEST(FrameScannerTest, StopsBehindEachHeaderBlockHoweverTheBytesAreCut) {
  const std::string start(http2::kMagic);
  const std::string one = start + Frame(4, 0, 0, "") + Frame(1, 4, 1, "headers");
  const std::string two = Frame(0, 1, 1, "data") + Frame(1, 0, 3, "begin") + Frame(9, 4, 3, "");
  const std::string three = Frame(6, 0, 0, "12345678");
  const std::string bytes = one + two + three;
  const std::vector<size_t> ends = {one.size(), one.size() + two.size()};
  for (size_t cut = 1; cut <= bytes.size(); ++cut) {
    FrameScanner scanner;
    std::vector<size_t> found;
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t size = std::min(cut, bytes.size() - begin);
      begin += scanner.Scan(std::string_view(bytes).substr(begin, size));
      if (scanner.at_headers_end()) found.push_back(begin);
    }
    EXPECT_EQ(found, ends) << cut;
  }
}

TEST(FrameScannerTest, ReportsTheRestOfADataFrame) {
  FrameScanner scanner;
  scanner.Scan(http2::kMagic);
  const std::string frame = Frame(0, 0, 5, std::string(1000, 'x'));
  EXPECT_EQ(scanner.data_bytes(), 0U);
  scanner.Scan(std::string_view(frame).substr(0, 8));
  EXPECT_EQ(scanner.data_bytes(), 0U);
  scanner.Scan(std::string_view(frame).substr(8, 1));
  EXPECT_EQ(scanner.data_bytes(), 1000U);
  EXPECT_EQ(scanner.stream_id(), 5);
  scanner.Scan(std::string_view(frame).substr(9, 400));
  EXPECT_EQ(scanner.data_bytes(), 600U);
  scanner.Scan(std::string_view(frame).substr(409));
  EXPECT_EQ(scanner.data_bytes(), 0U);
  // Padded frames are left to nghttp2.
  scanner.Scan(std::string_view(Frame(0, 8, 5, std::string(1000, '\0'))).substr(0, 9));
  EXPECT_EQ(scanner.data_bytes(), 0U);
}

}  // namespace
}  // namespace normd::rpc::http2
