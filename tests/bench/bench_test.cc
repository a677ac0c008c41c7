// What the bench fails, and what it lets pass: a check that could not fail would find nothing.
#include <stdlib.h>

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/bench/reached.h"
#include "tests/bench/report.h"
#include "tests/bench/suite.h"

namespace normd::bench {
namespace {

using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::UnorderedElementsAre;

// A suite of two figures: a share of an opponent that is meant to reach 1, and a cost that may be at most 2.
absl::Status Measure(double share, double cost, Report* report) {
  report->Note("instruction set", "AVX9");
  report->Table("ratios", {"worst"});
  report->Row("speed (of the shape 3x7)", {Ratio(share, 1.0)});
  report->Row("cost", {Ratio(cost, {}, 2.0)});
  return absl::OkStatus();
}

std::string File(const std::string& name, const std::string& text) {
  std::string path = ::testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}
std::string RecordOf(const std::string& suite, double share, double cost) {
  return File("reached.json", "{\"" + suite + "\": {\"figures\": {\"speed, worst\": " + std::to_string(share) +
                                  ", \"cost, worst\": " + std::to_string(cost) + "}}}");
}

TEST(BenchTest, ChecksAgainstShareOfFloor) {
  Report report("suite");
  ASSERT_TRUE(Measure(0.65, 2.9, &report).ok());
  EXPECT_THAT(report.Below(0.7, nullptr), UnorderedElementsAre(Key("speed, worst"), Key("cost, worst")));
  EXPECT_THAT(report.Below(0.6, nullptr), IsEmpty());
  EXPECT_THAT(report.Below(0, nullptr), IsEmpty());
}

TEST(BenchTest, ChecksAgainstShareOfWhatWasReached) {
  const auto below = [](double share, double cost, const std::string& record) {
    Report report("suite");
    EXPECT_TRUE(Measure(share, cost, &report).ok());
    const Reached reached = *Reached::Load(record, "suite", "AVX9");
    return report.Below(0.7, &reached);
  };
  EXPECT_THAT(below(0.45, 4.1, RecordOf("suite AVX9", 0.6, 3)), IsEmpty());
  EXPECT_THAT(below(0.45, 4.1, RecordOf("suite AVX9", 0.7, 3)), UnorderedElementsAre(Key("speed, worst")));
  EXPECT_THAT(below(0.45, 4.1, RecordOf("suite AVX9", 0.6, 2.5)), UnorderedElementsAre(Key("cost, worst")));
  // What was better than the floor is not held against a later build that keeps the floor.
  EXPECT_THAT(below(0.75, 2.8, RecordOf("suite AVX9", 9, 0.1)), IsEmpty());
}

TEST(BenchTest, KnowsRecordsBySuiteAndInstructionSet) {
  const std::string path = RecordOf("suite AVX9", 0.5, 3);
  EXPECT_EQ(Reached::Load(path, "suite", "AVX9")->Of("speed (any shape), worst"), 0.5);
  EXPECT_EQ(Reached::Load(path, "suite", "AVX9")->Of("speed, median"), std::nullopt);
  EXPECT_TRUE(Reached::Load(path, "suite", "AVX2")->empty());
  EXPECT_TRUE(Reached::Load(path, "other", "AVX9")->empty());
  EXPECT_FALSE(Reached::Load(path + ".absent", "suite", "AVX9").ok());
  EXPECT_FALSE(Reached::Load(File("torn.json", "{\"suite\""), "suite", "").ok());
}

TEST(BenchTest, MeasuresOnceMoreBeforeItFails) {
  Flags flags;
  flags.check = 0.7;
  int runs = 0;
  EXPECT_EQ(RunSuite("suite", flags, [&](Report* report) { return Measure(++runs == 1 ? 0.1 : 1, 1, report); }), 0);
  EXPECT_EQ(runs, 2);
  // One that passes first and fails then, beside one that does the opposite: none of them failed twice.
  EXPECT_EQ(RunSuite("suite", flags,
                     [&](Report* report) { return ++runs == 3 ? Measure(0.1, 1, report) : Measure(1, 9, report); }),
            0);
  EXPECT_EQ(RunSuite("suite", flags, [&](Report* report) { return Measure(0.1, 1, report); }), 1);
}

TEST(BenchTest, NothingMeasuredIsNothingPassed) {
  Flags flags;
  flags.check = 0.7;
  EXPECT_EQ(RunSuite("suite", flags, [](Report*) { return absl::OkStatus(); }), 1);
}

}  // namespace
}  // namespace normd::bench
