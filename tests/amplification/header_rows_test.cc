// The table's rows of header fields: each way in which a field may be written, in a request, in the trailers of a call
// that is open, and in those of one that is answered.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/amplification/row_fixture.h"
#include "tests/amplification/wire.h"

namespace normd {
namespace {

using namespace wire_bytes;  // NOLINT(google-build-using-namespace): the words of this table

// Enough to show what a byte costs. A frame may have a mebibyte, and a block nine of them.
constexpr size_t kLargeFrameBytes = 256 << 10;

struct Fields {
  std::string name;
  // Fields of the request that opens the stream, or, for a request, of the one before it: they fill the table.
  std::string before;
  std::string block;
};

std::vector<Fields> AllFields() {
  const std::string commas = Literal("x" + std::string(7'990, 'x') + "-bin", std::string(7'990, ','));
  const std::string table_field = Literal("k", std::string(3'900, 'v'), kIndexing);
  // HTTP's rules have a field with such a value ignored.
  const std::string table_ignored = Literal("k", std::string(3'899, 'v') + '\x01', kIndexing);
  const std::string breaking = Literal("connection", "keep-alive");
  const std::string table_commas = Literal(std::string(1'900, 'k') + "-bin", std::string(1'900, ','), kIndexing);
  std::vector<Fields> all = {
      {"none", "", ""},
      {"-bin with commas, 16 KiB", "", commas},
      {"-bin with commas, short name", "", Literal("x-bin", std::string(15'000, ','))},
      {"-bin, 15 KB of base64", "", Literal("x-bin", std::string(15'000, 'A'))},
      {"-bin, 300 fields", "", Repeated(Literal("x-bin", "AAAA"), 300)},
      {"-bin, no base64", "", Repeated(Literal("x-bin", "%"), 300)},
      {"-bin with commas from the table, once", table_commas, Indexed(kNewestIndex)},
      {"-bin with commas from the table, 4 times", table_commas, Repeated(Indexed(kNewestIndex), 4)},
      {"of 3.9 KiB from the table, 4 times", table_field, Repeated(Indexed(kNewestIndex), 4)},
      {"of 3.9 KiB from the table, 16 times", table_field, Repeated(Indexed(kNewestIndex), 16)},
      {"of 3.9 KiB from the table, 256 KiB", table_field, Repeated(Indexed(kNewestIndex), kLargeFrameBytes)},
      {"ignored, of 3.9 KiB from the table, 60 KB", table_ignored, Repeated(Indexed(kNewestIndex), 60'000)},
      {"behind one that HTTP/2 refuses, of 3.9 KiB, 60 KB", table_field,
       breaking + Repeated(Indexed(kNewestIndex), 60'000)},
      {"of the static table, 300 times", "", Repeated(Indexed(16), 300)},
      {"of the static table, 256 KiB", "", Repeated(Indexed(16), kLargeFrameBytes)},
      {"literal, 15 KB", "", Literal("x", std::string(15'000, 'v'))},
      {"literal, 60 KB", "", Literal("x", std::string(60'000, 'v'))},
      {"literal, 256 KiB", "", Literal("x", std::string(kLargeFrameBytes - 10, 'v'))},
      {"literal, a name of 15 KB", "", Literal(std::string(15'000, 'n'), "")},
      {"literals, of 4 bytes", "", Repeated(Literal("x", ""), 400)},
      {"literals, of 4 bytes, 256 KiB", "", Repeated(Literal("x", ""), kLargeFrameBytes / 4)},
      {"literals that enter the table", "", Repeated(Literal("x", "", kIndexing), 400)},
      {"literals that enter the table, 256 KiB", "", Repeated(Literal("x", "", kIndexing), kLargeFrameBytes / 4)},
      {"literals that empty the table", "", Repeated(Literal("k", std::string(3'900, 'v'), kIndexing), 4)},
      {"literals that empty the table, 256 KiB", "", Repeated(Literal("k", std::string(3'900, 'v'), kIndexing), 65)},
      {"Huffman, 15 KB", "", HuffmanLiteral("x", std::string(9'000, '\0'))},
      {"Huffman, 256 KiB", "", HuffmanLiteral("x", std::string(kLargeFrameBytes - 10, '\0'))},
      {"grpc-timeout, 300 times", "", Repeated(Literal("grpc-timeout", "99999999H"), 300)},
      {"grpc-timeout, 15 KB", "", Literal("grpc-timeout", std::string(15'000, '9'))},
      {"grpc-encoding, 15 KB", "", Literal("grpc-encoding", std::string(15'000, 'e'))},
      {"content-type, 300 times", "", Repeated(Literal("content-type", "application/grpc"), 300)},
      {"content-length, twice", "", Repeated(Literal("content-length", "1"), 2)},
      {"cookie, 300 times", "", Repeated(Literal("cookie", "a=b"), 300)},
      {"connection, which HTTP/2 refuses", "", breaking},
      {"upper case, which HTTP/2 refuses", "", Repeated(Literal("X", "x"), 300)},
      {"an index that is not there", "", Indexed(4'000)},
      {"an integer without end", "", "\xFF" + std::string(200, '\xFF')},
  };
  return all;
}

// Table sizes stand only at the beginning of a block.
std::string TableSizes() { return TableSize(0) + TableSize(4'096); }

void Expect(const std::string& name, const std::string& before, const std::string& bytes) {
  ExpectWithinBound({name, before, bytes, CountUnits(bytes)});
}

TEST(AmplificationTable, FieldsOfARequestCostWhatTheyMay) {
  for (const Fields& fields : AllFields()) {
    const std::string first =
        Preface() + Frame(kHeaders, kEndHeaders | kEndStream, 1, RequestFields("/f/F") + fields.before);
    std::string bytes;
    for (uint32_t stream = 3; stream < 3 + 2 * 4; stream += 2) {
      bytes += HeaderFrames(stream, kEndStream, RequestFields("/f/I") + fields.block, kLargeFrameBytes);
    }
    Expect("request: " + fields.name, first, bytes);
  }
}

// With the same frames, but in the smallest pieces that a block may come in.
TEST(AmplificationTable, ContinuationsCostWhatTheyMay) {
  for (const size_t frame_bytes : {size_t{1}, size_t{16}, size_t{16 << 10}}) {
    const std::string block = RequestFields("/f/F") + Literal("x", std::string(100 * frame_bytes, 'v'));
    Expect("request: CONTINUATIONs", Preface(), HeaderFrames(1, kEndStream, block, frame_bytes));
  }
}

TEST(AmplificationTable, TableSizesCostWhatTheyMay) {
  std::string bytes;
  for (uint32_t stream = 1; stream < 1000; stream += 2) {
    bytes += Frame(kHeaders, kEndHeaders | kEndStream, stream,
                   TableSizes() + RequestFields("/f/F") + Literal("x", "y", kIndexing));
  }
  Expect("request: table sizes", Preface(), bytes);
}

TEST(AmplificationTable, TrailersOfAnOpenCallCostWhatTheyMay) {
  for (const std::string path : {"/f/I", "/f/E"}) {
    for (const Fields& fields : AllFields()) {
      const std::string first = Preface() + Frame(kHeaders, kEndHeaders, 1, RequestFields(path) + fields.before);
      Expect("trailers, open, " + path + ": " + fields.name, first,
             HeaderFrames(1, kEndStream, fields.block, kLargeFrameBytes));
    }
  }
}

TEST(AmplificationTable, TrailersOfAnAnsweredCallCostWhatTheyMay) {
  for (const bool is_post : {true, false}) {
    for (const Fields& fields : AllFields()) {
      const std::string first =
          Preface() + Frame(kHeaders, kEndHeaders, 1, RequestFields("/f/F", is_post ? "POST" : "GET") + fields.before);
      Expect(std::string("trailers, ") + (is_post ? "answered: " : "refused: ") + fields.name, first,
             HeaderFrames(1, kEndStream, fields.block, kLargeFrameBytes));
    }
  }
}

}  // namespace
}  // namespace normd
