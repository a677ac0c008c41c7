// An x that lies in pieces, as it comes from the wire, gives the bytes of one that lies together: wherever it is cut,
// in the middle of elements too, on one thread and on several.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/methods.h"
#include "tests/kernels/case_runs.h"
#include "tests/kernels/cases.h"
#include "tests/support/case.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

// x of a job, cut at `cuts` random places. Every piece is a block of its own, so that sanitizers see a step outside.
class Pieces {
 public:
  Pieces(const std::string& bytes, int cuts, std::mt19937& random) {
    std::vector<size_t> at = {0, bytes.size()};
    for (int i = 0; i < cuts; ++i) at.push_back(random() % (bytes.size() + 1));
    std::sort(at.begin(), at.end());
    for (size_t i = 1; i < at.size(); ++i) {
      if (at[i] == at[i - 1]) continue;
      blocks_.push_back(std::make_unique<std::string>(bytes, at[i - 1], at[i] - at[i - 1]));
      segments_.emplace_back(reinterpret_cast<const std::byte*>(blocks_.back()->data()), blocks_.back()->size());
    }
  }

  absl::Span<const Segment> segments() const { return segments_; }

 private:
  std::vector<std::unique_ptr<std::string>> blocks_;
  std::vector<Segment> segments_;
};

class SegmentsTest : public testing::TestWithParam<Method> {};

TEST_P(SegmentsTest, GiveTheBytesOfAnXThatLiesTogether) {
  const std::unique_ptr<Backend> backends[] = {
      MakeCpuBackend({.threads = 1}), MakeCpuBackend({.threads = 3, .inline_elements = 0, .grain_elements = 64})};
  std::mt19937 random(7);
  int scattered = 0;
  for (const Case& c : ForComparingBytes(cases::AllOf(GetParam()))) {
    const absl::StatusOr<NormPlan> plan = PlanOf(c);
    ASSERT_TRUE(plan.ok()) << c.Name();
    if (plan->elements == 0) continue;
    const CaseData data = MakeData(c, *plan, 0);
    const absl::StatusOr<Outputs> want = RunCase(*backends[0], c, data);
    ASSERT_TRUE(want.ok()) << c.Name();
    for (const auto& backend : backends) {
      const Pieces pieces(data.x, 1 + static_cast<int>(random() % 9), random);
      std::string together(data.x.size(), '\0');
      CaseRun run(*backend, c, *plan, data, 0);
      Job job = run.MakeJob();
      job.x = nullptr;
      job.x_segments = pieces.segments();
      const bool takes = backend->AcceptsScattered(*plan) && !job.residual.present() && job.mask == nullptr;
      if (takes) ++scattered;
      if (!takes) job.x_buffer = together.data();
      ASSERT_TRUE(RunJobs(*backend, {job}).ok());
      EXPECT_EQ(DifferenceOf(run.TakeOutputs(), *want), "") << c.Name() << (takes ? " scattered" : " put together");
    }
  }
  const bool never = GetParam() == Method::kPowerNorm;  // its plans read x several times
  EXPECT_EQ(scattered == 0, never) << "the scattered path was not tested";
}

INSTANTIATE_TEST_SUITE_P(Methods, SegmentsTest, testing::ValuesIn(kAllMethods),
                         [](const auto& method) { return std::string(Info(method.param).name); });

TEST(GatherSegmentsTest, CopiesAnyRange) {
  const std::string bytes = "0123456789";
  std::mt19937 random(8);
  for (int64_t begin = 0; begin <= 10; ++begin) {
    for (int64_t size = 0; begin + size <= 10; ++size) {
      const Pieces pieces(bytes, 4, random);
      std::string out(static_cast<size_t>(size), '?');
      GatherSegments(pieces.segments(), begin, size, out.data());
      EXPECT_EQ(out, bytes.substr(static_cast<size_t>(begin), static_cast<size_t>(size)));
    }
  }
}

}  // namespace
}  // namespace normd
