// Bits do not change between commits unnoticed: golden.txt has a hash for each method and element type, of y and of the
// moments of all its cases.
// Which case changed: NORMD_GOLDEN_CASES=FILE writes the hash of each; compare the file with the one that the commit
// before writes. After a change that is meant: NORMD_UPDATE_GOLDEN=1 ./kernels_test --gtest_filter='Golden*', and raise
// kNumerics.
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "kernels/cpu/backend.h"
#include "tests/kernels/cases.h"
#include "tests/support/environment.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

constexpr char kPath[] = NORMD_SOURCE_DIR "/tests/kernels/golden.txt";

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

Hashes Compute() {
  const std::unique_ptr<Backend> backend = MakeCpuBackend({});
  Hashes hashes;
  for (const Case& c : cases::All()) {
    const absl::StatusOr<NormPlan> plan = PlanOf(c);
    EXPECT_TRUE(plan.ok()) << c.Name() << ": " << plan.status();
    if (!plan.ok()) continue;
    const absl::StatusOr<Outputs> outputs = RunCase(*backend, c, MakeData(c, *plan, 0));
    EXPECT_TRUE(outputs.ok()) << c.Name() << ": " << outputs.status();
    if (outputs.ok()) hashes[c.Name()] = HashOf(*outputs);
  }
  return hashes;
}

std::string LineOf(const std::string& name, uint64_t hash) { return Concat(Hex(hash), " ", name, "\n"); }

Families FamiliesOf(const Hashes& hashes) {
  Families families;
  for (const auto& [name, hash] : hashes) {
    Family& family = families[name.substr(0, name.find('/', name.find('/') + 1))];  // "layer_norm/f32"
    ++family.cases;
    family.hash = Fnv1a(LineOf(name, hash), family.hash);
  }
  return families;
}

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

void WriteCases(const Hashes& hashes, const std::string& path) {
  std::ofstream file(path);
  for (const auto& [name, hash] : hashes) file << LineOf(name, hash);
  ASSERT_TRUE(file.good()) << path;
}

TEST(GoldenTest, BitsOfEveryCaseAreThoseOfTheGoldenFile) {
  const Hashes hashes = Compute();
  ASSERT_GT(hashes.size(), 1000u);
  const Families got = FamiliesOf(hashes);
  std::string cases(Environment("NORMD_GOLDEN_CASES"));
  if (!cases.empty()) WriteCases(hashes, cases);
  if (!Environment("NORMD_UPDATE_GOLDEN").empty()) Write(got);
  const Families want = Read();
  EXPECT_EQ(got.size(), want.size()) << "methods and element types in " << kPath;
  for (const auto& [name, family] : got) {
    const auto known = want.find(name);
    ASSERT_NE(known, want.end()) << name << " is not in golden.txt";
    EXPECT_EQ(family.cases, known->second.cases) << name << ": cases came or went";
    EXPECT_EQ(Hex(family.hash), Hex(known->second.hash)) << name << ": bits changed";
  }
  if (!HasFailure() || !cases.empty()) return;
  cases = testing::TempDir() + "normd-golden-cases.txt";
  WriteCases(hashes, cases);
  ADD_FAILURE() << "The hashes of all cases are in " << cases << "; NORMD_GOLDEN_CASES=FILE writes those of the commit "
                << "before.";
}

}  // namespace
}  // namespace normd
