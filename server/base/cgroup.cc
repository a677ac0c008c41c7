#include "server/base/cgroup.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "kernels/base/strings.h"

namespace normd {
namespace {

// One line of mountinfo that mounts a hierarchy of control groups.
struct CgroupMount {
  std::string root;   // the group that is mounted
  std::string point;  // where
};

bool HasItem(absl::string_view list, std::string_view item) {
  const std::vector<std::string> items = absl::StrSplit(list, ',');
  return std::find(items.begin(), items.end(), item) != items.end();
}

// mountinfo writes a blank as "\040", and other characters likewise.
std::string Unescaped(absl::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto octal = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '7'; };
    if (text[i] == '\\' && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
      plain.push_back(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0')));
      i += 3;
    } else {
      plain.push_back(text[i]);
    }
  }
  return plain;
}

std::string Join(std::string_view folder, std::string_view name) { return Concat(folder, "/", name); }

// The mounts of the hierarchy of version 2, or of that of version 1 that has `controller`.
std::vector<CgroupMount> Mounts(std::string_view proc, std::string_view controller, bool v2) {
  std::vector<CgroupMount> mounts;
  std::ifstream file(Join(proc, "mountinfo"));
  for (std::string line; std::getline(file, line);) {
    // 36 35 98:0 /root /point rw,noatime shared:1 - cgroup cgroup rw,cpu,cpuacct
    const std::pair<absl::string_view, absl::string_view> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<absl::string_view> place = absl::StrSplit(halves.first, ' ');
    const std::vector<absl::string_view> kind = absl::StrSplit(halves.second, ' ');
    if (place.size() < 5 || kind.size() < 3) continue;
    const bool wanted = v2 ? kind[0] == "cgroup2" : kind[0] == "cgroup" && HasItem(kind[2], controller);
    if (wanted) mounts.push_back({.root = Unescaped(place[3]), .point = Unescaped(place[4])});
  }
  return mounts;
}

// The mounted folders of `group` and of its parents. A group outside of the mount is one of another namespace: only the
// mounted part is then visible.
void AddFolders(const CgroupMount& mount, std::string group, std::vector<std::string>* folders) {
  const std::string root = mount.root == "/" ? "" : mount.root;
  const bool inside = group.starts_with(root) && (group.size() == root.size() || group[root.size()] == '/');
  group = inside ? group.substr(root.size()) : "";
  while (group.size() > 1) {
    folders->push_back(mount.point + group);
    group.resize(group.rfind('/'));
  }
  folders->push_back(mount.point);
}

// The numbers at the beginning of a file; "max", or any other text that is not a number, ends them.
std::vector<int64_t> Numbers(const std::string& path) {
  std::vector<int64_t> numbers;
  std::ifstream file(path);
  for (int64_t number = 0; file >> number;) numbers.push_back(number);
  return numbers;
}

// The quota of one group; nullopt where it has none.
std::optional<double> QuotaOf(const std::string& folder) {
  std::vector<int64_t> both = Numbers(Join(folder, "cpu.max"));  // "quota period", of version 2
  if (both.empty()) {
    both = Numbers(Join(folder, "cpu.cfs_quota_us"));  // of version 1; -1: none
    const std::vector<int64_t> period = Numbers(Join(folder, "cpu.cfs_period_us"));
    both.insert(both.end(), period.begin(), period.end());
  }
  if (both.size() != 2 || both[0] <= 0 || both[1] <= 0) return std::nullopt;
  return static_cast<double>(both[0]) / static_cast<double>(both[1]);
}

// The CPUs of the affinity mask. The kernel refuses a set that is smaller than its own.
int AffinityCpus() {
  constexpr int kMostCpus = 1 << 16;
  for (int cpus = 1024; cpus <= kMostCpus; cpus *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cpus), [](cpu_set_t* s) { CPU_FREE(s); });
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    if (sched_getaffinity(0, bytes, set.get()) == 0) return CPU_COUNT_S(bytes, set.get());
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

std::vector<std::string> CgroupFolders(std::string_view controller, std::string_view proc) {
  std::vector<std::string> folders;
  std::ifstream file(Join(proc, "cgroup"));
  for (std::string line; std::getline(file, line);) {
    // 4:cpu,cpuacct:/group of version 1, or 0::/group of version 2
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool v2 = parts[0] == "0" && parts[1].empty();
    if (!v2 && !HasItem(parts[1], controller)) continue;
    for (const CgroupMount& mount : Mounts(proc, controller, v2)) AddFolders(mount, parts[2], &folders);
  }
  return folders;
}

std::optional<double> CpuQuota(std::string_view proc) {
  std::optional<double> least;
  for (const std::string& folder : CgroupFolders("cpu", proc)) {
    const std::optional<double> quota = QuotaOf(folder);
    if (quota.has_value()) least = std::min(least.value_or(*quota), *quota);
  }
  return least;
}

int AllowedCpus(std::string_view proc) {
  const int cpus = std::max(1, AffinityCpus());
  const std::optional<double> quota = CpuQuota(proc);
  if (!quota.has_value() || *quota >= cpus) return cpus;
  return std::max(1, static_cast<int>(std::ceil(*quota)));
}

std::optional<int64_t> CgroupMemoryLimit(std::string_view proc) {
  // Version 1 has no word for "no limit": it shows the largest multiple of a page.
  constexpr int64_t kNoLimit = int64_t{1} << 62;
  std::optional<int64_t> least;
  for (const std::string& folder : CgroupFolders("memory", proc)) {
    for (const char* name : {"memory.max", "memory.limit_in_bytes"}) {
      const std::vector<int64_t> limit = Numbers(Join(folder, name));
      if (limit.size() == 1 && limit[0] < kNoLimit) least = std::min(least.value_or(limit[0]), limit[0]);
    }
  }
  return least;
}

}  // namespace normd
