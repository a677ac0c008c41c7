#include "kernels/cuda/job_list.h"

#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "kernels/cuda/nearest_jobs.h"
#include "kernels/cuda/prepared_parameters.h"
#include "kernels/cuda/run.h"
#include "kernels/cuda/status.h"

namespace normd::cuda {
namespace {

// One run of RunJobList. LayOut() gives every host tensor a place in one of two layouts, inputs and outputs, and notes
// which pointers of the device jobs will point there.
class JobList {
 public:
  JobList(const DeviceLimits& limits, const std::vector<Job>& jobs, NearestHost* nearest, WorkerMemory* worker)
      : limits_(limits),
        jobs_(jobs),
        nearest_(*nearest),
        worker_(worker),
        device_jobs_(jobs.size()),
        left_(jobs.size()) {}

  absl::Status Run() {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (IsOfHost(jobs_[i])) continue;
      if (absl::Status status = LayOut(jobs_[i], &device_jobs_[i]); !status.ok()) return status;
      if (GivesNearest(jobs_[i])) LayOutLeft(i);
    }
    absl::StatusOr<void*> memory = worker_->arena.Take(in_.size_bytes() + out_.size_bytes());
    if (!memory.ok()) return memory.status();
    char* const in = static_cast<char*>(*memory);
    char* const out = in + in_.size_bytes();
    for (const Pointer& pointer : pointers_) {
      const char* const address = (pointer.is_output ? out : in) + pointer.offset;
      std::memcpy(pointer.slot, &address, sizeof(address));
    }
    absl::Status status = worker_->staging.Upload(uploads_, in, worker_->stream());
    if (status.ok()) status = Align();
    if (status.ok()) status = RunOnDevice();
    if (status.ok()) status = PutBack();
    if (status.ok()) status = RunOnHost();  // before results are downloaded, of which y may be x
    if (status.ok()) status = worker_->staging.Download(downloads_, out, worker_->stream());
    for (size_t i = 0; i < left_.size() && status.ok(); ++i) status = DecideLeft(i);
    return status;
  }

 private:
  // A pointer of a DeviceJob whose value is known once device memory has been taken. `slot` points to the pointer.
  struct Pointer {
    void* slot;
    bool is_output;
    int64_t offset;
  };
  // A tensor in CUDA memory at an address that is not aligned to its elements. It is copied before and after the jobs.
  struct Misaligned {
    void* slot;
    char* given;
    int64_t size_bytes;
    bool is_output;
  };

  // What the kernels leave of a job to the nearest value.
  struct Left {
    LeftToHost results;
    void* scratch = nullptr;  // of GroupReader, device memory
  };

  static bool IsOfHost(const Job& job) { return GivesNearest(job) && RunsOnHost(job); }

  absl::Status RunOnDevice() {
    std::vector<DeviceJob> jobs;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (IsOfHost(jobs_[i])) continue;
      if (absl::Status status = KeepInputs(&device_jobs_[i]); !status.ok()) return status;
      jobs.push_back(device_jobs_[i]);
    }
    return RunJobs(limits_, jobs, &worker_->arena, worker_->stream());
  }

  // Copies inputs that an output replaces: the host may have to read them afterwards. Where h is x + scale * r,
  // rounded, it reads h instead.
  absl::Status KeepInputs(DeviceJob* job) {
    if (job->left == nullptr) return absl::OkStatus();
    const bool reads_h = ReadsH(*job);
    if (!reads_h && IsReplaced(*job, job->x)) {
      if (absl::Status status = Keep(job->plan->dtype, job, &job->x); !status.ok()) return status;
    }
    if (reads_h || !IsReplaced(*job, job->residual.data)) return absl::OkStatus();
    return Keep(job->residual.dtype, job, &job->residual.data);
  }
  static bool ReadsH(const DeviceJob& job) {
    return job.h != nullptr && job.residual_rounding == ResidualRounding::kRoundFirst;
  }
  static bool IsReplaced(const DeviceJob& job, const void* input) {
    return input != nullptr && (input == job.y || input == job.h);
  }
  absl::Status Keep(DType dtype, const DeviceJob* job, const void** input) {
    const auto size_bytes = static_cast<size_t>(job->plan->elements * SizeOf(dtype));
    absl::StatusOr<void*> copy = worker_->arena.Take(static_cast<int64_t>(size_bytes));
    if (!copy.ok()) return copy.status();
    NORMD_CUDA_RETURN_STATUS(cudaMemcpyAsync(*copy, *input, size_bytes, cudaMemcpyDeviceToDevice, worker_->stream()),
                             "cudaMemcpy within the device");
    *input = *copy;
    return absl::OkStatus();
  }

  // Jobs to the nearest value that are the host's.
  absl::Status RunOnHost() {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (!IsOfHost(jobs_[i])) continue;
      HostJob host(jobs_[i], device_jobs_[i], worker_->stream());
      if (absl::Status status = host.Run(&nearest_); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Decides what the kernels left of job i, whose other results are written.
  absl::Status DecideLeft(size_t i) {
    if (left_[i] == nullptr) return absl::OkStatus();
    LeftResults left(left_[i]->results, *jobs_[i].plan);
    if (left.empty()) return absl::OkStatus();
    DeviceJob device = device_jobs_[i];
    Job job = jobs_[i];
    if (ReadsH(device)) {
      device.x = device.h;
      device.residual = {};
      job.residual = {};
    }
    job.h = nullptr;
    // The indices of a permuted plan are not those of memory.
    if (left.all || !job.plan->permutation.empty()) return HostJob(job, device, worker_->stream()).Run(&nearest_);
    if (DecidesInPairs(device) && TakesPairs(job, left)) {
      absl::Status status = DecideInPairs(job, device, &left);
      // What the arena has no room for is the host's.
      if (!status.ok() && !absl::IsResourceExhausted(status)) return status;
    }
    if (left.empty()) return absl::OkStatus();
    GroupReader reader(limits_, job, device, left_[i]->scratch, worker_->stream());
    for (const auto& [group, of_group] : left.groups) {
      if (absl::Status status = reader.Bring(group); !status.ok()) return status;
      nearest_.Decide(job, reader.group(), {.elements = of_group.elements, .statistics = of_group.statistics});
      if (absl::Status status = reader.PutBack(of_group.elements); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Not the weights that are rounded, of which the device has no rest. A few short rows are sooner with the host than a
  // dozen launches.
  bool TakesPairs(const Job& job, const LeftResults& left) const {
    constexpr int64_t kMostRows = 4, kMostElements = 32'768;
    const auto rows = static_cast<int64_t>(left.groups.size());
    const bool rounds_weights = job.parameters != nullptr && !job.parameters->host().weight_rest.empty();
    return !rounds_weights && !nearest_.options().exact_first &&
           (rows > kMostRows || rows * job.plan->reduce1 > kMostElements);
  }
  // Decides elements of rows in pairs on the device, and leaves in `left` what they do not decide.
  absl::Status DecideInPairs(const Job& job, const DeviceJob& device, LeftResults* left) {
    constexpr int64_t kMostWideBytes = 256 << 20;
    const NormPlan& plan = *job.plan;
    const int64_t most_rows = kMostWideBytes / (plan.reduce1 * SizeOf(DType::kF64));
    LeftOfRows rows;
    for (auto& [group, of_group] : left->groups) {
      const auto row = static_cast<int64_t>(rows.rows.size());
      if (of_group.elements.empty() || row >= most_rows) continue;
      for (const int64_t element : of_group.elements) rows.elements.push_back({group * plan.reduce1 + element, row});
      rows.rows.push_back(group);
    }
    if (rows.rows.empty()) return absl::OkStatus();
    const DecidedElement* results = nullptr;
    absl::Status status = DecideLeftInPairs(limits_, device, rows, &worker_->arena, worker_->stream(), &results);
    std::vector<DecidedElement> decided(rows.elements.size());
    if (status.ok()) {
      status = StatusOf(cudaMemcpyAsync(decided.data(), results, decided.size() * sizeof(decided[0]),
                                        cudaMemcpyDeviceToHost, worker_->stream()),
                        "cudaMemcpy from the device");
    }
    // After an error, too: the stream may read `rows`.
    const cudaError_t waited = cudaStreamSynchronize(worker_->stream());
    if (status.ok()) status = StatusOf(waited, "cudaStreamSynchronize");
    if (!status.ok()) return status;
    for (const int64_t group : rows.rows) left->groups[group].elements.clear();
    int64_t count = 0;
    for (size_t i = 0; i < decided.size() && status.ok(); ++i) {
      const int64_t index = rows.elements[i].index;
      if (decided[i].is_decided) {
        ++count;
        status = StoreDecided(job, device, index, decided[i]);
      } else {
        left->groups[index / plan.reduce1].elements.push_back(index % plan.reduce1);
      }
    }
    const cudaError_t stored = cudaStreamSynchronize(worker_->stream());  // it reads `decided`
    if (status.ok()) status = StatusOf(stored, "cudaStreamSynchronize");
    if (!status.ok()) return status;
    std::erase_if(left->groups, [](const auto& of) { return of.second.elements.empty() && !of.second.statistics; });
    UndecidedCounts* const counts = nearest_.options().counts;
    if (counts != nullptr) counts->by_pairs.fetch_add(count, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  // The kernel has written it to the device's y, which has been copied to the job's unless they are one.
  absl::Status StoreDecided(const Job& job, const DeviceJob& device, int64_t index, const DecidedElement& element) {
    const auto size = static_cast<size_t>(SizeOf(job.plan->dtype));
    char* const to = static_cast<char*>(job.y) + index * SizeOf(job.plan->dtype);
    if (job.y_space.is_host()) {
      std::memcpy(to, &element.y_bits, size);
    } else if (device.y != job.y) {
      return StatusOf(cudaMemcpyAsync(to, &element.y_bits, size, cudaMemcpyHostToDevice, worker_->stream()),
                      "cudaMemcpy to the device");
    }
    return absl::OkStatus();
  }

  // Reserves room for an input and returns its offset. `slot` points to the pointer that will point there.
  int64_t Room(void* slot, int64_t size_bytes) {
    const int64_t offset = in_.Add(size_bytes);
    pointers_.push_back({slot, false, offset});
    return offset;
  }
  void In(void* slot, const void* data, int64_t size_bytes) {
    if (data == nullptr || size_bytes == 0) return;
    // HostBytes of an upload are only read.
    uploads_.push_back({Room(slot, size_bytes), static_cast<char*>(const_cast<void*>(data)), size_bytes});
  }
  void Out(void* slot, void* data, int64_t size_bytes) {
    if (data == nullptr) return;
    const int64_t offset = out_.Add(size_bytes);
    pointers_.push_back({slot, true, offset});
    if (size_bytes > 0) downloads_.push_back({offset, static_cast<char*>(data), size_bytes});
  }
  // Sets the pointer at `slot` to a tensor that is on the device already.
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
    if (!job.x_space.is_host()) {
      There(&device->x, job.x, element_bytes, size_bytes, false);
    } else if (job.x != nullptr) {
      In(&device->x, job.x, size_bytes);
    } else if (job.x_buffer != nullptr) {
      // The caller reads x in x_buffer afterwards.
      GatherSegments(job.x_segments, 0, size_bytes, job.x_buffer);
      In(&device->x, job.x_buffer, size_bytes);
    } else {
      LayOutSegments(job, size_bytes, device);
    }
    if (job.residual.present()) {
      const int64_t residual_bytes = SizeOf(job.residual.dtype);
      device->residual.dtype = job.residual.dtype;
      if (!job.residual.space.is_host()) {
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
    const auto tensor = [&](void* slot, void* data, const MemorySpace& space) {
      if (!space.is_host()) {
        There(slot, data, element_bytes, size_bytes, true);
      } else {
        Out(slot, data, size_bytes);
      }
    };
    tensor(&device->y, job.y, job.y_space);
    if (job.residual.present()) tensor(&device->h, job.h, job.h_space);
    const int64_t statistics_bytes = plan.StatisticsGroups() * SizeOf(plan.StatisticsDType());
    device->outputs.in_f64 = plan.StatisticsDType() == DType::kF64;
    Out(&device->outputs.mean, job.mean, statistics_bytes);
    Out(&device->outputs.inverse_std, job.inverse_std, statistics_bytes);
    static_assert(sizeof(Moment) == 3 * sizeof(double));
    if (!plan.given_statistics) {
      Out(&device->outputs.moments, job.moments, plan.StatisticsGroups() * static_cast<int64_t>(sizeof(Moment)));
    }
  }

  // The room for what the kernels leave of job i.
  void LayOutLeft(size_t i) {
    left_[i] = std::make_unique<Left>();
    device_jobs_[i].bound_factor = nearest_.options().bound_factor;
    Out(&device_jobs_[i].left, &left_[i]->results, static_cast<int64_t>(sizeof(LeftToHost)));
    const int64_t scratch_bytes = GroupScratchBytes(*jobs_[i].plan);
    if (scratch_bytes > 0) Room(&left_[i]->scratch, scratch_bytes);
  }

  absl::Status LayOutParameters(const Job& job, DeviceJob* device) {
    if (job.parameters == nullptr) return absl::OkStatus();
    const auto& prepared = static_cast<const CudaParameters&>(*job.parameters);  // see PreparedParameters
    absl::StatusOr<std::shared_ptr<const DeviceCopy>> copy = prepared.Use(worker_->memory, worker_->stream());
    if (!copy.ok()) return copy.status();
    if (*copy != nullptr) {
      device->parameters = (*copy)->parameters();
      copies_.push_back(*std::move(copy));
      return absl::OkStatus();
    }
    const HostParameters& host = prepared.host();
    device->parameters.fit_f32 = host.fit_f32;
    device->parameters.equal_f32 = host.equal_f32;
    InParameters(&device->parameters.weight, host.weight);
    InParameters(&device->parameters.bias, host.bias);
    InParameters(&device->parameters.weight32, host.weight32);
    InParameters(&device->parameters.bias32, host.bias32);
    return absl::OkStatus();
  }

  template <typename Real>
  void InParameters(void* slot, const std::vector<Real>& values) {
    In(slot, values.empty() ? nullptr : values.data(), static_cast<int64_t>(values.size() * sizeof(Real)));
  }

  absl::Status Align() {
    for (const Misaligned& tensor : misaligned_) {
      absl::StatusOr<void*> aligned = worker_->arena.Take(tensor.size_bytes);
      if (!aligned.ok()) return aligned.status();
      std::memcpy(tensor.slot, &*aligned, sizeof(void*));
      if (tensor.is_output) continue;
      NORMD_CUDA_RETURN_STATUS(cudaMemcpyAsync(*aligned, tensor.given, static_cast<size_t>(tensor.size_bytes),
                                               cudaMemcpyDeviceToDevice, worker_->stream()),
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
                                               cudaMemcpyDeviceToDevice, worker_->stream()),
                               "cudaMemcpy within the device");
    }
    return absl::OkStatus();
  }

  const DeviceLimits& limits_;
  const std::vector<Job>& jobs_;
  NearestHost& nearest_;
  WorkerMemory* const worker_;
  std::vector<DeviceJob> device_jobs_;
  std::vector<std::unique_ptr<Left>> left_;                // null: not to the nearest value, or on the host
  std::vector<std::shared_ptr<const DeviceCopy>> copies_;  // kept while kernels read them
  Layout in_, out_;
  std::vector<HostBytes> uploads_, downloads_;
  std::vector<Pointer> pointers_;
  std::vector<Misaligned> misaligned_;
};

// The status of list->Run(). What the host decides takes host memory: of a group, or of a whole job in the kernels of
// the CPU.
absl::Status StatusOfRun(JobList* list) {
  try {
    return list->Run();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the host has no memory left for what the device leaves to it");
  }
}

}  // namespace

absl::Status RunJobList(const DeviceLimits& limits, const std::vector<Job>& jobs, NearestHost* nearest,
                        WorkerMemory* worker) {
  // Cleans up after the previous job list only now, so that the caller of that list did not wait for it.
  worker->arena.Reset();
  worker->deferred->Empty(worker->stream());
  JobList list(limits, jobs, nearest, worker);
  absl::Status status = StatusOfRun(&list);
  // Nothing may be in the stream when the memory is used again, or when the caller's buffers go.
  if (!status.ok()) cudaStreamSynchronize(worker->stream());
  return status;
}

}  // namespace normd::cuda
