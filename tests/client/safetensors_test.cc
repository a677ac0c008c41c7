#include "client/cli/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"

namespace normd::client {
namespace {

std::string WithLength(uint64_t length, const std::string& rest) {
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + rest;
}
std::string FileOf(const std::string& header, size_t data_bytes) {
  return WithLength(header.size(), header + std::string(data_bytes, '\x01'));
}
// One tensor "a" with the members given.
std::string OneTensor(const std::string& members, size_t data_bytes) {
  return FileOf("{\"a\":{" + members + "}}", data_bytes);
}

void ExpectRefused(const std::string& file, const std::string& part) {
  const absl::StatusOr<Safetensors> parsed = ParseSafetensors(file);
  ASSERT_FALSE(parsed.ok()) << part;
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(parsed.status().message().find(part), absl::string_view::npos) << parsed.status();
}

TEST(Safetensors, ReadsTheExampleOfTheFormat) {
  const std::string file =
      FileOf(R"({"TENSOR_NAME":{"dtype":"F16","shape":[1,16,256],"data_offsets":[0,8192]},)"
             R"("NEXT":{"dtype":"BF16","shape":[],"data_offsets":[8192,8194]},"__metadata__":{"format":"pt"}}   )",
             8194);
  const absl::StatusOr<Safetensors> parsed = ParseSafetensors(file);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->tensors.size(), 2u);
  EXPECT_EQ(parsed->tensors.at("TENSOR_NAME").shape, (std::vector<int64_t>{1, 16, 256}));
  EXPECT_EQ(parsed->tensors.at("TENSOR_NAME").elements(), 4096);
  EXPECT_EQ(parsed->tensors.at("NEXT").elements(), 1);
  EXPECT_EQ(parsed->tensors.at("NEXT").data.data(), file.data() + file.size() - 2);
  EXPECT_EQ(parsed->metadata.at("format"), "pt");
}

TEST(Safetensors, WritesWhatItReadsAlignedToEveryElement) {
  Safetensors file;
  file.metadata = {{"format", "pt"}, {"with \"quotes\"", "\xC3\xA4\n"}};
  file.tensors["half"] = {"F16", {3}, "abcdef"};
  file.tensors["scalar"] = {"I64", {}, "12345678"};
  file.tensors["none"] = {"F32", {0, 5}, ""};
  file.tensors["wide"] = {"F64", {1, 2}, "0123456789abcdef"};
  const absl::StatusOr<std::string> bytes = WriteSafetensors(file);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  uint64_t length;
  std::memcpy(&length, bytes->data(), sizeof(length));
  EXPECT_EQ(length % 8, 0u);
  const absl::StatusOr<Safetensors> back = ParseSafetensors(*bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->metadata, file.metadata);
  ASSERT_EQ(back->tensors.size(), file.tensors.size());
  for (const auto& [name, tensor] : file.tensors) {
    const SafetensorsTensor& read = back->tensors.at(name);
    EXPECT_EQ(read.dtype, tensor.dtype);
    EXPECT_EQ(read.shape, tensor.shape);
    EXPECT_EQ(read.data, tensor.data) << name;
    const auto offset = static_cast<size_t>(read.data.data() - bytes->data());
    EXPECT_EQ(offset % (tensor.dtype == "F16" ? 2 : 8), 0u) << name;
  }
  EXPECT_TRUE(ParseSafetensors(*WriteSafetensors({})).ok());
}

TEST(Safetensors, RefusesLengthsThatDoNotFit) {
  ExpectRefused("", "the file is 0 bytes");
  ExpectRefused("1234567", "the file is 7 bytes");
  ExpectRefused(WithLength(0, ""), "first byte is missing");
  ExpectRefused(WithLength(3, "{}"), "the header's length is 3; it must be at most 2");
  ExpectRefused(WithLength(100'000'001, "{}"), "the header's length is 100000001; it must be at most 100000000");
  ExpectRefused(WithLength(UINT64_MAX, "{}"), "the header's length is 18446744073709551615");
  ExpectRefused(WithLength(UINT64_MAX - 7, "{}"), "the header's length is");  // + 8 would wrap around
}

TEST(Safetensors, RefusesEveryPrefixOfAFile) {
  const std::string whole = OneTensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", 8);
  ASSERT_TRUE(ParseSafetensors(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(ParseSafetensors(whole.substr(0, size)).ok()) << size;
  ExpectRefused(whole + "x", "the data is 9 bytes; it must be 8");
}

TEST(Safetensors, RefusesWhatIsNoJsonOfItsForm) {
  ExpectRefused(FileOf(" {}", 0), "first byte");
  ExpectRefused(FileOf("[]", 0), "first byte is [; it must be {");
  ExpectRefused(FileOf("{\"a\":", 0), "no JSON at byte");
  ExpectRefused(FileOf("{} {}", 0), "no JSON at byte 4");
  ExpectRefused(FileOf(std::string("{}\0x", 4), 0), "no JSON at byte 3");
  ExpectRefused(FileOf("{\"\xff\":{}}", 0), "no JSON at byte");
  ExpectRefused(FileOf(R"({"a":1})", 0), "a is 1; it must be an object");
  ExpectRefused(FileOf(R"({"a":[]})", 0), "a is an array; it must be an object");
  ExpectRefused(FileOf(R"({"a":null})", 0), "a is null");
  ExpectRefused(FileOf(R"({"a":"text"})", 0), "a is \"text\"");
  ExpectRefused(FileOf(R"({"a":{"b":{}}})", 0), "a is given none of them; it must be given dtype, shape and data_off");
  ExpectRefused(FileOf(R"({"__metadata__":{"b":{}}})", 0), "__metadata__.b is an object; it must be a string");
  ExpectRefused(FileOf(R"({"__metadata__":{"b":1}})", 0), "__metadata__.b is 1; it must be a string");
  ExpectRefused(FileOf(R"({"__metadata__":"b"})", 0), "must be an object");
  ExpectRefused(FileOf("{\"a\":" + std::string(1 << 20, '['), 0), "a is an array");  // at once, however deep
}

TEST(Safetensors, RefusesTensorsOfAnotherForm) {
  ExpectRefused(OneTensor(R"("dtype":"F32","shape":[2])", 8), "a is given dtype and shape alone");
  ExpectRefused(OneTensor(R"("dtype":4,"shape":[2],"data_offsets":[0,8])", 8), "a.dtype is 4; it must be a string");
  ExpectRefused(OneTensor(R"("dtype":["F32"],"shape":[2],"data_offsets":[0,8])", 8), "a.dtype is an array");
  ExpectRefused(OneTensor(R"("dtype":"F32","shape":2,"data_offsets":[0,8])", 8), "a.shape is 2; it must be an array");
  ExpectRefused(OneTensor(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])", 8), "a.shape is an array");
  ExpectRefused(OneTensor(R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])", 8), "a.shape is \"2\"");
  ExpectRefused(OneTensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])", 8), "a.shape is 2.0");
  ExpectRefused(OneTensor(R"("dtype":"F32","shape":[true],"data_offsets":[0,8])", 8), "a.shape is true");
  ExpectRefused(OneTensor(R"("dtype":"F32","shape":[{}],"data_offsets":[0,8])", 8), "a.shape is an object");
  ExpectRefused(OneTensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])", 8), "a.shape is -2");
  ExpectRefused(OneTensor(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])", 8), "to 2^63 - 1");
  ExpectRefused(OneTensor(R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8])", 8), "to 2^63 - 1");
}

// As safetensors 0.8 does.
TEST(Safetensors, SkipsMembersItDoesNotKnow) {
  const std::string known = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  for (const char* other : {"1", "-1", "1.5", "null", "true", "\"text\"", "[]", "{}", "[[1,{\"dtype\":4}],\"shape\"]",
                            "{\"dtype\":{\"shape\":[]},\"x\":null}"}) {
    const std::string note = absl::StrCat("\"note\":", other);
    for (const std::string& members : {absl::StrCat(note, ",", known), absl::StrCat(known, ",", note, ",", note)}) {
      const absl::StatusOr<Safetensors> parsed = ParseSafetensors(OneTensor(members, 4));
      ASSERT_TRUE(parsed.ok()) << members << parsed.status();
      EXPECT_EQ(parsed->tensors.at("a").elements(), 1);
    }
  }
  ExpectRefused(OneTensor(R"("note":[1,"dtype":"F32","shape":[1],"data_offsets":[0,4])", 4), "no JSON at byte");
  ExpectRefused(OneTensor(R"("note":1,"shape":[1],"data_offsets":[0,4])", 4), "given data_offsets and shape alone");
}

TEST(Safetensors, NullIsNoMetadata) {
  EXPECT_TRUE(
      ParseSafetensors(FileOf(R"({"__metadata__":null,"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1)).ok());
  ExpectRefused(FileOf(R"({"__metadata__":{"a":null}})", 0), "__metadata__.a is null; it must be a string");
  ExpectRefused(FileOf(R"({"__metadata__":null,"__metadata__":{}})", 0), "__metadata__ is named twice");
}

TEST(Safetensors, KnowsEveryDTypeOfTheFormat) {
  for (const auto& [dtype, bits] :
       {std::pair("F4", 4), {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E8M0", 8},
        {"F8_E4M3", 8},     {"F8_E5M2", 8}, {"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"U16", 16},
        {"I16", 16},        {"F16", 16},    {"BF16", 16},   {"U32", 32},        {"I32", 32},        {"F32", 32},
        {"C64", 64},        {"F64", 64},    {"I64", 64},    {"U64", 64}}) {
    const int bytes = 16 * bits / 8;
    const std::string file =
        OneTensor(absl::StrCat("\"dtype\":\"", dtype, "\",\"shape\":[2,8],\"data_offsets\":[0,", bytes, "]"),
                  static_cast<size_t>(bytes));
    const absl::StatusOr<Safetensors> parsed = ParseSafetensors(file);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->tensors.at("a").elements(), 16);
    EXPECT_TRUE(WriteSafetensors(*parsed).ok()) << dtype;
  }
  ExpectRefused(OneTensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])", 2),
                "a.shape is [3]; it must be of whole bytes, of F4 as well");
}

TEST(Safetensors, RefusesNamesGivenTwice) {
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  ExpectRefused(FileOf("{" + a + "," + a + "}", 4), "a is named twice");
  ExpectRefused(FileOf(R"({"__metadata__":{},"__metadata__":{}})", 0), "__metadata__ is named twice");
  ExpectRefused(FileOf(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "__metadata__.k is named twice");
  ExpectRefused(OneTensor(R"("dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4])", 4),
                "a.dtype is named twice");
}

TEST(Safetensors, RefusesBytesThatAreNotThoseOfTheShape) {
  ExpectRefused(OneTensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])", 8),
                "a.data_offsets is 8 bytes; it must be 12, as F32 [3] needs");
  ExpectRefused(OneTensor(R"("dtype":"F64","shape":[],"data_offsets":[0,4])", 4), "must be 8");
  ExpectRefused(OneTensor(R"("dtype":"Q4","shape":[2],"data_offsets":[0,8])", 8),
                "a.dtype is Q4; it must be one of F64");
  ExpectRefused(OneTensor(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])", 0), "fits 64 bits");
  ExpectRefused(OneTensor(R"("dtype":"F8_E4M3","shape":[9223372036854775807,9,0],"data_offsets":[0,0])", 0), "64 bits");
}

TEST(Safetensors, RefusesOffsetsThatOverlapLeaveGapsOrLeaveTheFile) {
  const auto two = [](const std::string& a, const std::string& b, size_t bytes) {
    return FileOf(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + a +
                      R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":)" + b + "}}",
                  bytes);
  };
  ASSERT_TRUE(ParseSafetensors(two("[4,8]", "[0,4]", 8)).ok());  // whatever their order in the header
  ExpectRefused(two("[0,4]", "[0,4]", 4), "b.data_offsets is from 0; it must be from 4");
  ExpectRefused(two("[0,4]", "[2,6]", 6), "b.data_offsets is from 2; it must be from 4");
  ExpectRefused(two("[0,4]", "[5,9]", 9), "b.data_offsets is from 5; it must be from 4");
  ExpectRefused(two("[4,8]", "[8,12]", 12), "a.data_offsets is from 4; it must be from 0");
  ExpectRefused(two("[0,4]", "[4,8]", 7), "b.data_offsets is [4, 8]; it must be rising and at most 7");
  ExpectRefused(two("[0,4]", "[8,4]", 8), "b.data_offsets is [8, 4]; it must be rising");
  ExpectRefused(two("[0,4]", "[-4,0]", 4), "b.data_offsets is -4");
  ExpectRefused(two("[0,4]", "[4]", 8), "b.data_offsets is [4]; it must be 2 numbers");
  ExpectRefused(two("[0,4]", "[4,8,8]", 8), "must be 2 numbers");
  ExpectRefused(two("[0,4]", "[9223372036854775803,9223372036854775807]", 8), "at most 8");
  // A tensor of no bytes may not hide between others.
  ExpectRefused(FileOf(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                       R"("z":{"dtype":"F32","shape":[0],"data_offsets":[2,2]}})",
                       4),
                "z.data_offsets is from 2");
}

TEST(Safetensors, ShowsHostileNamesEscapedAndCut) {
  const std::string name = "\\u001b[2J" + std::string(1000, 'x');
  const absl::StatusOr<Safetensors> parsed = ParseSafetensors(FileOf("{\"" + name + "\":1}", 0));
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.status().message().find('\x1b'), absl::string_view::npos);
  EXPECT_LT(parsed.status().message().size(), 300u);
}

TEST(Safetensors, DoesNotWriteWhatItWouldNotRead) {
  const auto write = [](const std::string& name, const SafetensorsTensor& tensor) {
    Safetensors file;
    file.tensors[name] = tensor;
    return std::string(WriteSafetensors(file).status().message());
  };
  EXPECT_NE(write("\xff", {"F32", {1}, "abcd"}).find("UTF-8"), std::string::npos);
  EXPECT_NE(write("__metadata__", {"F32", {1}, "abcd"}).find("not __metadata__"), std::string::npos);
  EXPECT_NE(write("a", {"F33", {1}, "abcd"}).find("a.dtype is F33"), std::string::npos);
  EXPECT_NE(write("a", {"F32", {2}, "abcd"}).find("4 bytes; it must be 8"), std::string::npos);
  Safetensors file;
  file.metadata["key"] = "\xc3";
  const absl::Status status = WriteSafetensors(file).status();
  EXPECT_NE(status.message().find("__metadata__.key"), absl::string_view::npos) << status;
}

TEST(Safetensors, TakesFloatsOfFourDTypes) {
  for (const auto& [dtype, bytes] : {std::pair("F64", 8), {"F32", 4}, {"F16", 2}, {"BF16", 2}}) {
    const std::string data(static_cast<size_t>(bytes), '\x3c');
    const absl::StatusOr<Tensor> tensor = ToFloatTensor("a", {dtype, {1}, data});
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(SafetensorsDType(tensor->dtype), dtype);
    EXPECT_EQ(tensor->data, data);
  }
  const absl::StatusOr<Tensor> refused = ToFloatTensor("a", {"I64", {1}, "12345678"});
  EXPECT_EQ(refused.status().message(), "safetensors: a.dtype is I64; it must be F64, F32, F16 or BF16");
}

// Bytes changed, cut and doubled at random: no crash, and what is accepted is whole and in bounds.
TEST(Safetensors, SurvivesMutations) {
  std::mt19937 random(20240611);
  Safetensors seed;
  seed.metadata = {{"format", "pt"}};
  seed.tensors["weight"] = {"F32", {2}, "abcdefgh"};
  seed.tensors["n"] = {"I64", {}, "12345678"};
  const std::string whole = *WriteSafetensors(seed);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string file = whole;
    const int changes = 1 + static_cast<int>(random() % 3);
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
    const absl::StatusOr<Safetensors> parsed = ParseSafetensors(file);
    if (!parsed.ok()) continue;
    ++accepted;
    size_t bytes = 0;
    for (const auto& [name, tensor] : parsed->tensors) {
      ASSERT_GE(tensor.data.data(), file.data());
      ASSERT_LE(tensor.data.data() + tensor.data.size(), file.data() + file.size());
      bytes += tensor.data.size();
    }
    uint64_t length;
    std::memcpy(&length, file.data(), sizeof(length));
    ASSERT_EQ(8 + length + bytes, file.size()) << "round " << round;
  }
  EXPECT_GT(accepted, 0);  // changes in the data alone are accepted
}

}  // namespace
}  // namespace normd::client
