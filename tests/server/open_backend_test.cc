#include "server/open_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <sstream>
#include <string>
#include <vector>

#include "server/observe.h"
#include "tests/server/batch/fixtures.h"

namespace normd {
namespace {

using batch_test::FakeDevice;
using batch_test::Work;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class OpenBackendTest : public ::testing::Test {
 protected:
  OpenedBackend Open(const std::vector<std::string>& args, FakeDevice::Judge judge = nullptr) {
    const absl::StatusOr<Config> config = ParseConfig(args, {});
    EXPECT_TRUE(config.ok()) << config.status();
    return OpenBackend(
        *config, &metrics_, &log_, &clock_,
        [&](const CudaBackendOptions& options, const Backend* host) -> absl::StatusOr<std::unique_ptr<Backend>> {
          ++asked_;
          asked_device_ = options.device;
          EXPECT_EQ(host->name(), "cpu");
          if (!has_gpu_) return absl::UnavailableError("the slot is empty");
          auto device = std::make_unique<FakeDevice>();
          device->holds = false;
          device->judge = std::move(judge);
          return device;
        });
  }

  bool has_gpu_ = true;
  int asked_ = 0;
  int asked_device_ = -1;
  SystemClock clock_;
  std::ostringstream out_;
  Log log_{{.out = &out_}, &clock_};
  Metrics metrics_{DefaultMetricsOptions()};
};

TEST_F(OpenBackendTest, WithoutAGpuTheCpuDoesEverythingAndTheListSaysWhy) {
  has_gpu_ = false;
  const OpenedBackend opened = Open({});
  EXPECT_FALSE(opened.has_device);
  EXPECT_EQ(opened.backend->Calibration(), "AUTO runs on the CPU");
  ASSERT_GE(opened.devices.size(), 2u);
  EXPECT_EQ(opened.devices[0].name, "cpu");
  EXPECT_TRUE(opened.devices[0].usable);
  EXPECT_FALSE(opened.devices[1].usable);
  EXPECT_THAT(opened.devices[1].detail, HasSubstr("the slot is empty"));
}

TEST_F(OpenBackendTest, NoGpuIsAskedForWhereItIsOff) {
  const OpenedBackend opened = Open({"--cuda=off"});
  EXPECT_EQ(asked_, 0);
  EXPECT_FALSE(opened.has_device);
  EXPECT_THAT(opened.devices.at(1).detail, HasSubstr("not used: --cuda=off"));
}

TEST_F(OpenBackendTest, AGpuIsMeasuredBatchedAndPlaced) {
  const OpenedBackend opened = Open({"--cuda_device=3", "--batch_delay=1ms"});
  EXPECT_EQ(asked_device_, 3);
  EXPECT_TRUE(opened.has_device);
  EXPECT_THAT(opened.backend->Calibration(),
              AllOf(StartsWith("cpu "), HasSubstr(" GB/s; cuda:3 "), HasSubstr(" GB/s both ways over PCIe")));
  Work work(1, 1, 8);
  work.errand.device = Device::kCuda;
  std::promise<void> done;
  work.on_done = [&done] { done.set_value(); };
  work.SubmitTo(*opened.backend);
  done.get_future().wait();
  EXPECT_TRUE(work.status.ok()) << work.status;
  EXPECT_EQ(work.executed.device, Device::kCuda);
  EXPECT_THAT(metrics_.Text(),
              AllOf(HasSubstr(R"(normd_device_jobs_total{device="cuda"} 1)"), HasSubstr("normd_batch_size_sum 1")));
}

TEST_F(OpenBackendTest, AGpuThatFailsItsFirstWorkIsNotUsed) {
  const OpenedBackend opened =
      Open({}, [](const std::vector<Job>&) { return absl::InternalError("an illegal instruction"); });
  EXPECT_FALSE(opened.has_device);
  EXPECT_THAT(opened.devices.at(1).detail, HasSubstr("an illegal instruction"));
}

}  // namespace
}  // namespace normd
