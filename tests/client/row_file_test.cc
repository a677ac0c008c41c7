// Files that are read in blocks give the rows of files that are read whole.
#include "client/cli/row_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/cli/csv.h"
#include "client/cli/npy.h"
#include "client/cli/tensor_file.h"

namespace normd::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A file of these bytes, which goes away with the object.
class WrittenFile {
 public:
  explicit WrittenFile(const std::string& bytes) {
    char name[] = "/tmp/normd-rows-XXXXXX";
    const int fd = mkstemp(name);
    EXPECT_GE(fd, 0);
    close(fd);
    path_ = name;
    EXPECT_TRUE(WriteFile(path_, bytes).ok());
  }
  ~WrittenFile() { unlink(path_.c_str()); }
  WrittenFile(const WrittenFile&) = delete;
  WrittenFile& operator=(const WrittenFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// All rows of a file of these bytes, `block` at a time.
absl::StatusOr<std::vector<double>> RowsOf(const std::string& bytes, int64_t block, const CsvOptions& csv = {}) {
  const WrittenFile file(bytes);
  const absl::StatusOr<std::unique_ptr<RowFile>> rows = RowFile::Open(file.path(), csv);
  if (!rows.ok()) return rows.status();
  std::vector<double> out;
  while (true) {
    const absl::StatusOr<std::vector<double>> next = (*rows)->Next(block);
    if (!next.ok()) return next.status();
    if (next->empty()) return out;
    EXPECT_LE(next->size(), static_cast<size_t>(block * (*rows)->channels()));
    out.insert(out.end(), next->begin(), next->end());
  }
}

std::string ErrorOf(const std::string& bytes) {
  const absl::Status status = RowsOf(bytes, 2).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

std::string Npy(char kind, int item_bytes, std::vector<int64_t> shape, const std::string& data) {
  return NpyHeader({kind, item_bytes, std::move(shape), ""}) + data;
}

template <typename T>
std::string DataOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST(RowFileTest, TablesHaveTheNamesOfTheirHeader) {
  const WrittenFile file("\xEF\xBB\xBFspeed,angle\r\n# a comment\r\n1,2\r\n3,4\r\n");
  const auto rows = RowFile::Open(file.path(), {});
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT((*rows)->names(), ElementsAre("speed", "angle"));
  EXPECT_EQ((*rows)->channels(), 2);
  EXPECT_THAT(*(*rows)->Next(1), ElementsAre(1, 2));
  EXPECT_THAT(*(*rows)->Next(5), ElementsAre(3, 4));
  EXPECT_THAT(*(*rows)->Next(5), IsEmpty());
}

TEST(RowFileTest, ALongTableIsThatOfTheWholeText) {
  for (const char* end : {"\n", "\r\n", "\r"}) {
    std::string text;
    for (int i = 0; text.size() < size_t{3} << 20; ++i) absl::StrAppend(&text, i, ".5,", i * 7 % 1000, end);
    const absl::StatusOr<CsvTable> whole = ParseCsv(text);
    ASSERT_TRUE(whole.ok()) << whole.status();
    const auto rows = RowsOf(text, 1000);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_TRUE(*rows == whole->values) << "lines that end in " << absl::CEscape(end);
  }
}

TEST(RowFileTest, AMistakeInTheMiddleHasItsLine) {
  std::string text;
  for (int i = 0; i < 300'000; ++i) absl::StrAppend(&text, "1,2,3\n");
  EXPECT_THAT(ErrorOf(text + "1,2\n"), HasSubstr(": line 300001: 2 fields where 3 are expected"));
  EXPECT_THAT(ErrorOf(text + "1,x,3\n" + text), HasSubstr("line 300001"));
  EXPECT_THAT(ErrorOf("a,b\n"), HasSubstr("no rows of numbers after the header a,b"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("is empty"));
}

TEST(RowFileTest, ATableThatCountsFromZeroIsWarnedOf) {
  const WrittenFile file("0,1\n5,6\n");
  const auto rows = RowFile::Open(file.path(), {});
  ASSERT_TRUE(rows.ok()) << rows.status();
  while (!(*rows)->Next(1)->empty()) {
  }
  EXPECT_THAT((*rows)->warning(), HasSubstr("counts the columns from 0"));
}

TEST(RowFileTest, ArraysOfEveryKindAreWidened) {
  EXPECT_THAT(*RowsOf(Npy('f', 8, {3, 2}, DataOf<double>({1, 2, 3, 4, 5, 6})), 2), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(*RowsOf(Npy('f', 4, {2, 1, 2}, DataOf<float>({1, 2, 3, 4})), 1), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(*RowsOf(Npy('f', 2, {2}, DataOf<uint16_t>({0x3C00, 0xC000})), 1), ElementsAre(1, -2));
  EXPECT_THAT(*RowsOf(Npy('i', 1, {2, 1}, DataOf<int8_t>({-1, 7})), 9), ElementsAre(-1, 7));
  EXPECT_THAT(*RowsOf(Npy('b', 1, {1, 2}, std::string("\0\1", 2)), 9), ElementsAre(0, 1));
  EXPECT_THAT(*RowsOf(Npy('f', 4, {0, 2}, ""), 9), IsEmpty());
}

TEST(RowFileTest, ALongArrayIsThatOfTheWholeFile) {
  std::vector<float> values(3 * 200'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1001);
  const auto rows = RowsOf(Npy('f', 4, {200'000, 3}, DataOf(values)), 4097);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE(std::equal(rows->begin(), rows->end(), values.begin(), values.end()));
}

TEST(RowFileTest, ArraysThatAreNotWhatTheySayAreRefused) {
  EXPECT_THAT(ErrorOf(Npy('f', 4, {2, 2}, DataOf<float>({1, 2, 3}))), HasSubstr("ends before the data of its shape"));
  EXPECT_THAT(ErrorOf(Npy('f', 4, {1, 2}, DataOf<float>({1, 2, 3}))), HasSubstr("holds more data than its shape"));
  EXPECT_THAT(ErrorOf(Npy('f', 4, {}, DataOf<float>({1}))), HasSubstr("is one number"));
  EXPECT_THAT(ErrorOf(Npy('f', 4, {2, 0}, "")), HasSubstr("its last axis is 0"));
  EXPECT_THAT(ErrorOf(Npy('V', 2, {1, 1}, "ab")), HasSubstr("without a type"));
  std::string fortran = Npy('f', 4, {1, 2}, DataOf<float>({1, 2}));
  fortran.replace(fortran.find("False"), 5, "True ");
  EXPECT_THAT(ErrorOf(fortran), HasSubstr("is in Fortran order"));
  EXPECT_THAT(ErrorOf("PK\x03\x04 an archive"), HasSubstr("what is read is .npy and .csv"));
}

TEST(RowFileTest, ADigestIsOfTheBytesWhereverTheyLie) {
  const WrittenFile file("abc"), copy("abc");
  const auto digest = FileDigest(file.path());
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_EQ(*digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");  // FIPS 180-2, B.1
  EXPECT_EQ(*FileDigest(copy.path()), *digest);
  EXPECT_FALSE(FileDigest(file.path() + ".none").ok());
}

}  // namespace
}  // namespace normd::client
