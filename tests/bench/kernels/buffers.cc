#include "tests/bench/kernels/buffers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/cpu/kernels.h"
#include "tests/bench/or_die.h"
#include "tests/support/case.h"

namespace normd::bench {

namespace {

constexpr int64_t kPage = 4096;

constexpr int64_t UpToPage(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Prime, so that rows differ.
constexpr int64_t kPattern = 99991;

double ValueOf(Fill fill, int64_t i) {
  if (fill == Fill::kZeros) return 0;
  if (fill == Fill::kConstant) return 0.75;
  return fill == Fill::kSteps ? static_cast<double>(i % 5 - 2) : static_cast<double>(1 - i % 2 * 2);
}

std::string PatternOf(Fill fill, DType dtype) {
  if (fill == Fill::kNormal) return MakeValues(Data::kNormal, dtype, kPattern, 1);
  constexpr int64_t kCount = 99990;  // even, and a multiple of 5
  std::string pattern(static_cast<size_t>(kCount * SizeOf(dtype)), 0);
  for (int64_t i = 0; i < kCount; ++i) {
    const double value = ValueOf(fill, i);
    cpu::ConvertFromF64(&value, 1, dtype, pattern.data() + i * SizeOf(dtype));
  }
  return pattern;
}

}  // namespace

Buffers::Buffers(int64_t bytes) : size_(kXOffset + UpToPage(bytes) + 3 * kPage) {
  file_ = memfd_create("normd-bench", 0);  // not closed on exec: a peer inherits it
  if (file_ < 0 || ftruncate(file_, size_) != 0) Die("no shared memory");
  void* const mapped =
      mmap(nullptr, static_cast<size_t>(size_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file_, 0);
  if (mapped == MAP_FAILED) Die("no memory for " + std::to_string(size_) + " bytes");
  base_ = static_cast<std::byte*>(mapped);
  std::memset(base_, 0, static_cast<size_t>(size_));
  for (int64_t i = 0; i < kParameters; ++i) {
    const float wave = static_cast<float>(i % 17) / 16;
    parameters(0)[i] = 0.5F + wave;  // weight
    parameters(1)[i] = wave - 0.5F;  // bias
    parameters(2)[i] = 1 + wave;     // mean
    parameters(3)[i] = 8 + wave;     // variance: x is about normal(1, 3)
  }
}

Buffers::~Buffers() {
  munmap(base_, static_cast<size_t>(size_));
  close(file_);
}

void Buffers::Lay(const Workload& workload) {
  const int64_t bytes = workload.Bytes() / 2;
  y_offset_ = kXOffset + UpToPage(bytes) + kYPhase;
  if (y_offset_ + bytes > size_) Die("buffers too small for " + workload.Name());
  if (filled_dtype_ == workload.dtype && fill_ == workload.fill && filled_bytes_ >= bytes) return;
  const std::string pattern = PatternOf(workload.fill, workload.dtype);
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(pattern.size())) {
    std::memcpy(x() + at, pattern.data(), std::min(pattern.size(), static_cast<size_t>(bytes - at)));
  }
  filled_dtype_ = workload.dtype;
  fill_ = workload.fill;
  filled_bytes_ = bytes;
}

}  // namespace normd::bench
