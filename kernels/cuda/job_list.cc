#include "kernels/cuda/job_list.h"

#include <cstring>
#include <memory>
#include <utility>

#include "kernels/cuda/run.h"
#include "kernels/cuda/status.h"

namespace normd::cuda {
namespace {

// A layer's parameters in device memory: weight, bias, and both as f32, one behind the other.
class DeviceLayer {
 public:
  static absl::StatusOr<std::shared_ptr<const DeviceLayer>> Make(const Layer& layer,
                                                                 std::shared_ptr<DeviceTrash> trash) {
    auto made = std::make_shared<DeviceLayer>();
    const int64_t weight_bytes = Bytes(layer.weight);
    const int64_t bias_bytes = Bytes(layer.bias);
    const int64_t bytes = weight_bytes + bias_bytes + Bytes(layer.weight32) + Bytes(layer.bias32);
    void* memory = nullptr;
    NORMD_CUDA_RETURN_STATUS(cudaMalloc(&memory, static_cast<size_t>(bytes)), "cudaMalloc");
    made->memory_ = static_cast<char*>(memory);
    made->trash_ = std::move(trash);
    char* at = made->memory_;
    const auto put = [&](const auto& values, const auto** pointer) {
      if (values.empty()) return cudaSuccess;
      const auto size = static_cast<size_t>(Bytes(values));
      const cudaError_t error = cudaMemcpy(at, values.data(), size, cudaMemcpyHostToDevice);
      *pointer = reinterpret_cast<std::remove_reference_t<decltype(*pointer)>>(at);
      at += size;
      return error;
    };
    NORMD_CUDA_RETURN_STATUS(put(layer.weight, &made->parameters_.weight), "cudaMemcpy of parameters");
    NORMD_CUDA_RETURN_STATUS(put(layer.bias, &made->parameters_.bias), "cudaMemcpy of parameters");
    NORMD_CUDA_RETURN_STATUS(put(layer.weight32, &made->parameters_.weight32), "cudaMemcpy of parameters");
    NORMD_CUDA_RETURN_STATUS(put(layer.bias32, &made->parameters_.bias32), "cudaMemcpy of parameters");
    // The copies were made on another stream than the lanes', which do not wait for it.
    NORMD_CUDA_RETURN_STATUS(cudaStreamSynchronize(nullptr), "cudaMemcpy of parameters");
    made->parameters_.fit_f32 = layer.fit_f32;
    made->parameters_.equal_f32 = layer.equal_f32;
    return made;
  }
  DeviceLayer() = default;
  // On whatever thread gives a layer up: it is freed by a lane, because freeing waits for the device.
  ~DeviceLayer() {
    if (memory_ != nullptr) trash_->Add(memory_);
  }
  DeviceLayer(const DeviceLayer&) = delete;
  DeviceLayer& operator=(const DeviceLayer&) = delete;

  const Parameters& parameters() const { return parameters_; }

 private:
  template <typename Real>
  static int64_t Bytes(const std::vector<Real>& values) {
    return static_cast<int64_t>(values.size() * sizeof(Real));
  }

  char* memory_ = nullptr;
  std::shared_ptr<DeviceTrash> trash_;
  Parameters parameters_;
};

class JobList {
 public:
  JobList(const DeviceLimits& limits, const std::vector<Job>& jobs, LaneMemory* lane)
      : limits_(limits), jobs_(jobs), lane_(lane), device_jobs_(jobs.size()) {}

  absl::Status Run() {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (absl::Status status = LayOut(jobs_[i], &device_jobs_[i]); !status.ok()) return status;
    }
    absl::StatusOr<void*> memory = lane_->arena.Take(in_.size_bytes() + out_.size_bytes());
    if (!memory.ok()) return memory.status();
    char* const in = static_cast<char*>(*memory);
    char* const out = in + in_.size_bytes();
    for (const Pointer& pointer : pointers_) {
      const char* const address = (pointer.is_output ? out : in) + pointer.offset;
      std::memcpy(pointer.slot, &address, sizeof(address));
    }
    absl::Status status = lane_->staging.Upload(uploads_, in, lane_->stream);
    if (status.ok()) status = Align();
    if (status.ok()) status = RunJobs(limits_, device_jobs_, &lane_->arena, lane_->stream);
    if (status.ok()) status = PutBack();
    if (status.ok()) status = lane_->staging.Download(downloads_, out, lane_->stream);
    return status;
  }

 private:
  // A pointer of a DeviceJob that is known once memory has been taken.
  struct Pointer {
    void* slot;
    bool is_output;
    int64_t offset;
  };
  // A tensor in CUDA memory at an address that its elements do not allow: copied before and after.
  struct Misaligned {
    void* slot;
    char* given;
    int64_t size_bytes;
    bool is_output;
  };

  // Room for an input. `slot` points to the pointer that will point to it.
  int64_t Room(void* slot, int64_t size_bytes) {
    const int64_t offset = in_.Add(size_bytes);
    pointers_.push_back({slot, false, offset});
    return offset;
  }
  void In(void* slot, const void* data, int64_t size_bytes) {
    if (data == nullptr || size_bytes == 0) return;
    // Only read: see HostBytes.
    uploads_.push_back({Room(slot, size_bytes), static_cast<char*>(const_cast<void*>(data)), size_bytes});
  }
  void Out(void* slot, void* data, int64_t size_bytes) {
    if (data == nullptr) return;
    const int64_t offset = out_.Add(size_bytes);
    pointers_.push_back({slot, true, offset});
    if (size_bytes > 0) downloads_.push_back({offset, static_cast<char*>(data), size_bytes});
  }
  // A tensor that is on the device already.
  void There(void* slot, const void* data, int64_t element_bytes, int64_t size_bytes, bool is_output) {
    if (data == nullptr) return;
    std::memcpy(slot, &data, sizeof(data));
    if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(element_bytes) == 0) return;
    misaligned_.push_back({slot, static_cast<char*>(const_cast<void*>(data)), size_bytes, is_output});
  }

  absl::Status LayOut(const Job& job, DeviceJob* device) {
    const NormPlan& plan = *job.plan;
    const int64_t element_bytes = SizeOf(plan.dtype);
    const int64_t size_bytes = plan.elements * element_bytes;
    device->plan = &plan;
    if (job.in_cuda.x) {
      There(&device->x, job.x, element_bytes, size_bytes, false);
    } else if (job.x != nullptr) {
      In(&device->x, job.x, size_bytes);
    } else if (job.x_buffer != nullptr) {
      // Whoever gave it reads x there afterwards.
      GatherSegments(job.x_segments, 0, size_bytes, job.x_buffer);
      In(&device->x, job.x_buffer, size_bytes);
    } else {
      LayOutSegments(job, size_bytes, device);
    }
    if (job.residual.present()) {
      const int64_t residual_bytes = SizeOf(job.residual.dtype);
      device->residual.dtype = job.residual.dtype;
      if (job.in_cuda.residual) {
        There(&device->residual.data, job.residual.data, residual_bytes, plan.elements * residual_bytes, false);
      } else {
        In(&device->residual.data, job.residual.data, plan.elements * residual_bytes);
      }
    }
    device->residual_scale = job.residual_scale;
    device->residual_rounding = job.residual_rounding;
    device->positions = CountPositions(plan, job.mask);
    In(&device->mask, job.mask, plan.reduce0 * plan.reduce1);
    if (plan.given_statistics) {
      In(&device->given_mean, job.given_mean, plan.keep1 * static_cast<int64_t>(sizeof(double)));
      In(&device->given_variance, job.given_variance, plan.keep1 * static_cast<int64_t>(sizeof(double)));
    }
    LayOutOutputs(job, device);
    return LayOutParameters(job, device);
  }

  void LayOutSegments(const Job& job, int64_t size_bytes, DeviceJob* device) {
    int64_t offset = Room(&device->x, size_bytes);
    for (const Segment& segment : job.x_segments) {
      const auto bytes = static_cast<int64_t>(segment.size());
      uploads_.push_back({offset, reinterpret_cast<char*>(const_cast<std::byte*>(segment.data())), bytes});
      offset += bytes;
    }
  }

  void LayOutOutputs(const Job& job, DeviceJob* device) {
    const NormPlan& plan = *job.plan;
    const int64_t element_bytes = SizeOf(plan.dtype);
    const int64_t size_bytes = plan.elements * element_bytes;
    const auto tensor = [&](void* slot, void* data, bool is_there) {
      if (is_there) {
        There(slot, data, element_bytes, size_bytes, true);
      } else {
        Out(slot, data, size_bytes);
      }
    };
    tensor(&device->y, job.y, job.in_cuda.y);
    if (job.residual.present()) tensor(&device->h, job.h, job.in_cuda.h);
    const int64_t statistics_bytes = plan.Sets() * SizeOf(plan.StatisticsDType());
    device->outputs.in_f64 = plan.StatisticsDType() == DType::kF64;
    Out(&device->outputs.mean, job.mean, statistics_bytes);
    Out(&device->outputs.inverse_std, job.inverse_std, statistics_bytes);
    static_assert(sizeof(Moment) == 3 * sizeof(double));
    if (!plan.given_statistics) {
      Out(&device->outputs.moments, job.moments, plan.Sets() * static_cast<int64_t>(sizeof(Moment)));
    }
  }

  absl::Status LayOutParameters(const Job& job, DeviceJob* device) {
    if (job.layer == nullptr) return absl::OkStatus();
    const Layer& layer = *job.layer;
    absl::StatusOr<std::shared_ptr<const DeviceLayer>> kept = Kept(layer);
    if (!kept.ok()) return kept.status();
    if (*kept != nullptr) {
      device->parameters = (*kept)->parameters();
      layers_.push_back(*std::move(kept));
      return absl::OkStatus();
    }
    device->parameters.fit_f32 = layer.fit_f32;
    device->parameters.equal_f32 = layer.equal_f32;
    InParameters(&device->parameters.weight, layer.weight);
    InParameters(&device->parameters.bias, layer.bias);
    InParameters(&device->parameters.weight32, layer.weight32);
    InParameters(&device->parameters.bias32, layer.bias32);
    return absl::OkStatus();
  }

  // The layer's copy on the device, made when the layer is used for the second time; a session's is.
  absl::StatusOr<std::shared_ptr<const DeviceLayer>> Kept(const Layer& layer) {
    Layer::DeviceCopy& device = layer.device;
    const std::lock_guard<std::mutex> lock(device.mu);
    if (device.copy == nullptr && ++device.uses >= 2 && !(layer.weight.empty() && layer.bias.empty())) {
      absl::StatusOr<std::shared_ptr<const DeviceLayer>> made = DeviceLayer::Make(layer, lane_->trash);
      if (made.ok()) {
        device.copy = *std::move(made);
      } else if (!absl::IsResourceExhausted(made.status())) {
        return made.status();
      }  // else this job takes them along, and the next one tries again
    }
    return std::static_pointer_cast<const DeviceLayer>(device.copy);
  }

  template <typename Real>
  void InParameters(void* slot, const std::vector<Real>& values) {
    In(slot, values.empty() ? nullptr : values.data(), static_cast<int64_t>(values.size() * sizeof(Real)));
  }

  absl::Status Align() {
    for (const Misaligned& tensor : misaligned_) {
      absl::StatusOr<void*> aligned = lane_->arena.Take(tensor.size_bytes);
      if (!aligned.ok()) return aligned.status();
      std::memcpy(tensor.slot, &*aligned, sizeof(void*));
      if (tensor.is_output) continue;
      NORMD_CUDA_RETURN_STATUS(cudaMemcpyAsync(*aligned, tensor.given, static_cast<size_t>(tensor.size_bytes),
                                               cudaMemcpyDeviceToDevice, lane_->stream),
                               "cudaMemcpy within the device");
    }
    return absl::OkStatus();
  }

  absl::Status PutBack() {
    for (const Misaligned& tensor : misaligned_) {
      if (!tensor.is_output) continue;
      void* aligned = nullptr;
      std::memcpy(&aligned, tensor.slot, sizeof(aligned));
      NORMD_CUDA_RETURN_STATUS(cudaMemcpyAsync(tensor.given, aligned, static_cast<size_t>(tensor.size_bytes),
                                               cudaMemcpyDeviceToDevice, lane_->stream),
                               "cudaMemcpy within the device");
    }
    return absl::OkStatus();
  }

  const DeviceLimits& limits_;
  const std::vector<Job>& jobs_;
  LaneMemory* const lane_;
  std::vector<DeviceJob> device_jobs_;
  std::vector<std::shared_ptr<const DeviceLayer>> layers_;
  Layout in_, out_;
  std::vector<HostBytes> uploads_, downloads_;
  std::vector<Pointer> pointers_;
  std::vector<Misaligned> misaligned_;
};

}  // namespace

absl::Status RunJobList(const DeviceLimits& limits, const std::vector<Job>& jobs, LaneMemory* lane) {
  // Of the job list before: only now, because freeing waits for the device, and its caller should not.
  lane->arena.Reset();
  lane->trash->Empty();
  JobList list(limits, jobs, lane);
  absl::Status status = list.Run();
  // Nothing may be on its way when the memory is used again, or the caller's buffers go.
  if (!status.ok()) cudaStreamSynchronize(lane->stream);
  return status;
}

}  // namespace normd::cuda
