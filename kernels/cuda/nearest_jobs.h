// The host's side of jobs to the nearest value: which jobs and which results the kernels can do, and a job's tensors in
// host memory for those that they cannot.
// In the path: job_list.cc, which runs the kernels, asks NearestHost (kernels/nearest.h) for the rest by way of this
// file. Ownership: a HostJob owns copies of what it had to copy and borrows the rest. Thread-compatible.
#ifndef NORMD_KERNELS_CUDA_NEAREST_JOBS_H_
#define NORMD_KERNELS_CUDA_NEAREST_JOBS_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/nearest.h"
#include "kernels/cuda/run.h"
#include "kernels/nearest.h"

namespace normd::cuda {

// True if a job to the nearest value runs on the host alone: PowerNorm and LpNorm of order 3 and more, whose sums the
// kernels have no bound of; w + offset where its rounding counts; and scale * residual that may be beyond the range of
// f64. REQUIRES: GivesNearest(job).
bool RunsOnHost(const Job& job);

class HostJob {
 public:
  explicit HostJob(cudaStream_t stream) : stream_(stream) {}

  // Makes the tensors of `job` readable and y and h writable on the host. `device`, if its pointers are set, has x and
  // the residual on the device; `is_written`: y has been written, so that an x that is y is read there. Waits for the
  // stream where something is copied.
  absl::Status Gather(const Job& job, const DeviceJob& device, bool is_written);
  Job* job() { return &job_; }

  // Copies y and h, or the elements of y, to where they belong, unless that is the host.
  absl::Status PutBack();
  absl::Status PutBack(absl::Span<const int64_t> elements);

 private:
  absl::Status Copied(const void* from, int64_t size_bytes, const void** to);
  absl::Status ToDevice(void* to, const void* from, int64_t size_bytes);
  void* Room(int64_t size_bytes);

  const cudaStream_t stream_;
  Job job_;
  void* device_y_ = nullptr;  // null: on the host
  void* device_h_ = nullptr;
  std::vector<std::unique_ptr<char[]>> memory_;
};

// What the kernels left of a job, as indices of elements and of groups.
struct LeftResults {
  bool all = false;  // too many to be listed
  std::vector<int64_t> elements, groups;

  LeftResults(const LeftToHost& left, int64_t element_count);
  bool empty() const { return !all && elements.empty() && groups.empty(); }
};

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_NEAREST_JOBS_H_
