// Handles that name nothing, on machines with and without CUDA: each is a status, and the next one is, too.
#include "kernels/cuda/ipc.h"

#include <gtest/gtest.h>

#include <string>

namespace normd {
namespace {

TEST(CudaIpcTest, AHandleThatNamesNothingIsRefusedEveryTime) {
  for (int i = 0; i < 3; ++i) {
    for (const size_t length : {size_t{0}, size_t{63}, size_t{64}, size_t{65}}) {
      const absl::StatusOr<CudaIpcMemory> opened = OpenCudaIpc(std::string(length, 'x'), 0);
      ASSERT_FALSE(opened.ok());
      EXPECT_FALSE(opened.status().message().empty());
    }
    EXPECT_FALSE(OpenCudaIpc(std::string(64, 'x'), -1).ok());
    EXPECT_FALSE(OpenCudaIpc(std::string(64, 'x'), 1 << 20).ok());
    EXPECT_FALSE(CloseCudaIpc(nullptr, 0).ok());
  }
}

TEST(CudaIpcTest, AHandleOfNoEventIsRefusedEveryTime) {
  for (int i = 0; i < 3; ++i) {
    for (const size_t length : {size_t{0}, size_t{63}, size_t{64}, size_t{65}}) {
      const absl::StatusOr<void*> opened = OpenCudaIpcEvent(std::string(length, 'x'), 0);
      ASSERT_FALSE(opened.ok());
      EXPECT_FALSE(opened.status().message().empty());
    }
    EXPECT_FALSE(OpenCudaIpcEvent(std::string(64, 'x'), -1).ok());
    EXPECT_FALSE(IsCudaIpcEventCompleted(nullptr, 0).ok());
    EXPECT_FALSE(CloseCudaIpcEvent(nullptr, 0).ok());
  }
}

}  // namespace
}  // namespace normd
