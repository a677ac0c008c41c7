#include "client/cli/other_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace normd::client {
namespace {

using testing::HasSubstr;

std::string KindOf(absl::string_view file) { return OtherFileKind(file).value_or("nothing known"); }
std::string Bytes(const char* text, size_t size) { return {text, size}; }

TEST(OtherFile, IsNamedByItsFirstBytes) {
  EXPECT_THAT(KindOf("\x89HDF\r\n\x1a\n..."), HasSubstr("HDF5"));
  EXPECT_THAT(KindOf(Bytes("GGUF\3\0\0\0", 8)), HasSubstr("GGUF"));
  EXPECT_THAT(KindOf(Bytes("PAR1\x15\0", 6)), HasSubstr("Parquet"));
  EXPECT_THAT(KindOf(Bytes("\x1F\x8B\x08\0", 4)), HasSubstr("gzip"));
  EXPECT_THAT(KindOf(Bytes("\x80\x04\x95\0\0.", 6)), HasSubstr("pickle"));
  EXPECT_THAT(KindOf(Bytes("\x80\x02\x8A\x0A\x6C\xFC\x9C\x46\xF9\0.", 11)), HasSubstr("PyTorch"));
  EXPECT_THAT(KindOf("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"),
              HasSubstr("Git LFS"));
  EXPECT_THAT(KindOf("\x08\x08\x12\x07pytorch\x1a"), HasSubstr("ONNX"));
  EXPECT_THAT(KindOf("<!DOCTYPE html>\n<html>"), HasSubstr("web page"));
  EXPECT_THAT(KindOf(R"({"metadata":{},"weight_map":{"bn.weight":"a.safetensors"}})"), HasSubstr("sharded checkpoint"));
  EXPECT_THAT(KindOf("[[1, 2]]\n"), HasSubstr("is JSON"));
  EXPECT_THAT(KindOf("PK\x03\x04 model/data.pkl PK\x01\x02"), HasSubstr("PyTorch"));
  EXPECT_THAT(KindOf("PK\x03\x04 model.weights.h5"), HasSubstr(".keras"));
  EXPECT_THAT(KindOf("PK\x03\x04 xl/workbook.xml"), HasSubstr("Excel"));
  EXPECT_THAT(KindOf("PK\x03\x04 x.npy"), HasSubstr(".npz of NumPy"));
  EXPECT_EQ(KindOf("PK\x03\x04 notes.txt"), "is a zip archive");
  EXPECT_THAT(KindOf(Bytes("\x02\0\0\0\0\0\0\0{}", 10)), HasSubstr("a .safetensors file"));
  // A header of 35,615 bytes begins as a gzip file.
  EXPECT_THAT(KindOf(Bytes("\x1F\x8B\0\0\0\0\0\0{", 9)), HasSubstr("a .safetensors file"));
}

TEST(OtherFile, IsNotTakenForWhatIsRead) {
  for (const char* text :
       {"1,2\n", "PAR1,PAR2\n1,2\n", "FEA1,FEA2\n", "GGUF\n1\n", "[kg],[m]\n1,2\n", "BZh,x\n1,2\n"}) {
    EXPECT_EQ(KindOf(text), "nothing known") << text;
  }
  EXPECT_EQ(KindOf("\x93NUMPY\x01"), "nothing known");
  EXPECT_EQ(KindOf("\x08\x01\x12\x07pytorch\x1a\x20..."), "nothing known");  // a record of sessions/pytorch
  EXPECT_EQ(KindOf(""), "nothing known");
}

TEST(OtherFile, TextIsAsciiOrUtf8) {
  EXPECT_TRUE(CheckText("a,\xC3\xA4\r\n1,\t2\f\n").ok());
  for (const std::string& text : {Bytes("\xFF\xFE"
                                        "1\0",
                                        4),
                                  Bytes("\xFE\xFF\0"
                                        "1",
                                        4),
                                  Bytes("1\0,\0", 4),
                                  Bytes("\0"
                                        "1\0,",
                                        4)}) {
    EXPECT_THAT(std::string(CheckText(text).message()), HasSubstr("UTF-16"));
  }
  const std::string late = std::string(9000, '1') + "\n" + Bytes("2\0", 2);
  EXPECT_THAT(std::string(CheckText(late).message()), HasSubstr("line 2 has the byte \"\\x00\""));
}

}  // namespace
}  // namespace normd::client
