// The control groups of this process, and the resources that they and its CPU affinity allow it to use. Reads files of
// /proc and /sys/fs/cgroup, of version 1 and of version 2.
// In the path: at the start only; the defaults of threads and queues, and the warning about memory, come from here.
// Threads: pure functions of those files.
#ifndef NORMD_SERVER_BASE_CGROUP_H_
#define NORMD_SERVER_BASE_CGROUP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace normd {

// The folder of the files `cgroup` and `mountinfo` of this process.
inline constexpr std::string_view kOwnProc = "/proc/self";

// The folders of the control group that `controller` ("cpu", "memory") has this process in, and of its parents, as far
// as they are mounted here: a limit may stand in any of them.
std::vector<std::string> CgroupFolders(std::string_view controller, std::string_view proc = kOwnProc);

// The smallest CPU quota of those groups, in CPUs: 1.5 for 150 ms in each 100 ms. nullopt: there is none.
std::optional<double> CpuQuota(std::string_view proc = kOwnProc);

// How many threads of this process can run at one time: the CPUs of its affinity mask, or the quota rounded up where
// that is less; at least 1. std::thread::hardware_concurrency() knows of neither.
int AllowedCpus(std::string_view proc = kOwnProc);

// The smallest memory limit of those groups; nullopt: there is none.
std::optional<int64_t> CgroupMemoryLimit(std::string_view proc = kOwnProc);

}  // namespace normd

#endif  // NORMD_SERVER_BASE_CGROUP_H_
