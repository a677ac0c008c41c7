#include "kernels/cuda/nearest_jobs.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/status.h"

namespace normd::cuda {
namespace {

// True if the kernels' w is the sum of weight and weight_offset, rounded, and that rounding is no part of a bound.
bool RoundsWeights(const Job& job) {
  const bool needs_rest = job.plan->cast_order == CastOrder::kCastThenAffine || job.plan->dtype == DType::kF64;
  return needs_rest && job.parameters != nullptr && !job.parameters->host().weight_rest.empty();
}

// True if scale * r may be beyond the range of f64, although x + scale * r is not.
bool MayLoseResidual(const Job& job) {
  if (!job.residual.present() || job.residual_rounding != ResidualRounding::kKeepWide) return false;
  return job.plan->dtype == DType::kF64 &&
         std::abs(job.residual_scale) > (job.residual.dtype == DType::kF64 ? 1 : 0x1p+895);
}

}  // namespace

bool RunsOnHost(const Job& job) {
  const NormPlan& plan = *job.plan;
  const bool has_bound = plan.power_groups == 0 && plan.statistic != Statistic::kPowerSum;
  return !has_bound || RoundsWeights(job) || MayLoseResidual(job);
}

void* HostJob::Room(int64_t size_bytes) {
  memory_.push_back(std::make_unique_for_overwrite<char[]>(static_cast<size_t>(std::max<int64_t>(1, size_bytes))));
  return memory_.back().get();
}

absl::Status HostJob::Copied(const void* from, int64_t size_bytes, const void** to) {
  void* const memory = Room(size_bytes);
  *to = memory;
  NORMD_CUDA_RETURN_STATUS(
      cudaMemcpyAsync(memory, from, static_cast<size_t>(size_bytes), cudaMemcpyDeviceToHost, stream_),
      "cudaMemcpy from the device");
  return StatusOf(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

absl::Status HostJob::ToDevice(void* to, const void* from, int64_t size_bytes) {
  return StatusOf(cudaMemcpyAsync(to, from, static_cast<size_t>(size_bytes), cudaMemcpyHostToDevice, stream_),
                  "cudaMemcpy to the device");
}

absl::Status HostJob::Gather(const Job& job, const DeviceJob& device, bool is_written) {
  const int64_t size_bytes = job.plan->elements * SizeOf(job.plan->dtype);
  job_ = job;
  job_.x_space = job_.y_space = job_.h_space = {};
  job_.residual.space = {};
  if (job.x_buffer != nullptr || job.x == nullptr) {
    void* const buffer = job.x_buffer == nullptr || is_written ? Room(size_bytes) : job.x_buffer;
    GatherSegments(job.x_segments, 0, size_bytes, static_cast<std::byte*>(buffer));
    job_.x = buffer;
    job_.x_buffer = nullptr;
    job_.x_segments = {};
  } else if (!job.x_space.is_host() || (is_written && job.x == job.y)) {
    const void* const there = device.x == nullptr ? job.x : device.x;
    if (absl::Status status = Copied(there, size_bytes, &job_.x); !status.ok()) return status;
  }
  if (job.residual.present() && !job.residual.space.is_host()) {
    const int64_t residual_bytes = job.plan->elements * SizeOf(job.residual.dtype);
    const void* residual = nullptr;
    if (absl::Status status = Copied(job.residual.data, residual_bytes, &residual); !status.ok()) return status;
    job_.residual.data = residual;
  }
  if (job.y != nullptr && !job.y_space.is_host()) {
    device_y_ = job.y;
    job_.y = Room(size_bytes);
  }
  if (job.h != nullptr && !job.h_space.is_host()) {
    device_h_ = job.h;
    job_.h = Room(size_bytes);
  }
  return absl::OkStatus();
}

absl::Status HostJob::PutBack() {
  const int64_t size_bytes = job_.plan->elements * SizeOf(job_.plan->dtype);
  if (device_y_ != nullptr && job_.y != nullptr) {
    if (absl::Status status = ToDevice(device_y_, job_.y, size_bytes); !status.ok()) return status;
  }
  if (device_h_ != nullptr && job_.h != nullptr) {
    if (absl::Status status = ToDevice(device_h_, job_.h, size_bytes); !status.ok()) return status;
  }
  return StatusOf(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

absl::Status HostJob::PutBack(absl::Span<const int64_t> elements) {
  if (device_y_ == nullptr || elements.empty()) return absl::OkStatus();
  const int64_t element_bytes = SizeOf(job_.plan->dtype);
  for (const int64_t i : elements) {
    char* const to = static_cast<char*>(device_y_) + i * element_bytes;
    const char* const from = static_cast<const char*>(job_.y) + i * element_bytes;
    if (absl::Status status = ToDevice(to, from, element_bytes); !status.ok()) return status;
  }
  return StatusOf(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

LeftResults::LeftResults(const LeftToHost& left, int64_t element_count)
    : all(left.count > static_cast<unsigned long long>(LeftToHost::kMost)) {
  if (all) return;
  for (int64_t i = 0; i < static_cast<int64_t>(left.count); ++i) {
    const int64_t item = left.items[i];
    item < element_count ? elements.push_back(item) : groups.push_back(item - element_count);
  }
}

}  // namespace normd::cuda
