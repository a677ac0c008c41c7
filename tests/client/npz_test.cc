#include "client/cli/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"

namespace normd::client {
namespace {

using testing::HasSubstr;

// What numpy.savez(f, x=a), numpy.savez_compressed(f, x=a) and numpy.savez_compressed(f, a=a, weights=a) write through
// Python's zipfile, whose local headers have 64-bit extra fields, for a = np.arange(16, dtype=np.float32) ** 2.
constexpr char kStored[] =
    "504b03042d000000000000002100531b21b5ffffffffffffffff05001400782e6e707901001000c000000000000000c00000"
    "0000000000934e554d5059010076007b276465736372273a20273c6634272c2027666f727472616e5f6f72646572273a2046"
    "616c73652c20277368617065273a202831362c292c207d202020202020202020202020202020202020202020202020202020"
    "20202020202020202020202020202020202020202020202020202020202020200a000000000000803f000080400000104100"
    "0080410000c8410000104200004442000080420000a2420000c8420000f24200001043000029430000444300006143504b01"
    "022d032d000000000000002100531b21b5c0000000c0000000050000000000000000000000800100000000782e6e7079504b"
    "0506000000000100010033000000f70000000000";
constexpr char kDeflated[] =
    "504b03042d000000080000002100531b21b5ffffffffffffffff05001400782e6e707901001000c000000000000000720000"
    "00000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9366a2aea3a09e965f54529498179f5f94920a12774bcc"
    "294e058a17672416a402f91a86663a9a3a0ab50ae4032e063068b007620706060147200dc4278058c08981c105881b807811"
    "109f00e24f402ce0ccc0a009c42e409ce80c00504b01022d032d000000080000002100531b21b572000000c0000000050000"
    "000000000000000000800100000000782e6e7079504b0506000000000100010033000000a90000000000";
constexpr char kTwo[] =
    "504b03042d000000080000002100531b21b5ffffffffffffffff05001400612e6e707901001000c000000000000000720000"
    "00000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9366a2aea3a09e965f54529498179f5f94920a12774bcc"
    "294e058a17672416a402f91a86663a9a3a0ab50ae4032e063068b007620706060147200dc4278058c08981c105881b807811"
    "109f00e24f402ce0ccc0a009c42e409ce80c00504b03042d000000080000002100531b21b5ffffffffffffffff0b00140077"
    "6569676874732e6e707901001000c00000000000000072000000000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5"
    "a06e9366a2aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416a402f91a86663a9a3a0ab50ae4032e0630"
    "68b007620706060147200dc4278058c08981c105881b807811109f00e24f402ce0ccc0a009c42e409ce80c00504b01022d03"
    "2d000000080000002100531b21b572000000c0000000050000000000000000000000800100000000612e6e7079504b01022d"
    "032d000000080000002100531b21b572000000c00000000b00000000000000000000008001a9000000776569676874732e6e"
    "7079504b050600000000020002006c000000580100000000";

std::string Stored() { return absl::HexStringToBytes(kStored); }
std::string Deflated() { return absl::HexStringToBytes(kDeflated); }
std::string Two() { return absl::HexStringToBytes(kTwo); }

std::string ErrorOf(const std::string& file) {
  const absl::StatusOr<std::string> npy = NpyInNpz(file);
  EXPECT_FALSE(npy.ok());
  return std::string(npy.status().message());
}

TEST(Npz, ReadsTheOneArray) {
  ASSERT_TRUE(IsZip(Stored()));
  const absl::StatusOr<std::string> stored = NpyInNpz(Stored());
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(stored->substr(1, 5), "NUMPY");
  EXPECT_EQ(stored->size(), 128u + 16 * sizeof(float));
  const absl::StatusOr<std::string> deflated = NpyInNpz(Deflated());
  ASSERT_TRUE(deflated.ok()) << deflated.status();
  EXPECT_EQ(*deflated, *stored);
}

TEST(Npz, NamesTheArraysWhereThereAreSeveral) {
  EXPECT_EQ(ErrorOf(Two()), "holds 2 arrays (a, weights): save the one to read with np.save(FILE, array)");
}

TEST(Npz, RefusesArchivesOfOtherThings) {
  const std::string none = absl::StrReplaceAll(Stored(), {{".npy", ".txt"}});
  EXPECT_THAT(ErrorOf(none), HasSubstr("without NumPy arrays"));
  EXPECT_THAT(ErrorOf(Stored().substr(0, 100)), HasSubstr("cut off"));
}

TEST(Npz, SurvivesDamage) {
  std::mt19937 random(20240613);
  for (const std::string& whole : {Stored(), Deflated(), Two()}) {
    for (int round = 0; round < 5000; ++round) {
      std::string file = whole;
      for (int i = 0; i < 3; ++i) file[random() % file.size()] = static_cast<char>(random());
      if (random() % 4 == 0) file.resize(random() % file.size());
      NpyInNpz(file).IgnoreError();
    }
  }
}

TEST(Npz, FindsDamageOfStoredData) {
  std::string file = Stored();
  const size_t data = file.find("x.npy") + 5 + 20 + 128 + 8;  // behind the name, the extra field and the header of .npy
  file[data] = static_cast<char>(file[data] ^ 0x10);
  EXPECT_THAT(ErrorOf(file), HasSubstr("is damaged"));
}

TEST(Npz, FindsStoredDataOfAnotherSize) {
  std::string file = Stored();
  const size_t size = file.find("PK\x01\x02") + 24;
  file[size] = static_cast<char>(file[size] - 1);
  EXPECT_THAT(ErrorOf(file), HasSubstr("is damaged"));
}

TEST(Npz, FindsDamageOfDeflatedData) {
  std::string file = Deflated();
  const size_t data = file.find("x.npy") + 5 + 20 + 30;  // behind the name and the extra field, inside the data
  file[data] = static_cast<char>(file[data] ^ 0x10);
  EXPECT_THAT(ErrorOf(file), HasSubstr("is damaged"));
}

}  // namespace
}  // namespace normd::client
