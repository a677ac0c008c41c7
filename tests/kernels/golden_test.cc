// Bits do not change between commits unnoticed: a hash of y and of the moments for every case against golden.txt.
// After a change that is meant: NORMD_UPDATE_GOLDEN=1 ./kernels_test --gtest_filter='Golden*', and raise kNumerics.
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "tests/kernels/cases.h"
#include "tests/support/environment.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

constexpr char kPath[] = NORMD_SOURCE_DIR "/tests/kernels/golden.txt";

using Hashes = std::map<std::string, std::string>;  // of a case's name, in hexadecimal

std::string HashOf(const Outputs& outputs) {
  uint64_t hash = Fnv1a(outputs.y);
  hash = Fnv1a({reinterpret_cast<const char*>(outputs.moments.data()), outputs.moments.size() * sizeof(Moment)}, hash);
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
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

Hashes Read() {
  std::ifstream file(kPath);
  Hashes hashes;
  std::string hash, name;
  while (file >> hash >> name) hashes[name] = hash;
  return hashes;
}

bool Write(const Hashes& hashes) {
  std::ofstream file(kPath);
  for (const auto& [name, hash] : hashes) file << hash << " " << name << "\n";
  return file.good();
}

TEST(GoldenTest, BitsOfEveryCaseAreThoseOfTheGoldenFile) {
  const Hashes got = Compute();
  ASSERT_GT(got.size(), 1000u);
  if (!Environment("NORMD_UPDATE_GOLDEN").empty()) {
    ASSERT_TRUE(Write(got)) << kPath;
    std::printf("%zu hashes written to %s\n", got.size(), kPath);
  }
  const Hashes want = Read();
  ASSERT_FALSE(want.empty()) << kPath << " is missing";
  int changed = 0;
  for (const auto& [name, hash] : got) {
    const auto known = want.find(name);
    if (known != want.end() && known->second == hash) continue;
    if (++changed <= 20) ADD_FAILURE() << name << (known == want.end() ? ": not in golden.txt" : ": bits changed");
  }
  EXPECT_EQ(changed, 0) << "of " << got.size() << " cases";
  for (const auto& [name, hash] : want) EXPECT_EQ(got.count(name), 1u) << name << " is no case any more";
}

}  // namespace
}  // namespace normd
