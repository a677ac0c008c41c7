#include "server/base/cgroup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace normd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A folder that stands for /proc/self, and hierarchies of control groups beside it.
class CgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/normd-cgroup-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    Write("proc/cgroup", "");
    Write("proc/mountinfo", "24 1 0:22 / / rw,relatime - ext4 /dev/root rw\n");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& path, const std::string& text, bool append = false) {
    const std::filesystem::path whole = folder_ + "/" + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole, append ? std::ios::app : std::ios::trunc) << text;
  }
  // Mounts the group `root` of a hierarchy at `point`.
  void Mount(const std::string& root, const std::string& point, const std::string& kind) {
    Write("proc/mountinfo", "31 24 0:27 " + root + " " + folder_ + "/" + point + " rw shared:9 - " + kind + "\n", true);
  }
  void Join(const std::string& line) { Write("proc/cgroup", line + "\n", true); }
  std::string proc() const { return folder_ + "/proc"; }

  std::string folder_;
};

TEST_F(CgroupTest, WithoutGroupsThereIsNoLimit) {
  EXPECT_THAT(CgroupFolders("cpu", proc()), IsEmpty());
  EXPECT_EQ(CpuQuota(proc()), std::nullopt);
  EXPECT_EQ(CgroupMemoryLimit(proc()), std::nullopt);
  EXPECT_EQ(CpuQuota(folder_ + "/nowhere"), std::nullopt);
}

TEST_F(CgroupTest, TheSmallestQuotaOfVersion2AndItsParentsCounts) {
  Mount("/", "v2", "cgroup2 cgroup2 rw,nsdelegate");
  Join("0::/pods/one/box");
  Write("v2/cgroup.procs", "");
  Write("v2/pods/cpu.max", "250000 100000\n");
  Write("v2/pods/one/cpu.max", "50000 25000\n");
  Write("v2/pods/one/box/cpu.max", "max 100000\n");
  EXPECT_THAT(CgroupFolders("cpu", proc()), ElementsAre(folder_ + "/v2/pods/one/box", folder_ + "/v2/pods/one",
                                                        folder_ + "/v2/pods", folder_ + "/v2"));
  EXPECT_EQ(CpuQuota(proc()), 2.0);
  Write("v2/pods/one/box/cpu.max", "150000 100000\n");
  EXPECT_EQ(CpuQuota(proc()), 1.5);
}

TEST_F(CgroupTest, VersionOneHasItsQuotaInTwoFiles) {
  Mount("/", "v1\\040cpu", "cgroup cgroup rw,cpu,cpuacct");
  Mount("/", "set", "cgroup cgroup rw,cpuset");
  Join("5:cpuset:/a");
  Join("4:cpu,cpuacct:/a/b");
  Write("set/a/cpu.cfs_quota_us", "1\n");
  Write("set/a/cpu.cfs_period_us", "100\n");
  Write("v1 cpu/a/cpu.cfs_quota_us", "100000\n");
  Write("v1 cpu/a/cpu.cfs_period_us", "100000\n");
  Write("v1 cpu/a/b/cpu.cfs_quota_us", "-1\n");
  Write("v1 cpu/a/b/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CpuQuota(proc()), 1.0);
  EXPECT_EQ(AllowedCpus(proc()), 1);
}

// Without a namespace of its own a container sees the whole path of its group, and its mount begins at the group.
TEST_F(CgroupTest, AMountThatBeginsAtTheGroupIsTheGroup) {
  Mount("/docker/box", "v1", "cgroup cgroup rw,cpu");
  Join("2:cpu:/docker/box");
  Write("v1/cpu.cfs_quota_us", "20000\n");
  Write("v1/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CpuQuota(proc()), 0.2);
  EXPECT_EQ(AllowedCpus(proc()), 1);
}

TEST_F(CgroupTest, AGroupOfAnotherNamespaceIsSoughtAtTheMount) {
  Mount("/docker/box", "v2", "cgroup2 cgroup2 rw");
  Join("0::/../docker/boxes");
  Write("v2/cpu.max", "100000 100000\n");
  EXPECT_EQ(CpuQuota(proc()), 1.0);
}

TEST_F(CgroupTest, TheSmallestMemoryLimitOfBothVersionsCounts) {
  Mount("/", "v1", "cgroup cgroup rw,memory");
  Mount("/", "v2", "cgroup2 cgroup2 rw");
  Join("4:memory:/a/b");
  Join("0::/a");
  Write("v1/memory.limit_in_bytes", "9223372036854771712\n");
  Write("v2/a/memory.max", "max\n");
  EXPECT_EQ(CgroupMemoryLimit(proc()), std::nullopt);
  Write("v1/a/memory.limit_in_bytes", "2147483648\n");
  EXPECT_EQ(CgroupMemoryLimit(proc()), int64_t{2} << 30);
  Write("v2/a/memory.max", "1073741824\n");
  EXPECT_EQ(CgroupMemoryLimit(proc()), int64_t{1} << 30);
}

TEST_F(CgroupTest, TheAffinityMaskCounts) {
  const auto allowed = [this](bool one) {
    int cpus = 0;
    std::thread([&] {
      cpu_set_t set;
      ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
      int first = 0;
      while (!CPU_ISSET(first, &set)) ++first;
      cpu_set_t only;
      CPU_ZERO(&only);
      CPU_SET(first, &only);
      if (one) {
        ASSERT_EQ(sched_setaffinity(0, sizeof(only), &only), 0);
      }
      cpus = AllowedCpus(proc());
      if (!one) {
        EXPECT_EQ(cpus, CPU_COUNT(&set));
      }
    }).join();
    return cpus;
  };
  EXPECT_GE(allowed(false), 1);
  EXPECT_EQ(allowed(true), 1);
}

}  // namespace
}  // namespace normd
