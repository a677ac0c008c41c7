#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/base/strings.h"
#include "tests/device/bench/sections.h"
#include "tests/device/bench/shape_tensors.h"
#include "tests/device/bench/shapes.h"

namespace normd::bench {

namespace {

// Launches on tensors that no cache has a part of are so long that few suffice, and that what another process left
// behind matters to none of them.
constexpr int kLeastLongLaunches = 5;

std::optional<int> CandidateOf(const std::string& form) {
  if (form == "fast") return kFast;
  if (form == "exact") return kExact;
  if (form == "runtime_copy") return kRuntimeCopy;
  if (form == "own_copy") return kOwnCopy;
  return std::nullopt;
}

// A shape's tensors and graphs, in one state of the cache.
class Prepared {
 public:
  Prepared(const GpuFacts& gpu, const GpuShape& shape, CacheState cache, cudaStream_t stream)
      : tensors_(gpu, shape, cache, stream), is_long_(cache == CacheState::kCold && tensors_.sets() == 1) {}

  double Run(int candidate) {
    std::unique_ptr<GpuGraph>& graph = graphs_[static_cast<size_t>(candidate)];
    if (graph == nullptr) {
      graph = tensors_.Capture(candidate, tensors_.LaunchesOf(is_long_ ? kLeastLongLaunches : kLeastLaunches));
    }
    return graph->Run(/*warm_up=*/!is_long_);
  }

 private:
  ShapeTensors tensors_;
  const bool is_long_;
  std::array<std::unique_ptr<GpuGraph>, kCandidates> graphs_;
};

class Turns {
 public:
  explicit Turns(const GpuFacts& gpu) : gpu_(gpu), shapes_(GpuShapes(true)) {
    cudaStream_t stream = nullptr;
    OrDieCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    stream_.reset(stream);
  }

  std::string Answer(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string command = line.substr(0, space);
    const std::string what = space == std::string::npos ? "" : line.substr(space + 1);
    if (command == "shape") return Prepare(what);
    if (command == "run" || command == "warm") return Run(what, command == "warm");
    if (command == "done") {
      GiveBack();
      return "ok";
    }
    return Concat("error no such command: ", line);
  }

 private:
  std::string Prepare(const std::string& name) {
    GiveBack();
    gpu_.free_bytes = FreeBytes();  // other processes share the device
    for (const GpuShape& shape : shapes_) {
      if (shape.Name() != name) continue;
      if (!ShapeTensors::HasRoom(gpu_, shape)) return "error the device has not enough free memory";
      shape_ = &shape;
      cold_ = std::make_unique<Prepared>(gpu_, shape, CacheState::kCold, stream_.get());
      return "ok";
    }
    return Concat("error no such shape: ", name);
  }

  std::string Run(const std::string& form, bool warm) {
    const std::optional<int> candidate = CandidateOf(form);
    if (!candidate.has_value()) return Concat("error no such form: ", form);
    if (shape_ == nullptr) return "error no shape";
    if (warm && !ShapeTensors::FitsCache(gpu_, *shape_)) return "none";
    if (warm && warm_ == nullptr) {
      warm_ = std::make_unique<Prepared>(gpu_, *shape_, CacheState::kWarm, stream_.get());
    }
    return absl::StrFormat("%.9g", (warm ? warm_ : cold_)->Run(*candidate));
  }

  void GiveBack() {
    shape_ = nullptr;
    cold_.reset();
    warm_.reset();
    // The arenas' memory is still in the device's pool.
    OrDieCuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    cudaMemPool_t pool = nullptr;
    if (cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess) cudaMemPoolTrimTo(pool, 0);
  }

  GpuFacts gpu_;
  const std::vector<GpuShape> shapes_;
  cuda::OwnedStream stream_;
  const GpuShape* shape_ = nullptr;
  std::unique_ptr<Prepared> cold_, warm_;
};

}  // namespace

void ServeTurns(const GpuFacts& gpu) {
  Turns turns(gpu);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::printf("%s\n", turns.Answer(line).c_str());
    std::fflush(stdout);
  }
}

}  // namespace normd::bench
