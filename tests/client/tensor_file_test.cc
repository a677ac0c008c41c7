#include "client/cli/tensor_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace normd::client {
namespace {

// A directory that is gone at the end of the test.
class TensorFile : public testing::Test {
 protected:
  TensorFile() {
    std::string pattern = (std::filesystem::temp_directory_path() / "normd-client-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~TensorFile() override { std::filesystem::remove_all(directory_); }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

 private:
  std::string directory_;
};

TEST_F(TensorFile, KeepsEveryFloatTypeBitForBit) {
  const std::vector<double> values = {1, -0.5, 3.25, 0, 1e-3, 700};
  for (DType dtype : {v1::DTYPE_F16, v1::DTYPE_F32, v1::DTYPE_F64}) {
    const Tensor tensor = Tensor::Rounded(dtype, {2, 3}, values);
    ASSERT_TRUE(SaveTensor(Path("x.npy"), tensor, {}).ok());
    const absl::StatusOr<LoadedTensor> back = LoadTensor(Path("x.npy"), std::nullopt);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->tensor.dtype, dtype);
    EXPECT_EQ(back->tensor.shape, tensor.shape);
    EXPECT_EQ(back->tensor.data, tensor.data);
  }
}

TEST_F(TensorFile, WidensBf16UnlessItCameAsBits) {
  const Tensor tensor = Tensor::Rounded(v1::DTYPE_BF16, {2}, {1.5, -3.140625});
  ASSERT_TRUE(SaveTensor(Path("wide.npy"), tensor, {}).ok());
  const absl::StatusOr<LoadedTensor> wide = LoadTensor(Path("wide.npy"), std::nullopt);
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ(wide->tensor.dtype, v1::DTYPE_F32);
  EXPECT_EQ(wide->tensor.ToFloats(), (std::vector<float>{1.5f, -3.140625f}));
  ASSERT_TRUE(SaveTensor(Path("raw.npy"), tensor, {.raw_bf16 = true}).ok());
  const absl::StatusOr<LoadedTensor> raw = LoadTensor(Path("raw.npy"), v1::DTYPE_BF16);
  ASSERT_TRUE(raw.ok()) << raw.status();
  EXPECT_TRUE(raw->format.raw_bf16);
  EXPECT_EQ(raw->tensor.data, tensor.data);
}

TEST_F(TensorFile, ConvertsOnlyWhenTold) {
  NpyArray integers;
  integers.kind = 'i';
  integers.item_bytes = 4;
  integers.shape = {3};
  const int32_t values[] = {-7, 0, 2000000001};
  integers.data.assign(reinterpret_cast<const char*>(values), sizeof(values));
  const absl::StatusOr<LoadedTensor> refused = ToTensor(integers, std::nullopt);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(),
            "holds int32, and only floats are normalised: --dtype f32 converts x, a.astype('float32') an array a in "
            "Python");
  const absl::StatusOr<LoadedTensor> converted = ToTensor(integers, v1::DTYPE_F64);
  ASSERT_TRUE(converted.ok());
  EXPECT_EQ(converted->tensor.ToDoubles(), (std::vector<double>{-7, 0, 2000000001}));
}

TEST_F(TensorFile, ReadsMasksAsBytes) {
  NpyArray array;
  array.kind = 'f';
  array.shape = {4};
  const float values[] = {0, 2, -1, 0};
  array.data.assign(reinterpret_cast<const char*>(values), sizeof(values));
  ASSERT_TRUE(WriteFile(Path("m.npy"), NpyHeader(array), array.data).ok());
  const absl::StatusOr<Tensor> mask = LoadMask(Path("m.npy"));
  ASSERT_TRUE(mask.ok()) << mask.status();
  EXPECT_EQ(mask->data, std::string("\0\1\1\0", 4));
  EXPECT_EQ(mask->dtype, v1::DTYPE_UNSPECIFIED);
}

TEST_F(TensorFile, ParametersOfOneRowOrColumnAreVectors) {
  ASSERT_TRUE(WriteFile(Path("row.csv"), "1,2,3\n").ok());
  ASSERT_TRUE(WriteFile(Path("column.csv"), "1\n2\n3\n").ok());
  ASSERT_TRUE(WriteFile(Path("table.csv"), "1,2\n3,4\n").ok());
  EXPECT_EQ(LoadParameter(Path("row.csv"))->shape, (std::vector<int64_t>{3}));
  EXPECT_EQ(LoadParameter(Path("column.csv"))->shape, (std::vector<int64_t>{3}));
  EXPECT_EQ(LoadParameter(Path("table.csv"))->shape, (std::vector<int64_t>{2, 2}));
}

TEST_F(TensorFile, NamesThePathOfWhatFails) {
  const absl::StatusOr<LoadedTensor> missing = LoadTensor(Path("none.npy"), std::nullopt);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("none.npy: cannot open"), absl::string_view::npos) << missing.status();
  EXPECT_FALSE(SaveTensor(Path("no/such/folder.npy"), Tensor::F32({1}, {1.0f}), {}).ok());
}

TEST_F(TensorFile, StandardInputCanBeReadOnce) {
  ASSERT_TRUE(WriteFile(Path("in"), "1,2\n").ok());
  const int saved = dup(STDIN_FILENO);
  ASSERT_NE(std::freopen(Path("in").c_str(), "rb", stdin), nullptr);
  EXPECT_EQ(*ReadFile("-"), "1,2\n");
  const absl::Status again = ReadFile("-").status();
  std::clearerr(stdin);
  dup2(saved, STDIN_FILENO);
  close(saved);
  EXPECT_TRUE(absl::IsInvalidArgument(again));
  EXPECT_EQ(again.message(), "standard input (-) can be read once");
}

TEST_F(TensorFile, SaysBeforehandWhatCannotBeWritten) {
  EXPECT_TRUE(CheckCanWrite(Path("y.npy")).ok());
  EXPECT_FALSE(std::filesystem::exists(Path("y.npy")));
  ASSERT_TRUE(WriteFile(Path("y.npy"), "").ok());
  EXPECT_TRUE(CheckCanWrite(Path("y.npy")).ok());
  EXPECT_TRUE(CheckCanWrite("y.npy").ok()) << "the folder is the working directory";
  EXPECT_TRUE(CheckCanWrite("/dev/null").ok());
  EXPECT_EQ(CheckCanWrite("/nonexistent/y.npy").message(),
            "/nonexistent/y.npy: cannot create: No such file or directory");
  EXPECT_THAT(std::string(CheckCanWrite(Path("y.npy/y.npy")).message()), testing::EndsWith("Not a directory"));
  std::filesystem::create_directory(Path("folder.npy"));
  EXPECT_THAT(std::string(CheckCanWrite(Path("folder.npy")).message()), testing::EndsWith("Is a directory"));
  if (geteuid() == 0) return;  // root may write everything
  std::filesystem::permissions(Path("y.npy"), std::filesystem::perms::owner_read);
  EXPECT_THAT(std::string(CheckCanWrite(Path("y.npy")).message()), testing::EndsWith("Permission denied"));
}

TEST_F(TensorFile, StandardOutputTakesBytesAlone) {
  std::ostringstream out;
  EXPECT_TRUE(WriteStandardOutput(absl::string_view("a\0", 2), "b", out).ok());
  EXPECT_EQ(out.str(), std::string("a\0b", 3));
}

TEST_F(TensorFile, RecognisesFilesByTheirContent) {
  const Tensor tensor = Tensor::F32({2, 2}, {1, 2, 3, 4});
  const FileBytes npy = EncodeTensor(tensor, {});
  for (const char* name : {"x.csv", "x.txt", "x"}) {
    ASSERT_TRUE(WriteFile(Path(name), npy.head, npy.body).ok());
    const absl::StatusOr<LoadedTensor> loaded = LoadTensor(Path(name), std::nullopt);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->format.format, FileFormat::kNpy);
    EXPECT_EQ(loaded->tensor.data, tensor.data);
  }
  ASSERT_TRUE(WriteFile(Path("x.txt"), "a,b\n1,2\n3,4\n").ok());
  const absl::StatusOr<LoadedTensor> text = LoadTensor(Path("x.txt"), std::nullopt);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->format.format, FileFormat::kCsv);
  EXPECT_EQ(text->format.header, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(text->tensor.data, tensor.data);
}

TEST_F(TensorFile, SaysWhatAFileIsNot) {
  const auto error = [&](const char* name, absl::string_view content) {
    EXPECT_TRUE(WriteFile(Path(name), content).ok());
    return std::string(LoadTensor(Path(name), std::nullopt).status().message());
  };
  EXPECT_THAT(error("empty.csv", ""), testing::EndsWith("empty.csv: is empty"));
  EXPECT_THAT(error("x.npy", "1,2\n"), testing::HasSubstr("x.npy: the magic bytes are missing"));
  EXPECT_THAT(error("x.csv", "\x01\x02\x03"), testing::HasSubstr("is neither .npy nor .csv"));
  EXPECT_THAT(error("x.csv", absl::string_view("1\0,\0", 4)),
              testing::HasSubstr("is text in UTF-16: save it as UTF-8"));
  EXPECT_THAT(error("x.csv", absl::string_view("1,2\n3,\0\n", 8)), testing::HasSubstr("line 2 has the byte \"\\x00\""));
  EXPECT_THAT(error("x.npz", "PK\x03\x04 a.npy PK\x01\x02 a.npy"),
              testing::HasSubstr("x.npz: is an .npz of NumPy, a zip archive of .npy files: python3 -m zipfile -e"));
  EXPECT_THAT(error("x.csv", "\x89HDF\r\n\x1a\n..."),
              testing::HasSubstr("x.csv: is a file of HDF5 (Keras' .h5, netCDF)"));
}

// Bits of bf16 as numpy.save writes those of ml_dtypes, beside x and as x.
TEST_F(TensorFile, ReadsBf16WithoutAType) {
  const Tensor tensor = Tensor::Rounded(v1::DTYPE_BF16, {2}, {1.5, -3.140625});
  for (const char* descr : {"<V2", "bfloat16"}) {
    std::string file = NpyHeader({.kind = 'u', .item_bytes = 2, .shape = {2}, .data = ""});
    const std::string wanted = absl::StrCat("'", descr, "'");
    file.replace(file.find("'<u2'"), 5, wanted);
    file.erase(file.size() - 1 - (wanted.size() - 5), wanted.size() - 5);
    ASSERT_TRUE(WriteFile(Path("x.npy"), file, tensor.data).ok());
    const absl::StatusOr<LoadedTensor> x = LoadTensor(Path("x.npy"), v1::DTYPE_BF16);
    ASSERT_TRUE(x.ok()) << x.status();
    EXPECT_EQ(x->tensor.data, tensor.data);
    EXPECT_TRUE(x->format.raw_bf16);
    EXPECT_EQ(LoadParameter(Path("x.npy"), v1::DTYPE_BF16)->data, tensor.data);
    for (const std::optional<DType> dtype : {std::optional<DType>(), std::optional(v1::DTYPE_F32)}) {
      EXPECT_THAT(std::string(LoadTensor(Path("x.npy"), dtype).status().message()),
                  testing::HasSubstr("holds bf16, or other values of 2 bytes without a type (V2, as NumPy saves "
                                     "ml_dtypes.bfloat16): --dtype bf16 reads them as bf16"));
    }
    EXPECT_FALSE(LoadMask(Path("x.npy")).ok());
  }
  // A weight in f32 stays as it is beside an x of bf16.
  ASSERT_TRUE(SaveTensor(Path("w.npy"), Tensor::F32({1}, {1.0009765625f}), {}).ok());
  EXPECT_EQ(LoadParameter(Path("w.npy"), v1::DTYPE_BF16)->dtype, v1::DTYPE_F32);
}

TEST_F(TensorFile, ANumberOfATableDoesNotBecomeInfiniteUnasked) {
  ASSERT_TRUE(WriteFile(Path("x.csv"), "1,2\n3,1e39\n").ok());
  EXPECT_THAT(std::string(LoadTensor(Path("x.csv"), std::nullopt).status().message()),
              testing::HasSubstr("row 2, column 2 is 1e+39, beyond the range of f32: --dtype f64 keeps it"));
  EXPECT_TRUE(LoadTensor(Path("x.csv"), v1::DTYPE_F64).ok());
  EXPECT_TRUE(LoadTensor(Path("x.csv"), v1::DTYPE_F32).ok());  // asked for
}

TEST(CsvFlagsOf, SayWhatSeparates) {
  const auto flags = [](const std::vector<std::string>& words) {
    CommandSpec spec;
    spec.flags = Join(HeaderFlags(), SeparatorFlags());
    return CsvFlags(*ParseArgs(spec, words));
  };
  EXPECT_EQ(flags({})->delimiter, ',');
  EXPECT_FALSE(flags({})->is_given);
  EXPECT_EQ(flags({"--decimal", ","})->delimiter, ';');
  EXPECT_EQ(flags({"--delimiter=tab"})->delimiter, '\t');
  EXPECT_EQ(flags({"--delimiter", "\\t"})->delimiter, '\t');
  EXPECT_EQ(flags({"--delimiter", "space"})->delimiter, ' ');
  EXPECT_TRUE(flags({"--delimiter", ";"})->is_given);
  EXPECT_THAT(std::string(flags({"--delimiter", "ab"}).status().message()), testing::HasSubstr("--delimiter is ab"));
  EXPECT_THAT(std::string(flags({"--decimal", ";"}).status().message()), testing::HasSubstr("--decimal is ;"));
  EXPECT_THAT(std::string(flags({"--decimal", ",", "--delimiter", ","}).status().message()),
              testing::HasSubstr("one of them must differ"));
}

TEST(TensorFormat, IsTheOneOfTheNameOrTheChosenOneOrTheInputs) {
  EXPECT_EQ(*OutputFormat("y.npy", FileFormat::kCsv, FileFormat::kCsv), FileFormat::kNpy);
  EXPECT_EQ(*OutputFormat("y.CSV", std::nullopt, FileFormat::kNpy), FileFormat::kCsv);
  EXPECT_EQ(*OutputFormat("-", std::nullopt, FileFormat::kCsv), FileFormat::kCsv);
  EXPECT_EQ(*OutputFormat("-", FileFormat::kNpy, FileFormat::kCsv), FileFormat::kNpy);
  EXPECT_EQ(*OutputFormat("/dev/null", std::nullopt, FileFormat::kNpy), FileFormat::kNpy);
  EXPECT_EQ(*OutputFormat("y.dat", FileFormat::kNpy, FileFormat::kCsv), FileFormat::kNpy);
  const absl::Status status = OutputFormat("y.dat", std::nullopt, FileFormat::kCsv).status();
  EXPECT_TRUE(IsUsageError(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("--format npy"));
}

TEST(Rank, IsCheckedInASentence) {
  EXPECT_TRUE(CheckRank("x", 1).ok());
  EXPECT_TRUE(CheckRank("x", 8).ok());
  EXPECT_EQ(CheckRank("x", 0).message(), "x has rank 0 (one number); 1 to 8 are possible");
  EXPECT_EQ(CheckRank("x", 9).message(), "x has rank 9; 1 to 8 are possible");
}

// The narrow formats against what the hardware and the definition give.
TEST(Half, RoundsToNearestEvenOnce) {
  EXPECT_EQ(DoubleToF16(1.0), 0x3C00);
  EXPECT_EQ(DoubleToF16(-2.0), 0xC000);
  EXPECT_EQ(DoubleToF16(65504), 0x7BFF);
  EXPECT_EQ(DoubleToF16(65519.99), 0x7BFF);
  EXPECT_EQ(DoubleToF16(65520), 0x7C00);    // a tie at the top rounds to infinity
  EXPECT_EQ(DoubleToF16(0x1p-24), 0x0001);  // the smallest subnormal
  EXPECT_EQ(DoubleToF16(0x1p-25), 0x0000);  // a tie goes to even
  EXPECT_EQ(DoubleToF16(0x1.8p-25), 0x0001);
  EXPECT_EQ(DoubleToF16(0x1.ffcp-15), 0x03FF + 1);  // rounds up into the normal range: 2^-14
  EXPECT_EQ(DoubleToF16(1 + 0x1p-11), 0x3C00);
  // Above the tie by less than f32 can say: rounding through f32 first would give 0x3C00.
  EXPECT_EQ(DoubleToF16(1 + 0x1p-11 + 0x1p-40), 0x3C01);
  EXPECT_EQ(DoubleToF16(-0.0), 0x8000);
  EXPECT_EQ(DoubleToF16(-INFINITY), 0xFC00);
  EXPECT_EQ(DoubleToF16(NAN) & 0x7C00, 0x7C00);
  EXPECT_NE(DoubleToF16(NAN) & 0x03FF, 0);
  EXPECT_EQ(DoubleToBf16(1.0), 0x3F80);
  EXPECT_EQ(DoubleToBf16(1 + 0x1p-8), 0x3F80);
  EXPECT_EQ(DoubleToBf16(1 + 0x1p-8 + 0x1p-40), 0x3F81);
  EXPECT_EQ(DoubleToBf16(1e39), 0x7F80);
  EXPECT_EQ(DoubleToBf16(-1e39), 0xFF80);
  EXPECT_EQ(DoubleToBf16(3.39e38), 0x7F7F);
  EXPECT_EQ(DoubleToBf16(0x1p-133), 0x0001);
  EXPECT_EQ(DoubleToBf16(-0.0), 0x8000);
  EXPECT_TRUE(std::isnan(Bf16ToFloat(DoubleToBf16(NAN))));
}

TEST(Half, EveryValueComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if (!std::isnan(F16ToFloat(half))) {
      ASSERT_EQ(DoubleToF16(F16ToFloat(half)), half) << bits;
    }
    if (!std::isnan(Bf16ToFloat(half))) {
      ASSERT_EQ(DoubleToBf16(Bf16ToFloat(half)), half) << bits;
    }
  }
}

}  // namespace
}  // namespace normd::client
