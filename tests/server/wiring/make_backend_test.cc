#include "server/wiring/make_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "server/wiring/telemetry.h"
#include "tests/server/schedule/fixtures.h"
#include "tests/support/fake_device.h"

namespace normd {
namespace {

using schedule_test::HasBytesOfASingleCall;
using schedule_test::Rows;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

class OpenBackendTest : public ::testing::Test {
 protected:
  OpenedBackend Open(const std::vector<std::string>& args) {
    const absl::StatusOr<Config> config = ParseConfig(args, {});
    EXPECT_TRUE(config.ok()) << config.status();
    return OpenBackend(*config, &metrics_, &log_, &clock_,
                       [this](const CudaBackendOptions& options) -> absl::StatusOr<std::unique_ptr<Backend>> {
                         asked_.push_back(options.device);
                         if (missing_.contains(options.device)) return absl::UnavailableError("the slot is empty");
                         auto device = std::make_unique<FakeDevice>(options.device);
                         device->holds = false;
                         if (broken_.contains(options.device)) {
                           device->judge = [](const std::vector<Job>&) {
                             return absl::InternalError("an illegal instruction");
                           };
                         }
                         return device;
                       });
  }

  // Runs small rows where `device` and `space` say, and waits.
  static Executed Run(const OpenedBackend& opened, Device device, const MemorySpace& space = {}) {
    Rows rows(1, 1, 8);
    Work work;
    work.jobs = {rows.MakeJob()};
    work.jobs[0].x_space = space;
    work.devices = {device};
    work.executed = &rows.executed;
    std::promise<absl::Status> result;
    opened.scheduler->Submit(std::move(work), [&result](absl::Status status) { result.set_value(std::move(status)); });
    const absl::Status status = result.get_future().get();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(HasBytesOfASingleCall(rows));
    return rows.executed.empty() ? Executed() : rows.executed.front();
  }
  static size_t Launches(const OpenedBackend& opened, size_t gpu) {
    return static_cast<const FakeDevice&>(*opened.gpus.at(gpu)).launches().size();
  }

  std::set<int> missing_;  // devices that are not there
  std::set<int> broken_;   // devices that fail what they are given
  std::vector<int> asked_;
  SystemClock clock_;
  std::ostringstream out_;
  Log log_{{.out = &out_}, &clock_};
  Metrics metrics_{DefaultMetricsOptions()};
};

TEST_F(OpenBackendTest, WithoutAGpuTheCpuDoesEverythingAndTheListSaysWhy) {
  missing_ = {0};
  const OpenedBackend opened = Open({});
  EXPECT_THAT(asked_, ElementsAre(0));
  EXPECT_THAT(opened.gpus, IsEmpty());
  EXPECT_THAT(opened.cuda_devices, IsEmpty());
  EXPECT_EQ(opened.scheduler->Calibration(), "AUTO runs on the CPU");
  ASSERT_GE(opened.devices.size(), 2u);
  EXPECT_EQ(opened.devices[0].name, "cpu");
  EXPECT_TRUE(opened.devices[0].usable);
  EXPECT_FALSE(opened.devices[1].usable);
  EXPECT_THAT(opened.devices[1].detail, HasSubstr("the slot is empty"));
  EXPECT_EQ(Run(opened, Device::kAuto).device, Device::kCpu);
}

TEST_F(OpenBackendTest, NoGpuIsAskedForWhereItIsOff) {
  const OpenedBackend opened = Open({"--cuda=off", "--cuda_device=0,1"});
  EXPECT_THAT(asked_, IsEmpty());
  EXPECT_THAT(opened.gpus, IsEmpty());
  EXPECT_THAT(opened.cuda_devices, IsEmpty());
  EXPECT_THAT(opened.devices.at(1).detail, HasSubstr("not used: --cuda=off"));
}

TEST_F(OpenBackendTest, AGpuIsMeasuredQueuedForAndScheduled) {
  const OpenedBackend opened = Open({"--cuda_device=3", "--batch_delay=1ms"});
  EXPECT_THAT(asked_, ElementsAre(3));
  EXPECT_THAT(opened.gpus, SizeIs(1));
  EXPECT_THAT(opened.cuda_devices, ElementsAre(3));
  EXPECT_THAT(opened.scheduler->Calibration(),
              AllOf(StartsWith("cpu "), HasSubstr(" GB/s; cuda:3 "), HasSubstr(" GB/s both ways over PCIe")));
  EXPECT_EQ(Run(opened, Device::kCuda).device, Device::kCuda);
  EXPECT_THAT(metrics_.Text(),
              AllOf(HasSubstr(R"(normd_device_jobs_total{device="cuda"} 1)"), HasSubstr("normd_batch_size_sum 1")));
}

TEST_F(OpenBackendTest, EveryGpuThatIsAskedForIsUsed) {
  const OpenedBackend opened = Open({"--cuda_device=0,1"});
  EXPECT_THAT(asked_, ElementsAre(0, 1));
  EXPECT_THAT(opened.cuda_devices, ElementsAre(0, 1));
  ASSERT_THAT(opened.gpus, SizeIs(2));
  EXPECT_THAT(opened.scheduler->Calibration(),
              AllOf(StartsWith("cpu "), HasSubstr("; cuda:0 "), HasSubstr("; cuda:1 ")));
  for (const size_t gpu : {0u, 1u}) {
    EXPECT_EQ(opened.gpus[gpu]->memory_space(), CudaSpace(static_cast<int>(gpu)));
    const size_t measured[] = {Launches(opened, 0), Launches(opened, 1)};
    EXPECT_EQ(Run(opened, Device::kAuto, CudaSpace(static_cast<int>(gpu))).device, Device::kCuda);
    EXPECT_EQ(Launches(opened, gpu), measured[gpu] + 1);
    EXPECT_EQ(Launches(opened, 1 - gpu), measured[1 - gpu]);
  }
}

TEST_F(OpenBackendTest, OneGpuOfTwoThatFailsIsListedWithItsReasonAndTheOtherIsUsed) {
  for (const bool is_missing : {true, false}) {
    SCOPED_TRACE(is_missing ? "missing" : "broken");
    missing_ = is_missing ? std::set<int>{0} : std::set<int>();
    broken_ = is_missing ? std::set<int>() : std::set<int>{0};
    asked_.clear();
    const OpenedBackend opened = Open({"--cuda_device=0,1"});
    EXPECT_THAT(asked_, ElementsAre(0, 1));
    EXPECT_THAT(opened.cuda_devices, ElementsAre(1));
    ASSERT_THAT(opened.gpus, SizeIs(1));
    EXPECT_EQ(opened.gpus[0]->memory_space(), CudaSpace(1));
    EXPECT_THAT(opened.scheduler->Calibration(), AllOf(HasSubstr("; cuda:1 "), Not(HasSubstr("cuda:0"))));
    EXPECT_EQ(Run(opened, Device::kCuda).device, Device::kCuda);
    // The list is the driver's: neither of them is in it where there is none.
    for (const DeviceInfo& device : opened.devices) {
      if (device.name == "cuda:1") {
        EXPECT_TRUE(device.usable) << device.detail;
      }
      if (device.name != "cuda:0") continue;
      EXPECT_FALSE(device.usable);
      EXPECT_THAT(device.detail, HasSubstr(is_missing ? "the slot is empty" : "an illegal instruction"));
    }
  }
}

TEST_F(OpenBackendTest, AGpuThatFailsItsFirstWorkIsNotUsed) {
  broken_ = {0};
  const OpenedBackend opened = Open({});
  EXPECT_THAT(opened.gpus, IsEmpty());
  EXPECT_THAT(opened.cuda_devices, IsEmpty());
  EXPECT_FALSE(opened.devices.at(1).usable);
  EXPECT_THAT(opened.devices.at(1).detail, HasSubstr("an illegal instruction"));
  EXPECT_EQ(Run(opened, Device::kAuto).device, Device::kCpu);
}

}  // namespace
}  // namespace normd
