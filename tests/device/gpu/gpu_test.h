// What tests of the CUDA backend on a real GPU share. Where there is none every test is skipped and says why: CTest
// lists it as skipped, never as passed. Device memory that a test takes is freed with it.
// Threads: one.
#ifndef NORMD_TESTS_DEVICE_GPU_GPU_TEST_H_
#define NORMD_TESTS_DEVICE_GPU_GPU_TEST_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/backend.h"
#include "tests/device/beside_cpu.h"
#include "tests/kernels/case_runs.h"

namespace normd {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(CudaBackendOptions());
    if (!backend.ok()) GTEST_SKIP() << "NOT RUN: no usable CUDA device: " << backend.status().message();
    cuda_ = *std::move(backend);
  }

  // The bytes of the CPU backend, of every case, but for what beside_cpu.h says of FAST.
  void ExpectBytesOfTheCpu(const std::vector<Case>& all, int misalignment = 0) {
    for (const Case& c : all) {
      const CaseData data = DataOf(c);
      EXPECT_EQ(WrongBesideCpu(*cpu_, c, data, Execute(*cuda_, c, data, misalignment)), "") << c.Name();
    }
  }

  const std::unique_ptr<Backend> cpu_ = InlineCpuBackend();
  std::unique_ptr<Backend> cuda_;  // null: skipped
};

// Device memory of one tensor, `misalignment` bytes past an aligned address. It holds what it should when it has been
// made: neither cudaMemset nor cudaMemcpy from pageable memory has to be over when it returns, and the backend's
// streams do not wait for the one that they run on.
class DeviceBytes {
 public:
  DeviceBytes(size_t size, size_t misalignment) : size_(size), misalignment_(misalignment) {
    EXPECT_EQ(cudaMalloc(&memory_, size + misalignment + 1), cudaSuccess);
    EXPECT_EQ(cudaMemset(memory_, 0xA5, size + misalignment + 1), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
  DeviceBytes(const std::string& content, size_t misalignment) : DeviceBytes(content.size(), misalignment) {
    EXPECT_EQ(cudaMemcpy(data(), content.data(), content.size(), cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
  ~DeviceBytes() { cudaFree(memory_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  void* data() const { return static_cast<char*>(memory_) + misalignment_; }
  std::string Content() const { return Read(data(), size_); }
  // What lies before and behind the tensor is as it was.
  bool SurroundingsAreIntact() const {
    const std::string before = Read(memory_, misalignment_);
    const std::string behind = Read(static_cast<char*>(data()) + size_, 1);
    return before == std::string(misalignment_, '\xA5') && behind == "\xA5";
  }

 private:
  static std::string Read(const void* from, size_t size) {
    std::string content(size, '\0');
    EXPECT_EQ(cudaMemcpy(content.data(), from, size, cudaMemcpyDeviceToHost), cudaSuccess);
    return content;
  }

  const size_t size_, misalignment_;
  void* memory_ = nullptr;
};

}  // namespace normd

#endif  // NORMD_TESTS_DEVICE_GPU_GPU_TEST_H_
