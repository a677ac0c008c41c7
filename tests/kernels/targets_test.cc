// The limit on the instruction set. NORMD_TEST_MAX_ISA=avx2 sets it for all tests of this binary.
#include "kernels/cpu/targets.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/errors.h"
#include "tests/support/environment.h"

namespace normd {
namespace {

std::string_view LimitOfTheTests() { return Environment("NORMD_TEST_MAX_ISA"); }

class LimitedTargets : public testing::Environment {
 public:
  void SetUp() override {
    const absl::Status status = LimitCpuTargets(LimitOfTheTests());
    ASSERT_TRUE(status.ok()) << status;
  }
};
// GoogleTest owns it.
const testing::Environment* const kLimitedTargets = testing::AddGlobalTestEnvironment(new LimitedTargets);

class TargetsTest : public testing::Test {
 protected:
  ~TargetsTest() override { EXPECT_TRUE(LimitCpuTargets(LimitOfTheTests()).ok()); }
};

TEST_F(TargetsTest, ALimitChoosesTheTargetOfThatName) {
  const std::vector<CpuTarget> targets = SupportedCpuTargets();
  for (const CpuTarget& target : targets) {
    ASSERT_TRUE(LimitCpuTargets(target.name).ok()) << target.name;
    EXPECT_EQ(ActiveCpuTargetName(), target.name);
    ForceCpuTargetForTest(targets.front().id);
    ForceCpuTargetForTest(0);
    EXPECT_EQ(ActiveCpuTargetName(), target.name) << "the limit outlives a target that was forced";
    EXPECT_EQ(SupportedCpuTargets().size(), targets.size());
  }
  for (const char* none : {"auto", ""}) {
    ASSERT_TRUE(LimitCpuTargets(targets.back().name).ok());
    ASSERT_TRUE(LimitCpuTargets(none).ok());
    EXPECT_EQ(ActiveCpuTargetName(), targets.front().name);
  }
}

TEST_F(TargetsTest, PlainCodeIsEverywhereAndHasOneName) {
  EXPECT_EQ(SupportedCpuTargets().back().name, "plain");
  EXPECT_TRUE(LimitCpuTargets("plain").ok());
}

TEST_F(TargetsTest, AnInstructionSetThatIsNotThereIsRefusedAndChangesNothing) {
  const std::string before(ActiveCpuTargetName());
  for (const char* name : {"sse4", "AVX2", "emu128", " "}) {
    const absl::Status status = LimitCpuTargets(name);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    const std::optional<ErrorDetail> detail = GetErrorDetail(status);
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->field, "max_isa");
    EXPECT_EQ(detail->value, name);
    EXPECT_EQ(detail->limit.rfind("auto, ", 0), 0u) << detail->limit;
    EXPECT_NE(detail->limit.find(", plain"), std::string::npos) << detail->limit;
    EXPECT_EQ(ActiveCpuTargetName(), before);
  }
}

}  // namespace
}  // namespace normd
