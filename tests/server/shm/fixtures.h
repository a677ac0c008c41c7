// Memory objects as clients make them, and what a leak is seen by.
#ifndef NORMD_TESTS_SERVER_SHM_FIXTURES_H_
#define NORMD_TESTS_SERVER_SHM_FIXTURES_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>

#include "server/base/unique_fd.h"

namespace normd {

inline constexpr int64_t kPage = 4096;

// A memfd of `size_bytes`, with `seals` if any.
inline UniqueFd MakeMemory(int64_t size_bytes, int seals = 0) {
  UniqueFd memory(memfd_create("normd-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_TRUE(memory.valid());
  EXPECT_EQ(ftruncate(memory.get(), size_bytes), 0);
  EXPECT_EQ(fcntl(memory.get(), F_ADD_SEALS, seals), 0);
  return memory;
}

inline UniqueFd MakeSealedMemory(int64_t size_bytes) { return MakeMemory(size_bytes, F_SEAL_SHRINK); }

// Another descriptor of the same object, for the test to keep.
inline UniqueFd Duplicate(const UniqueFd& fd) { return UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)); }

// A byte as memory has it now, whatever the compiler believes.
inline int Load(const std::byte* at) { return static_cast<int>(*static_cast<const volatile std::byte*>(at)); }

inline int64_t CountDescriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return std::distance(entries, std::filesystem::directory_iterator());
}

// Mappings of this process whose line in /proc/self/maps has `text`.
inline int CountMappings(std::string_view text) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(text) != std::string::npos ? 1 : 0;
  return count;
}

// KiB of the mapping that begins at `base` for which this process has page-table entries.
inline int64_t MappedPagesKib(const void* base) {
  std::ifstream maps("/proc/self/smaps");
  std::ostringstream begin;
  begin << std::hex << reinterpret_cast<uintptr_t>(base) << '-';
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    found = found || line.starts_with(begin.str());
    if (found && line.starts_with("Rss:")) return std::stoll(line.substr(4));
  }
  return -1;
}

}  // namespace normd

#endif  // NORMD_TESTS_SERVER_SHM_FIXTURES_H_
