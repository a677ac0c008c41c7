// The host's side of jobs to the nearest value: which jobs and which results the kernels can do, and in host memory the
// tensors of a job, or the elements of one group, for those that they cannot.
// In the path: job_list.cc, which runs the kernels, asks NearestHost (kernels/nearest.h) for the rest by way of this
// file. Ownership: the classes own copies of what they had to copy and borrow the rest. Thread-compatible.
#ifndef NORMD_KERNELS_CUDA_NEAREST_JOBS_H_
#define NORMD_KERNELS_CUDA_NEAREST_JOBS_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/nearest.h"
#include "kernels/cuda/run.h"
#include "kernels/nearest.h"

namespace normd::cuda {

// True if a job to the nearest value runs on the host alone: PowerNorm and LpNorm of order 3 and more, whose sums the
// kernels have no bound of; w + offset where its rounding counts; and scale * residual that may be beyond the range of
// f64. REQUIRES: GivesNearest(job).
bool RunsOnHost(const Job& job);

// A whole job on the host, whose tensors may lie in device memory: part by part, each of adjacent k0, so that it takes
// host memory for a few MiB or for one k0. A plan with a permutation is one part.
class HostJob {
 public:
  // x and the residual are those of `device` where they are set, because an output may have replaced those of the job.
  HostJob(const Job& job, const DeviceJob& device, cudaStream_t stream);

  // Runs the job and copies y and h to where they belong. Waits for the stream.
  absl::Status Run(NearestHost* host);

 private:
  absl::Status RunPart(int64_t first, int64_t count, NearestHost* host);
  // The bytes from `offset` on of a tensor, which are copied if it lies on the device.
  absl::Status Input(const void* tensor, bool is_there, int64_t offset, int64_t size_bytes, const void** input);
  void* Output(void* tensor, bool is_there, int64_t offset, int64_t size_bytes);
  void* Room(int64_t size_bytes);

  const cudaStream_t stream_;
  Job job_;
  bool x_is_there_ = false, residual_is_there_ = false, y_is_there_ = false, h_is_there_ = false;  // on the device
  std::vector<std::unique_ptr<char[]>> memory_;  // of the part that runs
};

// What the kernels left of one group.
struct LeftOfGroup {
  std::vector<int64_t> elements;  // indices of GroupOnHost
  bool statistics = false;
};
// What they left of a job, by group.
struct LeftResults {
  bool all = false;  // too many to be listed
  std::map<int64_t, LeftOfGroup> groups;

  LeftResults(const LeftToHost& left, const NormPlan& plan);
  bool empty() const { return !all && groups.empty(); }
};

// The bytes of device memory that a GroupReader of the plan needs as scratch; 0: none.
int64_t GroupScratchBytes(const NormPlan& plan);

// Single groups of a job whose x, and residual, are on the device; takes host memory for one group at a time.
class GroupReader {
 public:
  // `device` has x, which is not y. `scratch` has GroupScratchBytes().
  GroupReader(const DeviceLimits& limits, const Job& job, const DeviceJob& device, void* scratch, cudaStream_t stream);

  // Brings the elements of `group` to the host; they are replaced by the next call's.
  absl::Status Bring(int64_t group);
  const GroupOnHost& group() const { return group_; }
  // Copies elements of group().y to the job's y, wherever that is.
  absl::Status PutBack(const std::vector<int64_t>& elements);

 private:
  absl::Status BringTensor(const Elements& tensor, char* to);

  const DeviceLimits& limits_;
  const Job& job_;
  const NormPlan& plan_;
  const DeviceJob& device_;
  void* const scratch_;
  const cudaStream_t stream_;
  std::unique_ptr<char[]> x_, residual_, y_;  // y_ is touched where elements are decided
  GroupOnHost group_;
};

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_NEAREST_JOBS_H_
