// The memory that all candidates work on: one shared file of anonymous memory, so that another process has the same
// pages. Pages of 4 KiB, as a server's buffers have; all touched once, before anything is timed.
// Threads: one.
#ifndef NORMD_TESTS_BENCH_KERNELS_BUFFERS_H_
#define NORMD_TESTS_BENCH_KERNELS_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/base/types.h"
#include "tests/bench/kernels/workload.h"

namespace normd::bench {

class Buffers {
 public:
  // Room for `bytes` of x and y together.
  explicit Buffers(int64_t bytes);
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  // Fills x of `workload` and says where its y begins. REQUIRES: it fits.
  void Lay(const Workload& workload);

  // Of the workload laid last; offsets count from the start of the file.
  std::byte* x() const { return base_ + kXOffset; }
  std::byte* y() const { return base_ + y_offset_; }
  int64_t y_offset() const { return y_offset_; }
  // f32 parameters, kParameters of each: weight, bias, mean, variance.
  float* parameters(int which) const { return reinterpret_cast<float*>(base_ + ParameterOffset(which)); }

  int file() const { return file_; }
  int64_t size() const { return size_; }

  static constexpr int64_t kParameters = 1 << 16;
  // No two arrays that are walked together are a multiple of 4 KiB apart: loads would wait for stores that they do not
  // depend on.
  static constexpr int64_t ParameterOffset(int which) { return which * (kParameters * 4 + 4096 + 832); }
  static constexpr int64_t kXOffset = 2 << 20;
  static constexpr int64_t kYPhase = 2048;  // of y, in 4 KiB

 private:
  int file_ = -1;
  int64_t size_ = 0;
  std::byte* base_ = nullptr;
  int64_t y_offset_ = 0;
  // What x was filled with.
  DType filled_dtype_ = DType::kF64;
  Fill fill_ = Fill::kNormal;
  int64_t filled_bytes_ = 0;
};

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_KERNELS_BUFFERS_H_
