// On a real GPU the bytes of a result depend on nothing that travels along: not on the jobs of the same submission, not
// on other submissions in flight, not on the other rows of a tensor, not on the run. Compared bit for bit.
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "kernels/methods.h"
#include "tests/device/gpu/gpu_test.h"
#include "tests/kernels/cases.h"

namespace normd {
namespace {

// A case with its data, ready to travel with others.
struct Traveller {
  explicit Traveller(const Backend& backend, const Case& c)
      : one(c), data(DataOf(one)), run(backend, one, *PlanOf(one), data, 0) {}

  const Case one;
  const CaseData data;
  CaseRun run;
};

class GpuInvarianceTest : public GpuTest, public testing::WithParamInterface<Method> {
 protected:
  std::vector<std::unique_ptr<Traveller>> Travellers() {
    std::vector<std::unique_ptr<Traveller>> all;
    for (const Case& c : cases::AllOf(GetParam())) all.push_back(std::make_unique<Traveller>(*cuda_, c));
    return all;
  }
  void ExpectBytesOfLoneRuns(const std::vector<std::unique_ptr<Traveller>>& all) {
    for (const auto& traveller : all) {
      EXPECT_EQ(DifferenceOf(traveller->run.TakeOutputs(), Execute(*cuda_, traveller->one, traveller->data)), "")
          << traveller->one.Name();
    }
  }
};

TEST_P(GpuInvarianceTest, BytesDoNotDependOnTheJobsOfTheSameSubmission) {
  const std::vector<std::unique_ptr<Traveller>> all = Travellers();
  for (size_t begin = 0; begin < all.size(); begin += 100) {
    std::vector<Job> jobs;
    for (size_t i = begin; i < std::min(all.size(), begin + 100); ++i) jobs.push_back(all[i]->run.MakeJob());
    ASSERT_EQ(RunJobs(*cuda_, std::move(jobs)), absl::OkStatus());
  }
  ExpectBytesOfLoneRuns(all);
}

TEST_P(GpuInvarianceTest, BytesDoNotDependOnWhatElseIsInFlight) {
  const std::vector<std::unique_ptr<Traveller>> all = Travellers();
  std::vector<std::promise<absl::Status>> done(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    cuda_->Submit({all[i]->run.MakeJob()}, [&done, i](absl::Status status) { done[i].set_value(std::move(status)); });
  }
  for (std::promise<absl::Status>& one : done) EXPECT_EQ(one.get_future().get(), absl::OkStatus());
  ExpectBytesOfLoneRuns(all);
}

INSTANTIATE_TEST_SUITE_P(Methods, GpuInvarianceTest, testing::ValuesIn(kAllMethods),
                         [](const auto& method) { return std::string(Info(method.param).name); });

class GpuRowsTest : public GpuTest {};

TEST_F(GpuRowsTest, ARowHasTheSameBytesAloneAndAmongOthers) {
  constexpr int64_t kRows = 1000;
  for (const int64_t n : {3, 64, 129, 768, 4096, 20001}) {
    for (const Precision precision : {Precision::kExact, Precision::kFast}) {
      Case all = cases::With(cases::On(cases::Of(Method::kRmsNorm), {kRows, n}), DType::kBF16);
      all.options.precision = precision;
      const CaseData data = DataOf(all);
      const Outputs together = Execute(*cuda_, all, data);
      const auto row_bytes = static_cast<size_t>(n * SizeOf(all.dtype));
      for (const size_t row : {size_t{0}, size_t{1}, size_t{500}, size_t{kRows - 1}}) {
        Case one = all;
        one.shape = {1, n};
        const CaseData part = {.x = data.x.substr(row * row_bytes, row_bytes)};
        EXPECT_EQ(Execute(*cuda_, one, part).y, together.y.substr(row * row_bytes, row_bytes)) << one.Name() << row;
      }
    }
  }
}

}  // namespace
}  // namespace normd
