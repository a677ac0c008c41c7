#include "kernels/cuda/nearest_jobs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "kernels/cuda/status.h"

namespace normd::cuda {
namespace {

// True if scale * r may be beyond the range of f64, although x + scale * r is not.
bool MayLoseResidual(const Job& job) {
  if (!job.residual.present() || job.residual_rounding != ResidualRounding::kKeepWide) return false;
  return job.plan->dtype == DType::kF64 &&
         std::abs(job.residual_scale) > (job.residual.dtype == DType::kF64 ? 1 : 0x1p+895);
}

// Segments of a group that are shorter than this are put together on the device: a copy for each would take
// microseconds.
constexpr int64_t kShortSegmentBytes = 64 << 10;
constexpr int64_t kMostScratchBytes = 1 << 20;

bool IsContiguous(const NormPlan& plan) { return plan.reduce0 == 1 || plan.keep1 == 1; }

// The index in memory of the element (0, 0) of a group.
int64_t FirstOfGroup(const NormPlan& plan, int64_t group) {
  return group / plan.keep1 * plan.reduce0 * plan.keep1 * plan.reduce1 + group % plan.keep1 * plan.reduce1;
}
// The index in memory of an element that has index `element` in a group.
int64_t IndexOf(const NormPlan& plan, int64_t group, int64_t element) {
  return FirstOfGroup(plan, group) + element / plan.reduce1 * plan.keep1 * plan.reduce1 + element % plan.reduce1;
}

// The plan of `count` adjacent k0.
NormPlan PartOf(const NormPlan& plan, int64_t count) {
  if (count == plan.keep0) return plan;
  NormPlan part = plan;
  part.elements = plan.elements / plan.keep0 * count;
  part.keep0 = count;
  return part;
}

std::unique_ptr<char[]> Memory(int64_t size_bytes) {
  return std::make_unique_for_overwrite<char[]>(static_cast<size_t>(std::max<int64_t>(1, size_bytes)));
}
absl::Status ToHost(void* to, const void* from, int64_t size_bytes, cudaStream_t stream) {
  return StatusOf(cudaMemcpyAsync(to, from, static_cast<size_t>(size_bytes), cudaMemcpyDeviceToHost, stream),
                  "cudaMemcpy from the device");
}
absl::Status ToDevice(void* to, const void* from, int64_t size_bytes, cudaStream_t stream) {
  return StatusOf(cudaMemcpyAsync(to, from, static_cast<size_t>(size_bytes), cudaMemcpyHostToDevice, stream),
                  "cudaMemcpy to the device");
}

}  // namespace

bool RunsOnHost(const Job& job) {
  const NormPlan& plan = *job.plan;
  const bool has_bound = plan.power_groups == 0 && plan.statistic != Statistic::kPowerSum;
  return !has_bound || RoundsWeights(job) || MayLoseResidual(job);
}

HostJob::HostJob(const Job& job, const DeviceJob& device, cudaStream_t stream)
    : stream_(stream),
      job_(job),
      x_is_there_(device.x != nullptr || !job.x_space.is_host()),
      residual_is_there_(device.residual.data != nullptr || !job.residual.space.is_host()),
      y_is_there_(!job.y_space.is_host()),
      h_is_there_(!job.h_space.is_host()) {
  if (device.x != nullptr) job_.x = device.x;
  if (device.residual.data != nullptr) job_.residual.data = device.residual.data;
  job_.x_space = job_.y_space = job_.h_space = job_.residual.space = {};
  if (!job.residual.present()) job_.h = nullptr;  // which is not written then
}

absl::Status HostJob::Run(NearestHost* host) {
  constexpr int64_t kMostPartBytes = 8 << 20;
  const NormPlan& plan = *job_.plan;
  std::unique_ptr<char[]> gathered;
  if (job_.x == nullptr) {
    const int64_t size_bytes = plan.elements * SizeOf(plan.dtype);
    if (job_.x_buffer == nullptr) gathered = Memory(size_bytes);
    void* const buffer = job_.x_buffer == nullptr ? gathered.get() : job_.x_buffer;
    GatherSegments(job_.x_segments, 0, size_bytes, static_cast<std::byte*>(buffer));
    job_.x = buffer;
  }
  job_.x_buffer = nullptr;
  job_.x_segments = {};
  const bool copies = x_is_there_ || residual_is_there_ || y_is_there_ || h_is_there_;
  int64_t part = plan.keep0;
  if (copies && plan.permutation.empty()) {
    const int64_t bytes_of_k0 = std::max<int64_t>(1, plan.reduce0 * plan.keep1 * plan.reduce1 * SizeOf(plan.dtype));
    part = std::max<int64_t>(1, kMostPartBytes / bytes_of_k0);
  }
  for (int64_t first = 0; first < plan.keep0; first += part) {
    if (absl::Status status = RunPart(first, std::min(part, plan.keep0 - first), host); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status HostJob::RunPart(int64_t first, int64_t count, NearestHost* host) {
  memory_.clear();
  const NormPlan plan = PartOf(*job_.plan, count);
  const int64_t begin = plan.elements / count * first;
  const int64_t offset = begin * SizeOf(plan.dtype), size_bytes = plan.elements * SizeOf(plan.dtype);
  Job part = job_;
  part.plan = &plan;
  if (absl::Status status = Input(job_.x, x_is_there_, offset, size_bytes, &part.x); !status.ok()) return status;
  if (job_.residual.present()) {
    const int64_t bytes = SizeOf(job_.residual.dtype);
    const void* residual = nullptr;
    absl::Status status =
        Input(job_.residual.data, residual_is_there_, begin * bytes, plan.elements * bytes, &residual);
    if (!status.ok()) return status;
    part.residual.data = residual;
  }
  part.y = Output(job_.y, y_is_there_, offset, size_bytes);
  part.h = Output(job_.h, h_is_there_, offset, size_bytes);
  const int64_t group = first * plan.keep1, statistics_offset = group * SizeOf(plan.StatisticsDType());
  part.mean = Output(job_.mean, false, statistics_offset, 0);
  part.inverse_std = Output(job_.inverse_std, false, statistics_offset, 0);
  if (part.moments != nullptr) part.moments += group;
  host->Run(part);
  for (const auto& [to, from, is_there] : {std::tuple(job_.y, part.y, y_is_there_), {job_.h, part.h, h_is_there_}}) {
    if (to == nullptr || !is_there) continue;
    absl::Status status = ToDevice(static_cast<char*>(to) + offset, from, size_bytes, stream_);
    if (!status.ok()) return status;
  }
  return StatusOf(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

void* HostJob::Room(int64_t size_bytes) { return memory_.emplace_back(Memory(size_bytes)).get(); }

absl::Status HostJob::Input(const void* tensor, bool is_there, int64_t offset, int64_t size_bytes, const void** input) {
  const char* const from = static_cast<const char*>(tensor) + offset;
  *input = from;
  if (!is_there) return absl::OkStatus();
  void* const memory = Room(size_bytes);
  *input = memory;
  if (absl::Status status = ToHost(memory, from, size_bytes, stream_); !status.ok()) return status;
  return StatusOf(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

void* HostJob::Output(void* tensor, bool is_there, int64_t offset, int64_t size_bytes) {
  if (tensor == nullptr) return nullptr;
  return is_there ? Room(size_bytes) : static_cast<char*>(tensor) + offset;
}

LeftResults::LeftResults(const LeftToHost& left, const NormPlan& plan)
    : all(left.count > static_cast<unsigned long long>(LeftToHost::kMost)) {
  if (all) return;
  for (int64_t i = 0; i < static_cast<int64_t>(left.count); ++i) {
    const int64_t item = left.items[i];
    if (item >= plan.elements) {
      groups[item - plan.elements].statistics = true;
      continue;
    }
    const int64_t segment = item / plan.reduce1;
    const int64_t k0 = segment / plan.keep1 / plan.reduce0;
    const int64_t r0 = segment / plan.keep1 % plan.reduce0;
    groups[k0 * plan.keep1 + segment % plan.keep1].elements.push_back(r0 * plan.reduce1 + item % plan.reduce1);
  }
}

int64_t GroupScratchBytes(const NormPlan& plan) {
  constexpr int64_t kMostElementBytes = 8;  // the residual may be wider than x
  if (IsContiguous(plan) || plan.reduce1 * kMostElementBytes >= kShortSegmentBytes) return 0;
  return std::min(plan.reduce0 * plan.reduce1 * kMostElementBytes, kMostScratchBytes);
}

GroupReader::GroupReader(const DeviceLimits& limits, const Job& job, const DeviceJob& device, void* scratch,
                         cudaStream_t stream)
    : limits_(limits), job_(job), plan_(*job.plan), device_(device), scratch_(scratch), stream_(stream) {
  const int64_t elements = plan_.reduce0 * plan_.reduce1;
  x_ = Memory(elements * SizeOf(plan_.dtype));
  y_ = Memory(elements * SizeOf(plan_.dtype));
  group_.x = x_.get();
  group_.y = y_.get();
  if (device_.residual.data == nullptr) return;
  residual_ = Memory(elements * SizeOf(device_.residual.dtype));
  group_.residual = residual_.get();
}

absl::Status GroupReader::Bring(int64_t group) {
  group_.group = group;
  if (absl::Status status = BringTensor({.dtype = plan_.dtype, .data = device_.x}, x_.get()); !status.ok()) {
    return status;
  }
  if (residual_ == nullptr) return absl::OkStatus();
  return BringTensor(device_.residual, residual_.get());
}

absl::Status GroupReader::BringTensor(const Elements& tensor, char* to) {
  if (plan_.elements == 0) return absl::OkStatus();  // and `tensor` is null
  const int64_t element_bytes = SizeOf(tensor.dtype);
  const int64_t segment_bytes = plan_.reduce1 * element_bytes;
  const int64_t stride = plan_.keep1 * plan_.reduce1;  // elements
  const char* from = static_cast<const char*>(tensor.data) + FirstOfGroup(plan_, group_.group) * element_bytes;
  // The segments of a piece are copied together.
  int64_t piece = IsContiguous(plan_) ? plan_.reduce0 : 1;
  if (scratch_ != nullptr) piece = std::max<int64_t>(1, GroupScratchBytes(plan_) / segment_bytes);
  for (int64_t r0 = 0; r0 < plan_.reduce0; r0 += piece) {
    const int64_t segments = std::min(piece, plan_.reduce0 - r0);
    const void* source = from + r0 * stride * element_bytes;
    if (scratch_ != nullptr) {
      const PermuteWork work = {.rank = 2,
                                .extents = {segments, plan_.reduce1},
                                .strides = {stride, 1},
                                .elements = segments * plan_.reduce1,
                                .element_bytes = element_bytes};
      NORMD_CUDA_RETURN_STATUS(Permute(limits_, work, source, scratch_, stream_), "group");
      source = scratch_;
    }
    if (absl::Status status = ToHost(to + r0 * segment_bytes, source, segments * segment_bytes, stream_);
        !status.ok()) {
      return status;
    }
  }
  return StatusOf(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

absl::Status GroupReader::PutBack(const std::vector<int64_t>& elements) {
  if (elements.empty()) return absl::OkStatus();
  const int64_t element_bytes = SizeOf(plan_.dtype);
  for (const int64_t i : elements) {
    char* const to = static_cast<char*>(job_.y) + IndexOf(plan_, group_.group, i) * element_bytes;
    const char* const from = y_.get() + i * element_bytes;
    if (job_.y_space.is_host()) {
      std::memcpy(to, from, static_cast<size_t>(element_bytes));
    } else if (absl::Status status = ToDevice(to, from, element_bytes, stream_); !status.ok()) {
      return status;
    }
  }
  if (job_.y_space.is_host()) return absl::OkStatus();
  return StatusOf(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

}  // namespace normd::cuda
