#include "client/cli/npy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace normd::client {
namespace {

std::string Header(const std::string& dict, char major = 1) {
  std::string out = "\x93NUMPY";
  out.push_back(major);
  out.push_back('\0');
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) out.push_back(static_cast<char>(dict.size() >> (8 * i) & 0xFF));
  return out + dict;
}

std::string FileOf(const std::string& descr, const std::string& order, const std::string& shape, size_t bytes) {
  return Header(absl::StrCat("{'descr': '", descr, "', 'fortran_order': ", order, ", 'shape': ", shape, ", }\n")) +
         std::string(bytes, '\x01');
}

TEST(Npy, WritesWhatItReads) {
  NpyArray array;
  array.shape = {2, 3};
  array.data = std::string(24, '\x07');
  const std::string header = NpyHeader(array);
  EXPECT_EQ(header.size() % 64, 0u);
  const absl::StatusOr<NpyArray> back = ParseNpy(header + array.data);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->shape, array.shape);
  EXPECT_EQ(back->data, array.data);
  EXPECT_EQ(back->kind, 'f');
  EXPECT_EQ(back->item_bytes, 4);
}

TEST(Npy, ReadsVersionsOneToThreeAndEveryKind) {
  for (char major : {1, 2, 3}) {
    const std::string file = Header("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", major) + "12345678";
    const absl::StatusOr<NpyArray> array = ParseNpy(file);
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(array->item_bytes, 8);
    EXPECT_EQ(array->data, "12345678");
  }
  for (const auto& [descr, bytes] : {std::pair{"<f2", 2}, {"<f4", 4}, {"|b1", 1}, {"|u1", 1}, {"<i8", 8}, {"<u2", 2}}) {
    EXPECT_TRUE(ParseNpy(FileOf(descr, "False", "(3,)", static_cast<size_t>(3 * bytes))).ok()) << descr;
  }
}

TEST(Npy, ReadsScalarsEmptyArraysAndOddSpacing) {
  EXPECT_TRUE(ParseNpy(FileOf("<f4", "False", "()", 4)).ok());
  EXPECT_TRUE(ParseNpy(FileOf("<f4", "False", "(0, 5)", 0)).ok());
  EXPECT_TRUE(ParseNpy(Header("{ \"shape\" :( 1 , ) ,\"fortran_order\":False,\"descr\" : \"<f4\"}") + "abcd").ok());
}

TEST(Npy, TransposesFortranOrder) {
  // Memory order of a Fortran [2, 3] array whose C order is 0 1 2 3 4 5: first axis fastest.
  const float memory[] = {0, 3, 1, 4, 2, 5};
  std::string file = FileOf("<f4", "True", "(2, 3)", 0);
  file.append(reinterpret_cast<const char*>(memory), sizeof(memory));
  const absl::StatusOr<NpyArray> array = ParseNpy(file);
  ASSERT_TRUE(array.ok()) << array.status();
  float values[6];
  ASSERT_EQ(array->data.size(), sizeof(values));
  std::memcpy(values, array->data.data(), sizeof(values));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(values[i], static_cast<float>(i));
}

TEST(Npy, TransposesThreeAxes) {
  // Element (i, j, k) holds 100 i + 10 j + k.
  std::vector<float> memory;
  for (int k = 0; k < 4; ++k) {
    for (int j = 0; j < 3; ++j) {
      for (int i = 0; i < 2; ++i) memory.push_back(static_cast<float>(100 * i + 10 * j + k));
    }
  }
  std::string file = FileOf("<f4", "True", "(2, 3, 4)", 0);
  file.append(reinterpret_cast<const char*>(memory.data()), memory.size() * sizeof(float));
  const absl::StatusOr<NpyArray> array = ParseNpy(file);
  ASSERT_TRUE(array.ok()) << array.status();
  for (int index = 0; index < 24; ++index) {
    float value;
    std::memcpy(&value, array->data.data() + index * 4, 4);
    EXPECT_EQ(value, static_cast<float>(100 * (index / 12) + 10 * (index / 4 % 3) + index % 4)) << index;
  }
}

void ExpectNpyRefused(const std::string& file, const std::string& why) {
  const absl::StatusOr<NpyArray> array = ParseNpy(file);
  ASSERT_FALSE(array.ok()) << why;
  EXPECT_EQ(array.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(array.status().message().find(why), absl::string_view::npos) << array.status();
}

TEST(Npy, RefusesWhatIsNoWholeFile) {
  ExpectNpyRefused("", "magic");
  ExpectNpyRefused("PK\x03\x04 a zip", "magic");
  ExpectNpyRefused(std::string("\x93NUMPY\x01", 7), "ends inside");
  const std::string whole = FileOf("<f4", "False", "(2,)", 8);
  ExpectNpyRefused(whole.substr(0, 40), "ends inside");
  ExpectNpyRefused(whole.substr(0, whole.size() - 1), "8 bytes of data, the file holds 7");
  ExpectNpyRefused(whole + "x", "8 bytes of data, the file holds 9");
  ExpectNpyRefused(Header("{}", 9), "version 9");
}

TEST(Npy, RefusesHugeShapesWithoutAllocating) {
  ExpectNpyRefused(FileOf("<f4", "False", "(4611686018427387904, 4)", 4), "overflows");
  ExpectNpyRefused(FileOf("<f8", "False", "(9223372036854775807, 9223372036854775807, 0)", 0), "overflows");
  ExpectNpyRefused(FileOf("<f4", "True", "(1000000000000, 2)", 4), "the file holds 4");
  ExpectNpyRefused(FileOf("<f4", "False", "(99999999999999999999,)", 4), "extents");
  ExpectNpyRefused(FileOf("<f4", "False", "(-1,)", 4), "extents");
  std::string ranks = "(";
  for (int i = 0; i < 40; ++i) ranks += "1, ";
  ExpectNpyRefused(FileOf("<f4", "False", ranks + ")", 4), "rank");
  std::string length_lie = std::string("\x93NUMPY\x02\x00\xff\xff\xff\x7f", 12);
  ExpectNpyRefused(length_lie + "{}", "a header of 2147483647 bytes");
}

TEST(Npy, RefusesForeignElements) {
  ExpectNpyRefused(FileOf(">f4", "False", "(1,)", 4), "big-endian");
  ExpectNpyRefused(FileOf("<c8", "False", "(1,)", 8), "holds complex numbers");
  ExpectNpyRefused(FileOf("<f16", "False", "(1,)", 16), "astype('float64')");
  ExpectNpyRefused(FileOf("|O", "False", "(1,)", 8), "holds Python objects, not numbers: save a.astype('float32')");
  ExpectNpyRefused(FileOf("<U3", "False", "(1,)", 12), "holds text");
  ExpectNpyRefused(FileOf("<M8[ns]", "False", "(1,)", 8), "holds dates");
  ExpectNpyRefused(Header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }") + "abcd", "structured");
  ExpectNpyRefused(Header("{'fortran_order': False, 'shape': (1,), }") + "abcd", "'descr'");
  ExpectNpyRefused(Header("{'descr': '<f4', 'fortran_order': False}") + "abcd", "'shape'");
  ExpectNpyRefused(Header("{'descr': '<f4', 'shape': (1,), }") + "abcd", "'fortran_order'");
}

TEST(Npy, ReadsTheNamesAndOrdersThatNumPyReads) {
  for (const auto& [descr, kind, bytes] : {std::tuple{"f4", 'f', 4},
                                           {"float32", 'f', 4},
                                           {"=f8", 'f', 8},
                                           {"d", 'f', 8},
                                           {"<e", 'f', 2},
                                           {"?", 'b', 1},
                                           {"bool", 'b', 1},
                                           {"|i1", 'i', 1},
                                           {"uint16", 'u', 2},
                                           {"<q", 'i', 8},
                                           {">u1", 'u', 1}}) {
    const absl::StatusOr<NpyArray> array = ParseNpy(FileOf(descr, "False", "(1,)", static_cast<size_t>(bytes)));
    ASSERT_TRUE(array.ok()) << descr << array.status();
    EXPECT_EQ(array->kind, kind) << descr;
    EXPECT_EQ(array->item_bytes, bytes) << descr;
  }
  EXPECT_EQ(ParseNpy(FileOf("<f4", "False", "(1L, 2L)", 8))->shape, (std::vector<int64_t>{1, 2}));  // Python 2
  ExpectNpyRefused(FileOf("<f4", "False", "(1,,2)", 8), "extents");
}

// numpy.save writes ml_dtypes.bfloat16 as 2 bytes without a type; other programs write its name.
TEST(Npy, KnowsBf16) {
  for (const char* descr : {"<V2", "|V2", "V2", "bfloat16"}) {
    const absl::StatusOr<NpyArray> array = ParseNpy(FileOf(descr, "False", "(4,)", 8));
    ASSERT_TRUE(array.ok()) << descr << array.status();
    EXPECT_EQ(array->kind, 'V');
    EXPECT_EQ(array->item_bytes, 2);
  }
}

TEST(Npy, NamesWhatItDoesNotRead) {
  ExpectNpyRefused(FileOf("<V1", "False", "(1,)", 1),
                   "values of 1 byte without a type (V1), which is how NumPy saves "
                   "the 8-bit and 4-bit types of ml_dtypes");
  ExpectNpyRefused(FileOf("|V16", "False", "(1,)", 16), "values of 16 bytes without a type (V16)");
  ExpectNpyRefused(FileOf("<f1", "False", "(1,)", 1),
                   "floats of type 'f1'; those of 2, 4 and 8 bytes are read: save "
                   "a.astype('float32')");
  ExpectNpyRefused(FileOf("float8_e4m3fn", "False", "(1,)", 1), "floats of type 'float8_e4m3fn'");
  ExpectNpyRefused(FileOf("longdouble", "False", "(1,)", 16), "astype('float64')");
  ExpectNpyRefused(FileOf(">f8", "False", "(1,)", 8), "big-endian numbers: save a.astype('<f8')");
  ExpectNpyRefused(FileOf(">i4", "False", "(1,)", 4), "save a.astype('<i4')");
  ExpectNpyRefused(FileOf("|S3", "False", "(1,)", 3), "holds text");
  ExpectNpyRefused(FileOf("F", "False", "(1,)", 8), "holds complex numbers");
  ExpectNpyRefused(FileOf("i3", "False", "(1,)", 3), "dtype 'i3' is not understood");
  ExpectNpyRefused(FileOf("", "False", "(1,)", 3), "dtype '' is not understood");
  const std::string one = FileOf("<f4", "False", "(1,)", 4);
  ExpectNpyRefused(one + one, "and another array follows: save each array in a file of its own");
}

// Bytes changed, cut and doubled at random: no crash, and what is accepted is consistent.
TEST(Npy, SurvivesMutations) {
  std::mt19937 random(20240611);
  const std::string seed = FileOf("<f4", "True", "(2, 3)", 24);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string file = seed;
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < changes && !file.empty(); ++i) {
      const size_t at = random() % file.size();
      switch (random() % 3) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file.erase(at, 1 + random() % 4);
          break;
        default:
          file.insert(at, file.substr(random() % file.size(), random() % 8));
          break;
      }
    }
    const absl::StatusOr<NpyArray> array = ParseNpy(file);
    if (!array.ok()) continue;
    ++accepted;
    int64_t bytes = array->item_bytes;
    for (int64_t extent : array->shape) bytes *= extent;
    ASSERT_EQ(static_cast<uint64_t>(bytes), array->data.size()) << "round " << round;
  }
  EXPECT_GT(accepted, 0);  // changes in the data alone are accepted
}

}  // namespace
}  // namespace normd::client
