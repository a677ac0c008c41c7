// Bits do not change between commits unnoticed: golden.txt has a hash for each method, element type and kind of result.
// Of results that are the nearest values, the hash is that of the exact oracle's y (tests/support/nearest.h), so the
// file says what the formulas are worth and not what some kernel wrote. FAST, and LpNorm of orders that are bounded,
// have the hash of what the CPU backend wrote, y and moments: their bits are those of a declared order of sums.
// Which case changed: NORMD_GOLDEN_CASES=FILE writes the hash of each; compare the file with the one that the commit
// before writes. After a change that is meant: NORMD_UPDATE_GOLDEN=1 ./kernels_test --gtest_filter='Golden*', and raise
// kNumerics or kFastNumerics.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "kernels/cpu/backend.h"
#include "tests/kernels/case_runs.h"
#include "tests/kernels/cases.h"
#include "tests/support/environment.h"
#include "tests/support/nearest.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

constexpr char kPath[] = NORMD_SOURCE_DIR "/tests/kernels/golden.txt";

// Larger cases of the nearest value are left to nearest_rounding_test.cc: the oracle takes 3 us an element.
constexpr int64_t kMostNearestElements = 100;

using Hashes = std::map<std::string, uint64_t>;  // by the names of cases

struct Family {
  int cases = 0;
  uint64_t hash = Fnv1a("");  // of the lines of its cases
};
using Families = std::map<std::string, Family>;

std::string Hex(uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

uint64_t HashOf(const Outputs& outputs) {
  const uint64_t hash = Fnv1a(outputs.y);
  return Fnv1a({reinterpret_cast<const char*>(outputs.moments.data()), outputs.moments.size() * sizeof(Moment)}, hash);
}

// Of elements as the low bits of numbers, where one NaN is as good as another.
uint64_t HashOf(oracle::Type type, std::vector<uint64_t> y) {
  const oracle::Format format = oracle::FormatOf(type);
  for (uint64_t& bits : y) {
    if ((bits & ~format.sign()) > format.infinity()) bits = format.infinity() + 1;
  }
  return Fnv1a({reinterpret_cast<const char*>(y.data()), y.size() * sizeof(uint64_t)});
}

std::vector<uint64_t> BitsOf(DType dtype, const std::string& y) {
  const auto size = static_cast<size_t>(SizeOf(dtype));
  std::vector<uint64_t> bits(y.size() / size);
  for (size_t i = 0; i < bits.size(); ++i) std::memcpy(&bits[i], y.data() + i * size, size);
  return bits;
}

// "layer_norm/f32", or "layer_norm/f32/bounded" where the bits are those of an order of sums.
std::string FamilyOf(const std::string& name, const Case& c) {
  const std::string of_type = name.substr(0, name.find('/', name.find('/') + 1));
  return IsNearest(c) ? of_type : of_type + "/bounded";
}

std::string LineOf(const std::string& name, uint64_t hash) { return Concat(Hex(hash), " ", name, "\n"); }

// The families of all cases, as the backend or as the exact oracle has them; of the latter those of the nearest value.
class Computed {
 public:
  Computed() {
    for (const Case& c : cases::All()) {
      const bool is_nearest = IsNearest(c);
      if (!is_nearest || PlanOf(c)->elements <= kMostNearestElements) Add(c, is_nearest);
    }
  }

  Families OfBackend() const { return FamiliesOf(backend_); }
  Families OfOracle() const { return FamiliesOf(oracle_); }
  void WriteCases(const std::string& path) const {
    std::ofstream file(path);
    for (const auto& [name, hash] : backend_) file << LineOf(name, hash);
    ASSERT_TRUE(file.good()) << path;
  }

 private:
  void Add(const Case& c, bool is_nearest) {
    const std::string name = c.Name();
    families_[name] = FamilyOf(name, c);
    const CaseData data = DataOf(c);
    const Outputs got = Execute(*cpu_, c, data);
    backend_[name] = is_nearest ? HashOf(OracleType(c.dtype), BitsOf(c.dtype, got.y)) : HashOf(got);
    if (!is_nearest) return;
    oracle_[name] = HashOf(OracleType(c.dtype), oracle::Nearest(OracleSpec(c), OracleInput(c, data)).y);
  }
  Families FamiliesOf(const Hashes& hashes) const {
    Families families;
    for (const auto& [name, hash] : hashes) {
      Family& family = families[families_.at(name)];
      ++family.cases;
      family.hash = Fnv1a(LineOf(name, hash), family.hash);
    }
    return families;
  }

  const std::unique_ptr<Backend> cpu_ = MakeCpuBackend({});
  std::map<std::string, std::string> families_;  // of the names of cases
  Hashes backend_, oracle_;
};

Families Read() {
  std::ifstream file(kPath);
  Families families;
  std::string name, hash;
  Family family;
  while (file >> hash >> family.cases >> name) {
    family.hash = std::stoull(hash, nullptr, 16);
    families[name] = family;
  }
  return families;
}

void Write(const Families& families) {
  std::ofstream file(kPath);
  for (const auto& [name, family] : families) file << Hex(family.hash) << " " << family.cases << " " << name << "\n";
  ASSERT_TRUE(file.good()) << kPath;
}

void ExpectFamilies(const Families& got, const Families& want, const std::string& whose) {
  for (const auto& [name, family] : got) {
    const auto known = want.find(name);
    ASSERT_NE(known, want.end()) << name << " is not in golden.txt";
    EXPECT_EQ(family.cases, known->second.cases) << name << ": cases came or went";
    EXPECT_EQ(Hex(family.hash), Hex(known->second.hash)) << name << ": bits of the " << whose << " changed";
  }
}

TEST(GoldenTest, BitsOfEveryCaseAreThoseOfTheGoldenFile) {
  const Computed computed;
  const Families backend = computed.OfBackend(), oracle = computed.OfOracle();
  std::string cases(Environment("NORMD_GOLDEN_CASES"));
  if (!cases.empty()) computed.WriteCases(cases);
  if (!Environment("NORMD_UPDATE_GOLDEN").empty()) {
    Families all = oracle;
    all.insert(backend.begin(), backend.end());  // those that the oracle does not have
    Write(all);
  }
  const Families want = Read();
  EXPECT_EQ(backend.size(), want.size()) << "methods, element types and kinds of result in " << kPath;
  ExpectFamilies(oracle, want, "exact oracle");
  ExpectFamilies(backend, want, "CPU backend");
  if (!HasFailure() || !cases.empty()) return;
  cases = testing::TempDir() + "normd-golden-cases.txt";
  computed.WriteCases(cases);
  ADD_FAILURE() << "The hashes of all cases are in " << cases << "; NORMD_GOLDEN_CASES=FILE writes those of the commit "
                << "before.";
}

}  // namespace
}  // namespace normd
