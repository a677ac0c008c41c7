// The CUDA backend around its kernels, on the emulated device: job lists, tensors in device memory, what it keeps and
// gives back, and every call of the runtime failing in turn.
#include <cuda_runtime.h>

#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/kernels.h"
#include "tests/device/beside_cpu.h"
#include "tests/device/device_runs.h"
#include "tests/kernels/cases.h"

namespace normd {
namespace {

using cases::Affine;
using cases::Group;
using cases::Of;
using cases::On;
using cases::Over;
using cases::With;

class DeviceBackendTest : public testing::Test {
 protected:
  DeviceBackendTest() { cuda_on_cpu::Reset(); }
  const std::unique_ptr<Backend> cpu_ = InlineCpuBackend();
};

Case Rows(int64_t rows, int64_t n, DType dtype = DType::kF32) {
  return Affine(With(On(Over({n}), {rows, n}), dtype), DType::kF32, DType::kF32);
}

struct Prepared {
  Prepared(const Backend& backend, const Case& the_case, int misalignment = 0)
      : c(the_case), plan(*PlanOf(c)), data(DataOf(c)), run(backend, c, plan, data, misalignment) {}
  const Case c;
  const NormPlan plan;
  const CaseData data;
  CaseRun run;
};

std::vector<Case> Mixed() {
  std::vector<Case> all;
  for (int i = 0; i < 6; ++i) {
    Case c = Rows(3 + i, 300);
    c.spec.eps = 1e-5 * (i + 1);
    if (i == 2) c.bias.reset();
    if (i == 3) c.data = Data::kOutliers;
    if (i == 4) c.data = Data::kNan;
    all.push_back(c);
    c.options.precision = Precision::kFast;
    all.push_back(c);
  }
  all.push_back(Rows(4, 5000, DType::kBF16));
  // Their moments have a launch of their own, which they share.
  for (const int64_t rows : {2, 5}) all.push_back(Affine(With(On(Of(Method::kRmsNorm), {rows, 300}), DType::kBF16)));
  all.push_back(Affine(With(On(Group(2, Layout::kChannelsFirst), {3, 6, 10, 5}), DType::kF32)));
  all.push_back(Affine(With(On(Of(Method::kBatchNorm, Layout::kChannelsLast), {300, 5}), DType::kF16)));
  all.push_back(With(On(Over({0}), {3, 0}), DType::kF32));
  return all;
}

TEST_F(DeviceBackendTest, BytesDoNotDependOnTheJobsThatTravelTogether) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  std::vector<std::unique_ptr<Prepared>> together;
  std::vector<Job> jobs;
  for (const Case& c : Mixed()) {
    together.push_back(std::make_unique<Prepared>(*cuda, c, static_cast<int>(together.size() * 5 % 60)));
    jobs.push_back(together.back()->run.MakeJob());
  }
  ASSERT_TRUE(RunJobs(*cuda, jobs).ok());
  for (const auto& one : together) {
    EXPECT_EQ(WrongBesideCpu(*cpu_, one->c, one->data, one->run.TakeOutputs()), "") << one->c.Name();
  }
}

TEST_F(DeviceBackendTest, RowsOfOneLengthShareLaunches) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  std::vector<std::unique_ptr<Prepared>> together;
  std::vector<Job> jobs;
  for (int i = 0; i < 64; ++i) {
    together.push_back(std::make_unique<Prepared>(*cuda, cases::Fast(Rows(1 + i % 7, 96))));
    jobs.push_back(together.back()->run.MakeJob());
  }
  const int64_t before = cuda_on_cpu::Launches();
  ASSERT_TRUE(RunJobs(*cuda, jobs).ok());
  EXPECT_EQ(cuda_on_cpu::Launches() - before, 64 / cuda::RowLaunch::kMaxRanges);
}

TEST_F(DeviceBackendTest, SaysWhatItIsAndWhatRuns) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  EXPECT_EQ(cuda->name(), "cuda");
  EXPECT_TRUE(cuda->memory_space() == CudaSpace(0));
  const auto kernel_of = [&](const Case& c) { return cuda->KernelName(*PlanOf(c)); };
  EXPECT_EQ(kernel_of(Rows(2, 100)), "cuda/sm_90/whole_rows");
  EXPECT_EQ(kernel_of(Rows(1, 60000)), "cuda/sm_90/rows");
  EXPECT_EQ(kernel_of(cases::Fast(Rows(2, 100))), "cuda/sm_90/whole_rows");
  EXPECT_EQ(kernel_of(cases::Fast(Rows(1, 60000))), "cuda/sm_90/whole_rows");
  EXPECT_EQ(kernel_of(cases::Fast(Rows(1, 300000))), "cuda/sm_90/rows");
  EXPECT_EQ(kernel_of(With(On(Of(Method::kBatchNorm, Layout::kChannelsLast), {9, 5}), DType::kF32)),
            "cuda/sm_90/columns");
  EXPECT_EQ(kernel_of(With(On(cases::Power(2), {9, 6}), DType::kF32)), "cuda/sm_90/power");
}

void SayThatAllLieOnTheDevice(Job* job) {
  job->x_space = job->residual.space = job->y_space = job->h_space = CudaSpace(0);
}

// Device memory with bytes in it, at a distance from alignment.
class DeviceBytes {
 public:
  DeviceBytes(const void* content, size_t size, size_t misalignment) : size_(size), misalignment_(misalignment) {
    EXPECT_EQ(cudaMalloc(&base_, size + misalignment), cudaSuccess);
    if (content != nullptr && size > 0) std::memcpy(data(), content, size);
  }
  ~DeviceBytes() { cudaFree(base_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  char* data() const { return static_cast<char*>(base_) + misalignment_; }
  std::string Content() const { return std::string(data(), size_); }

 private:
  const size_t size_, misalignment_;
  void* base_ = nullptr;
};

TEST_F(DeviceBackendTest, TensorsInDeviceMemoryAreUsedWhereTheyLie) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  for (const int64_t n : {100, 4100}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
      for (const size_t misalignment : {0, 8, 1}) {
        Case c = Rows(3, n, dtype);
        c.residual = ResidualCase{.dtype = dtype};
        Prepared one(*cuda, c);
        Job job = one.run.MakeJob();
        const size_t size = one.data.x.size();
        const DeviceBytes x(job.x, size, misalignment), residual(job.residual.data, size, misalignment);
        const DeviceBytes y(nullptr, size, misalignment), h(nullptr, size, misalignment);
        job.x = x.data();
        job.residual.data = residual.data();
        job.y = y.data();
        job.h = h.data();
        SayThatAllLieOnTheDevice(&job);
        ASSERT_TRUE(RunJobs(*cuda, {job}).ok());
        const Outputs want = Execute(*cpu_, c, one.data);
        Outputs got = one.run.TakeOutputs();
        got.y = y.Content();
        got.h = h.Content();
        EXPECT_EQ(DifferenceOf(got, want), "") << c.Name() << " at " << misalignment;
      }
    }
  }
}

// In one warp that a row has alone or shares, in several, in a cluster, and where f32 sums do not do.
TEST_F(DeviceBackendTest, AResidualStreamMayReplaceItsInput) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  uint64_t seed = 0;  // threads run in another order each time
  for (const auto& [rows, n] :
       std::vector<std::pair<int64_t, int64_t>>{{2, 128}, {2, 1024}, {2, 2048}, {900, 1536}, {2, 16384}, {2, 65536}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const auto& [data, precision] : std::vector<std::pair<Data, Precision>>{{Data::kNormal, Precision::kFast},
                                                                                   {Data::kOutliers, Precision::kFast},
                                                                                   {Data::kNormal, Precision::kExact},
                                                                                   {Data::kFarMean, Precision::kExact},
                                                                                   {Data::kHuge, Precision::kExact}}) {
        for (const bool replaces_x : {true, false}) {
          Case c = With(Rows(rows, n, dtype), dtype, data);
          c.options.precision = precision;
          c.residual = ResidualCase{.dtype = dtype};
          Prepared one(*cuda, c);
          Job job = one.run.MakeJob();
          const size_t size = one.data.x.size();
          const DeviceBytes x(job.x, size, 0), residual(job.residual.data, size, 0), y(nullptr, size, 0);
          job.x = x.data();
          job.residual.data = residual.data();
          job.y = y.data();
          job.h = replaces_x ? x.data() : residual.data();
          SayThatAllLieOnTheDevice(&job);
          cuda_on_cpu::SetSeed(seed++);
          ASSERT_TRUE(RunJobs(*cuda, {job}).ok());
          const Outputs want = Execute(*cpu_, c, one.data);
          Outputs got = one.run.TakeOutputs();
          got.y = y.Content();
          got.h = replaces_x ? x.Content() : residual.Content();
          EXPECT_EQ(DifferenceOf(got, want), "") << c.Name();
        }
      }
    }
  }
  cuda_on_cpu::SetSeed(0);
}

// Rows of odd lengths and at odd places, whose first and last elements no memory may surround, in a warp, in several
// and in a cluster, over themselves and at another distance from alignment, and where f32 sums do not do.
TEST_F(DeviceBackendTest, OddRowsMayBeReplacedAndLieAnywhere) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  uint64_t seed = 0;  // threads run in another order each time
  for (const auto& [rows, n] : std::vector<std::pair<int64_t, int64_t>>{
           {7, 131}, {9, 769}, {2, 1024}, {5, 1128}, {3, 3073}, {3, 4005}, {2, 9219}, {2, 35001}}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const Data data : {Data::kNormal, Data::kOutliers, Data::kFarMean, Data::kHuge}) {
        for (const auto& [x_off, y_off] :
             std::vector<std::pair<size_t, size_t>>{{0, 0}, {1, 1}, {3, 3}, {1, 2}, {0, 3}}) {
          if (n > 9000 && x_off != 3) continue;
          for (const Precision precision : {Precision::kExact, Precision::kFast}) {
            Case c = With(Rows(rows, n, dtype), dtype, data);
            if (x_off == y_off) c = Affine(With(On(Of(Method::kRmsNorm), {rows, n}), dtype, data));
            if (x_off == 0) c = With(On(Over({n}), {rows, n}), dtype, data);
            c.options.precision = precision;
            Prepared one(*cuda, c);
            Job job = one.run.MakeJob();
            const size_t size = one.data.x.size();
            const auto bytes = static_cast<size_t>(SizeOf(dtype));
            const DeviceBytes x(job.x, size, x_off * bytes), y(nullptr, size, y_off * bytes);
            char* const written = x_off == 3 ? x.data() : y.data();
            job.x = x.data();
            job.y = written;
            job.x_space = job.y_space = CudaSpace(0);
            cuda_on_cpu::SetSeed(seed++);
            ASSERT_TRUE(RunJobs(*cuda, {job}).ok());
            Outputs got = one.run.TakeOutputs();
            got.y = std::string(written, size);
            EXPECT_EQ(WrongBesideCpu(*cpu_, c, one.data, got), "") << c.Name() << " at " << x_off << y_off;
          }
        }
      }
    }
  }
  cuda_on_cpu::SetSeed(0);
}

// The moments of 16-bit rows about zero have sums of their own, over an x that y or h then replaces.
TEST_F(DeviceBackendTest, MomentsAreThoseOfXWhereAnOutputReplacesIt) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  for (const int64_t n : {128, 300, 4096, 300000}) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      for (const bool with_residual : {false, true}) {
        Case c = Affine(With(On(Of(Method::kRmsNorm), {3, n}), dtype));
        if (with_residual) c.residual = ResidualCase{.dtype = dtype};
        Prepared one(*cuda, c);
        Job job = one.run.MakeJob();
        ASSERT_NE(job.moments, nullptr);
        const size_t size = one.data.x.size();
        const DeviceBytes x(job.x, size, 0), residual(one.data.residual.data(), one.data.residual.size(), 0),
            other(nullptr, size, 0);
        job.x = x.data();
        job.y = with_residual ? other.data() : x.data();
        job.x_space = job.y_space = CudaSpace(0);
        if (with_residual) {
          job.residual.data = residual.data();
          job.h = x.data();
          job.residual.space = job.h_space = CudaSpace(0);
        }
        ASSERT_TRUE(RunJobs(*cuda, {job}).ok());
        Outputs got = one.run.TakeOutputs();
        got.y = with_residual ? other.Content() : x.Content();
        if (with_residual) got.h = x.Content();
        EXPECT_EQ(DifferenceOf(got, Execute(*cpu_, c, one.data)), "") << c.Name();
      }
    }
  }
}

// y replaces x, which lies `misaligned` elements from alignment. Aligned groups of FAST have one launch.
void ExpectReplaced(Backend& cuda, Backend& cpu, const Case& c, size_t misaligned) {
  Prepared one(cuda, c);
  Job job = one.run.MakeJob();
  const DeviceBytes x(job.x, one.data.x.size(), misaligned * static_cast<size_t>(SizeOf(c.dtype)));
  job.x = x.data();
  job.y = x.data();
  job.x_space = job.y_space = CudaSpace(0);
  const int64_t before = cuda_on_cpu::Launches();
  ASSERT_TRUE(RunJobs(cuda, {job}).ok());
  const int64_t of_steps = c.options.precision == Precision::kFast ? 3 : 12;  // with moments
  const bool at_once = c.options.precision == Precision::kFast && misaligned == 0;
  EXPECT_EQ(cuda_on_cpu::Launches() - before, at_once ? 1 : of_steps);
  Outputs got = one.run.TakeOutputs();
  got.y = x.Content();
  EXPECT_EQ(WrongBesideCpu(cpu, c, one.data, got), "") << c.Name() << misaligned;
}

// A group that a block of threads has alone may be replaced by y; where pairs of elements are not aligned, it takes the
// way of other groups.
TEST_F(DeviceBackendTest, SmallGroupsMayBeReplacedAndLieAnywhere) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Precision precision : {Precision::kExact, Precision::kFast}) {
      for (const size_t misaligned : {0, 1}) {
        Case c = Affine(With(On(cases::Group(2, Layout::kChannelsLast), {2, 40, 32}), dtype));
        c.options.precision = precision;
        ExpectReplaced(*cuda, *cpu_, c, misaligned);
      }
    }
  }
}

// Groups that a tile has on chip may be replaced by y, in one block and in several; where vectors are not aligned, they
// take the way of other groups.
TEST_F(DeviceBackendTest, TilesMayBeReplacedAndLieAnywhere) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  for (const auto& [n, channels, side] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{{6, 16, 14}, {8, 2, 32}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Data data : {Data::kNormal, Data::kOutliers}) {
        for (const Precision precision : {Precision::kExact, Precision::kFast}) {
          for (const size_t misaligned : {0, 1}) {
            Case c = Affine(
                With(On(Of(Method::kBatchNorm, Layout::kChannelsFirst), {n, channels, side, side}), dtype, data));
            c.options.precision = precision;
            ExpectReplaced(*cuda, *cpu_, c, misaligned);
          }
        }
      }
    }
  }
}

// A part of a GPU may launch clusters in principle, and have no room for one.
TEST_F(DeviceBackendTest, WithoutRoomForClustersLongRowsAreSummedInParts) {
  for (const bool room : {true, false}) {
    cuda_on_cpu::SetDevice({.clusters = room ? 1 : 0});
    const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
    EXPECT_EQ(cuda->KernelName(*PlanOf(cases::Fast(Rows(2, 65537)))),
              room ? "cuda/sm_90/whole_rows" : "cuda/sm_90/rows");
    for (const Precision precision : {Precision::kExact, Precision::kFast}) {
      for (const int64_t n : {65536, 65537}) {
        Case c = Rows(2, n);
        c.options.precision = precision;
        const CaseData data = DataOf(c);
        EXPECT_EQ(WrongBesideCpu(*cpu_, c, data, Execute(*cuda, c, data)), "") << c.Name() << room;
      }
    }
  }
}

// Few rows are cut into more pieces than many are.
TEST_F(DeviceBackendTest, ARowHasTheSameBytesAloneAndAmongMany) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  constexpr int64_t kRows = 600;
  for (const int64_t n : {128, 768, 3072, 8192}) {
    Case all = With(Rows(kRows, n), DType::kBF16);
    all.options.precision = Precision::kFast;
    const CaseData data = DataOf(all);
    const std::string together = Execute(*cuda, all, data).y;
    const auto row_bytes = static_cast<size_t>(n * SizeOf(all.dtype));
    for (const size_t row : {size_t{0}, size_t{kRows - 1}}) {
      Case one = all;
      one.shape = {1, n};
      CaseData part = data;
      part.x = data.x.substr(row * row_bytes, row_bytes);
      EXPECT_EQ(Execute(*cuda, one, part).y, together.substr(row * row_bytes, row_bytes)) << one.Name() << row;
    }
  }
}

TEST_F(DeviceBackendTest, ScatteredTensorsArePutTogetherOnTheWay) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  const Case c = Rows(5, 33, DType::kBF16);
  Prepared one(*cuda, c);
  const auto* const bytes = reinterpret_cast<const std::byte*>(one.data.x.data());
  std::vector<Segment> segments;
  for (size_t at = 0, size = 1; at < one.data.x.size(); at += size, size = size * 2 + 1) {
    size = std::min(size, one.data.x.size() - at);
    segments.emplace_back(bytes + at, size);
  }
  Job job = one.run.MakeJob();
  job.x = nullptr;
  job.x_segments = segments;
  ASSERT_TRUE(RunJobs(*cuda, {job}).ok());
  EXPECT_EQ(DifferenceOf(one.run.TakeOutputs(), Execute(*cpu_, c, one.data)), "");
}

TEST_F(DeviceBackendTest, AScatteredTensorIsPutTogetherWhereItWillBeReadAgain) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  const Case c = Rows(5, 33);
  Prepared one(*cuda, c);
  const auto* const bytes = reinterpret_cast<const std::byte*>(one.data.x.data());
  const std::vector<Segment> segments = {{bytes, 101}, {bytes + 101, one.data.x.size() - 101}};
  std::string buffer(one.data.x.size(), '?');
  Job job = one.run.MakeJob();
  job.x = nullptr;
  job.x_segments = segments;
  job.x_buffer = buffer.data();
  ASSERT_TRUE(RunJobs(*cuda, {job}).ok());
  EXPECT_EQ(buffer, one.data.x);
  EXPECT_EQ(DifferenceOf(one.run.TakeOutputs(), Execute(*cpu_, c, one.data)), "");
}

TEST_F(DeviceBackendTest, ATensorLargerThanTheStagingPiecesArrivesWhole) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  const Case c = Rows(6500, 1000);  // 26 MB, in windows of 4 MiB
  const CaseData data = DataOf(c);
  EXPECT_EQ(DifferenceOf(Execute(*cuda, c, data), Execute(*cpu_, c, data)), "");
}

// Parameters of a call that comes once travel with it; those of a session are copied to the device at their second use.
TEST_F(DeviceBackendTest, ParametersStayOnTheDeviceFromTheirSecondUseOn) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  const Case c = Rows(2, 1000);
  const CaseData data = DataOf(c);
  const Outputs want = Execute(*cpu_, c, data);
  Execute(*cuda, c, data);  // the lane has taken what memory it needs itself
  const size_t without = cuda_on_cpu::BytesAllocated();
  {
    Prepared one(*cuda, c);
    EXPECT_EQ(cuda_on_cpu::BytesAllocated(), without) << "nothing is copied when they are prepared";
    for (int use = 1; use <= 4; ++use) {
      ASSERT_TRUE(RunJobs(*cuda, {one.run.MakeJob()}).ok());
      const size_t copied = use == 1 ? 0 : 1000 * 2 * (sizeof(double) + sizeof(float));
      EXPECT_EQ(cuda_on_cpu::BytesAllocated(), without + copied) << "use " << use;
      EXPECT_EQ(DifferenceOf(one.run.TakeOutputs(), want), "") << "use " << use;
    }
  }
  // Whoever gives parameters up does not wait for the device; the next job's lane does.
  EXPECT_GT(cuda_on_cpu::BytesAllocated(), without);
  EXPECT_EQ(DifferenceOf(Execute(*cuda, c, data), want), "");
  EXPECT_EQ(cuda_on_cpu::BytesAllocated(), without);
}

TEST_F(DeviceBackendTest, ParametersThatFindNoRoomToStayTravelWithTheJob) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  const Case c = Rows(2, 1000);
  Prepared one(*cuda, c);
  const Outputs want = Execute(*cpu_, c, one.data);
  for (int i = 0; i < 3; ++i) {
    if (i > 0) cuda_on_cpu::FailCalls("cudaMallocAsync", 0, cudaErrorMemoryAllocation, false);
    const absl::Status status = RunJobs(*cuda, {one.run.MakeJob()});
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(DifferenceOf(one.run.TakeOutputs(), want), "") << i;
  }
}

// cudaMalloc and cudaFree wait for every stream of the device: whatever a list needs, the others do not wait with it.
TEST_F(DeviceBackendTest, NoJobListCallsWhatWaitsForTheDevice) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  cuda_on_cpu::FailCalls("cudaMalloc", 0, cudaErrorIllegalAddress, true);  // the device is lost at the first call
  cuda_on_cpu::FailCalls("cudaFree", 0, cudaErrorIllegalAddress, true);
  for (const int64_t n : {1000, 300000, 20, 600000}) {
    Prepared one(*cuda, Rows(2, n));
    // The second use of parameters copies them to the device, and the next list frees them.
    for (int i = 0; i < 2; ++i) EXPECT_EQ(RunJobs(*cuda, {one.run.MakeJob()}), absl::OkStatus()) << n;
  }
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  cuda_on_cpu::Reset();
}

TEST_F(DeviceBackendTest, JobListsNoLargerThanThoseBeforeAllocateAndFreeNothing) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  Prepared large(*cuda, Rows(2, 300000));
  Prepared small(*cuda, With(On(Of(Method::kBatchNorm, Layout::kChannelsLast), {300, 5}), DType::kF32));
  // The second use of parameters copies them to the device; the third makes one block of memory of several.
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(RunJobs(*cuda, {large.run.MakeJob()}).ok());
  for (const char* api : {"cudaMallocAsync", "cudaFreeAsync"}) {
    cuda_on_cpu::Reset();
    cuda_on_cpu::FailCalls(api, 0, cudaErrorIllegalAddress, true);  // the device is lost at the first call
    EXPECT_EQ(RunJobs(*cuda, {small.run.MakeJob()}), absl::OkStatus()) << api;
    EXPECT_EQ(RunJobs(*cuda, {large.run.MakeJob()}), absl::OkStatus()) << api;
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << api;
  }
  cuda_on_cpu::Reset();
}

TEST_F(DeviceBackendTest, AJobOverTheMemoryLimitIsRefusedAndTheNextOneServed) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend({.streams = 1, .max_device_bytes = int64_t{4} << 20});
  Prepared large(*cuda, Rows(1000, 1000));
  const absl::Status status = RunJobs(*cuda, {large.run.MakeJob()});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  const Case small = Rows(10, 1000);
  const CaseData data = DataOf(small);
  EXPECT_EQ(DifferenceOf(Execute(*cuda, small, data), Execute(*cpu_, small, data)), "");
}

TEST_F(DeviceBackendTest, EveryCallMayFailOnceAndTheNextJobIsServed) {
  for (const char* api : {"cudaMallocAsync", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaLaunchKernelEx",
                          "cudaEventRecord", "cudaEventSynchronize", "cudaStreamSynchronize", "cudaFuncSetAttribute"}) {
    for (int call = 0; call < 4; ++call) {
      cuda_on_cpu::Reset();
      const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
      const Case c = Rows(2, 300000);
      const CaseData data = DataOf(c);
      const bool memory = std::string_view(api) == "cudaMallocAsync";
      cuda_on_cpu::FailCalls(api, call, memory ? cudaErrorMemoryAllocation : cudaErrorInvalidValue, false);
      Prepared one(*cuda, c);
      const absl::Status status = RunJobs(*cuda, {one.run.MakeJob()});
      if (!status.ok()) {
        EXPECT_EQ(status.code(), memory ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal)
            << api << ": " << status;
      }
      cuda_on_cpu::Reset();
      EXPECT_EQ(DifferenceOf(Execute(*cuda, c, data), Execute(*cpu_, c, data)), "") << api << " call " << call;
    }
  }
}

TEST_F(DeviceBackendTest, ALostDeviceRefusesEverythingAndGivesItsMemoryBack) {
  const size_t before = cuda_on_cpu::BytesAllocated();
  const int64_t objects = cuda_on_cpu::ObjectsAlive();
  for (const char* api : {"cudaMemcpyAsync", "cudaLaunchKernelEx", "cudaEventQuery"}) {
    cuda_on_cpu::Reset();
    {
      const std::unique_ptr<Backend> cuda = EmulatedCudaBackend({.streams = 3});
      Prepared one(*cuda, Rows(2, 300000));
      cuda_on_cpu::FailCalls(api, 1, cudaErrorIllegalAddress, true);
      const absl::Status status = RunJobs(*cuda, {one.run.MakeJob()});
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << api << ": " << status;
      EXPECT_NE(status.message().find("cudaErrorIllegalAddress"), std::string::npos) << status;
      EXPECT_EQ(RunJobs(*cuda, {one.run.MakeJob()}).code(), absl::StatusCode::kUnavailable);
    }
    cuda_on_cpu::Reset();
    EXPECT_EQ(cuda_on_cpu::BytesAllocated(), before) << api;
    EXPECT_EQ(cuda_on_cpu::ObjectsAlive(), objects) << api;
  }
}

TEST_F(DeviceBackendTest, AMachineWithoutAUsableDeviceSaysWhy) {
  const auto refusal = [&](const CudaBackendOptions& options) {
    const auto backend = MakeCudaBackend(options);
    EXPECT_EQ(backend.status().code(), absl::StatusCode::kUnavailable);
    return std::string(backend.status().message());
  };
  cuda_on_cpu::FailCalls("cudaGetDeviceCount", 0, cudaErrorNoDevice, false);
  EXPECT_NE(refusal({}).find("cudaErrorNoDevice"), std::string::npos);
  cuda_on_cpu::Reset();
  EXPECT_EQ(refusal({.device = 3}), "no CUDA device 3: there are 1");
  cuda_on_cpu::SetDevice({.major = 7, .minor = 5});
  EXPECT_EQ(refusal({}), "compute capability 7.5: kernels are built for 8.0 and above");
  EXPECT_FALSE(cuda_on_cpu::HasContext(0)) << "whose memory would be lost to others";
  cuda_on_cpu::Reset();
  cuda_on_cpu::FailCalls("cudaMallocHost", 5, cudaErrorMemoryAllocation, false);
  EXPECT_NE(refusal({.streams = 3}).find("cudaMallocHost"), std::string::npos);
}

// What a call held is given back in its callback: CUDA memory that was opened on another device, too.
TEST_F(DeviceBackendTest, ACallbackMayLeaveAnotherDeviceCurrent) {
  cuda_on_cpu::SetDeviceCount(2);
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  Prepared one(*cuda, Rows(3, 300));
  for (int i = 0; i < 2; ++i) {
    std::promise<absl::Status> done;
    cuda->Submit({one.run.MakeJob()}, [&done](absl::Status status) {
      EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
      done.set_value(std::move(status));
    });
    EXPECT_EQ(done.get_future().get(), absl::OkStatus());
  }
}

TEST_F(DeviceBackendTest, JobListsOfSeveralCallersRunAtOneTime) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend({.streams = 3});
  const std::vector<Case> all = Mixed();
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (size_t i = 0; i < all.size(); ++i) {
        const Case& c = all[(i + static_cast<size_t>(caller) * 5) % all.size()];
        const CaseData data = DataOf(c);
        EXPECT_EQ(WrongBesideCpu(*cpu_, c, data, Execute(*cuda, c, data)), "") << c.Name();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST_F(DeviceBackendTest, WorkThatWasSubmittedIsDoneBeforeTheBackendGoes) {
  std::vector<std::unique_ptr<Prepared>> runs;
  int done = 0;
  std::unique_ptr<Backend> cuda = EmulatedCudaBackend({.streams = 1});
  for (int i = 0; i < 20; ++i) {
    runs.push_back(std::make_unique<Prepared>(*cuda, Rows(2, 100)));
    cuda->Submit({runs.back()->run.MakeJob()}, [&done](absl::Status status) { done += status.ok() ? 1 : 0; });
  }
  cuda.reset();
  EXPECT_EQ(done, 20);
}

}  // namespace
}  // namespace normd
