#include "tests/device/bench/shape_tensors.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/bench/or_die.h"
#include "tests/device/bench/copy.h"
#include "tests/support/case.h"

namespace normd::bench {

namespace {

constexpr int64_t kParameters = 1 << 18;  // the longest row

// Of cold tensors: two at least, but for tensors that no cache has a part of.
int64_t ColdSetsOf(const GpuFacts& gpu, int64_t bytes) {
  if (2 * bytes > 16 * gpu.l2_bytes) return 1;  // leaves nothing of its beginning behind
  return std::max<int64_t>(2, 2 * gpu.l2_bytes / (2 * bytes) + 1);
}

// Made once: they take longer than a shape's launches.
const std::string& NormalValues(DType dtype) {
  static auto* const values = new std::map<DType, std::string>();
  std::string& made = (*values)[dtype];
  if (made.empty()) made = MakeValues(Data::kNormal, dtype, 1 << 20, 1);
  return made;
}

}  // namespace

ShapeTensors::ShapeTensors(const GpuFacts& gpu, const GpuShape& shape, CacheState cache, cudaStream_t stream)
    : shape_(shape),
      limits_(gpu.limits),
      stream_(stream),
      bytes_((shape.BytesRead() + 255) / 256 * 256),
      sets_(cache == CacheState::kWarm ? 1 : ColdSetsOf(gpu, bytes_)),
      in_(sets_ * bytes_),
      out_(sets_ * bytes_),
      parameters_(kParameters * int64_t{sizeof(double)}),
      parameters32_(kParameters * int64_t{sizeof(float)}),
      moments_(kParameters * 32 * int64_t{sizeof(double)}),
      left_(int64_t{sizeof(cuda::LeftToHost)}),
      arena_(gpu.free_bytes / 2, OrDie(cuda::DeviceMemory::Of(0, gpu.free_bytes / 2)), stream_) {
  in_.Fill(NormalValues(shape.workload.dtype));
  const std::vector<double> ones(kParameters, 1.25);
  const std::vector<float> ones32(kParameters, 1.25f);
  parameters_.Fill({reinterpret_cast<const char*>(ones.data()), ones.size() * sizeof(double)});
  parameters32_.Fill({reinterpret_cast<const char*>(ones32.data()), ones32.size() * sizeof(float)});
}

bool ShapeTensors::HasRoom(const GpuFacts& gpu, const GpuShape& shape) {
  return 2 * ColdSetsOf(gpu, shape.BytesRead()) * shape.BytesRead() < gpu.free_bytes * 8 / 10;
}

bool ShapeTensors::FitsCache(const GpuFacts& gpu, const GpuShape& shape) {
  return 2 * shape.BytesRead() <= gpu.l2_bytes / 2;
}

int ShapeTensors::LaunchesOf(int least) const { return static_cast<int>(std::max<int64_t>(least, sets_)); }

std::unique_ptr<GpuGraph> ShapeTensors::Capture(int candidate, int launches) {
  plan_ = OrDie(MakePlan(shape_.workload.Spec(), shape_.workload.dtype, shape_.workload.ShapeOf(),
                         shape_.workload.Options(candidate == kFast ? Precision::kFast : Precision::kExact)));
  // So that no memory is taken while launches are captured.
  for (int i = 0; i < 2; ++i) {
    Launch(candidate, i);
    OrDieCuda(cudaStreamSynchronize(stream_), "kernel");
    arena_.Reset();
  }
  return std::make_unique<GpuGraph>(stream_, launches, [&](int i) {
    Launch(candidate, i);
    arena_.Reset();  // launches follow each other: scratch may be the same
  });
}

void ShapeTensors::Launch(int candidate, int64_t i) {
  char* const in = in_.data() + i % sets_ * bytes_;
  char* const out = out_.data() + i % sets_ * bytes_;
  const int64_t bytes = shape_.BytesRead();
  if (candidate == kRuntimeCopy) {
    OrDieCuda(cudaMemcpyAsync(out, in, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_), "copy");
  } else if (candidate == kOwnCopy) {
    OrDieCuda(CopyBytes(in, out, bytes, stream_), "copy");
  } else {
    OrDie(cuda::RunJobs(limits_, {JobOn(in, out)}, &arena_, stream_));
  }
}

cuda::DeviceJob ShapeTensors::JobOn(char* in, char* out) const {
  const int64_t tensor_bytes = shape_.workload.Bytes() / 2;
  cuda::DeviceJob job;
  job.plan = &plan_;
  job.x = in;
  job.y = out;
  job.positions = CountPositions(plan_, nullptr);
  if (plan_.precision == Precision::kExact) job.left = reinterpret_cast<cuda::LeftToHost*>(left_.data());
  if (shape_.residual) {
    job.residual = {.dtype = plan_.dtype, .data = in + tensor_bytes};
    job.h = out + tensor_bytes;
  }
  const auto* const wide = reinterpret_cast<const double*>(parameters_.data());
  const auto* const narrow = reinterpret_cast<const float*>(parameters32_.data());
  if (plan_.parameter_length > 0) {
    job.parameters = {.weight = wide, .weight32 = narrow, .equal_f32 = true};
    if (shape_.workload.TakesBias()) job.parameters.bias = wide, job.parameters.bias32 = narrow;
  }
  if (plan_.given_statistics) {
    job.given_mean = job.given_variance = wide;
  } else if (shape_.workload.op == Op::kBatchTraining) {  // for the running statistics
    job.outputs.moments = reinterpret_cast<double*>(moments_.data());
  }
  return job;
}

}  // namespace normd::bench
