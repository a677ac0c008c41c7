// normd itself on a real GPU, as a process of its own: tensors that come with the request, and tensors in memory of
// this process that normd opens by IPC handle, which only two processes can show. Judged by the bytes of the same
// request on the CPU. normd is looked for beside this program.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "client/cpp/tensor.h"
#include "tests/device/gpu/gpu_test.h"
#include "tests/support/random.h"

extern char** environ;

namespace normd {
namespace {

std::string NormdPath() {
  char self[PATH_MAX] = "";
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (length <= 0) return "";
  return std::filesystem::path(std::string(self, static_cast<size_t>(length))).replace_filename("normd").string();
}

// A child that serves on a Unix socket in a folder of its own. Ends with this.
class NormdProcess {
 public:
  explicit NormdProcess(const std::string& program) {
    char folder[] = "/tmp/normd-gpu.XXXXXX";
    if (mkdtemp(folder) == nullptr) return;
    folder_ = folder;
    std::vector<std::string> words = {program, "--listen=" + target(), "--admin_listen=", "--session_store=memory"};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    const std::string log = folder_ + "/log";
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (posix_spawn(&pid_, program.c_str(), &files, nullptr, arguments.data(), environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&files);
  }
  ~NormdProcess() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  NormdProcess(const NormdProcess&) = delete;
  NormdProcess& operator=(const NormdProcess&) = delete;

  std::string target() const { return "unix:" + folder_ + "/s"; }
  // Whether it came to serve: a GPU's first use takes seconds.
  bool Serves() const {
    const absl::Time until = absl::Now() + absl::Seconds(60);
    const std::unique_ptr<Client> client = Client::Connect(target()).value();
    while (pid_ > 0 && absl::Now() < until && waitpid(pid_, nullptr, WNOHANG) == 0) {
      const absl::StatusOr<Health> health = client->CheckHealth();
      if (health.ok() && *health == Health::kServing) return true;
      absl::SleepFor(absl::Milliseconds(50));
    }
    return false;
  }

 private:
  std::string folder_;
  pid_t pid_ = -1;
};

v1::NormalizeRequest Request(int64_t rows, int64_t n, v1::DType dtype) {
  std::vector<double> values(static_cast<size_t>(rows * n));
  Random random(static_cast<uint64_t>(rows * n));
  for (double& value : values) value = random.Normal();
  client::Tensor x = client::Tensor::Rounded(dtype, {rows, n}, values);
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_layer_norm()->add_normalized_shape(n);
  request.mutable_x()->set_dtype(dtype);
  request.mutable_x()->add_shape(rows);
  request.mutable_x()->add_shape(n);
  request.mutable_x()->set_data(std::move(x.data));
  return request;
}

class GpuServiceTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    const std::string program = NormdPath();
    if (access(program.c_str(), X_OK) != 0) GTEST_SKIP() << "NOT RUN: no program " << program;
    normd_ = std::make_unique<NormdProcess>(program);
    ASSERT_TRUE(normd_->Serves()) << program;
    client_ = Client::Connect(normd_->target()).value();
  }

  v1::NormalizeResponse On(v1::Device device, v1::NormalizeRequest request) {
    request.set_device(device);
    absl::StatusOr<v1::NormalizeResponse> response = client_->Normalize(std::move(request));
    EXPECT_TRUE(response.ok()) << response.status();
    if (!response.ok()) return {};
    EXPECT_EQ(response->applied().device(), device);
    EXPECT_FALSE(response->applied().device_fallback());
    return *std::move(response);
  }

  std::unique_ptr<NormdProcess> normd_;
  std::unique_ptr<Client> client_;
};

// An event of this process that another one may open.
class InterprocessEvent {
 public:
  InterprocessEvent() {
    EXPECT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventInterprocess), cudaSuccess);
  }
  ~InterprocessEvent() { cudaEventDestroy(event_); }
  InterprocessEvent(const InterprocessEvent&) = delete;
  InterprocessEvent& operator=(const InterprocessEvent&) = delete;

  cudaEvent_t get() const { return event_; }
  std::string Handle() const {
    cudaIpcEventHandle_t handle;
    EXPECT_EQ(cudaIpcGetEventHandle(&handle, event_), cudaSuccess);
    return std::string(reinterpret_cast<const char*>(&handle), sizeof(handle));
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// A stream whose work waits, from Block to Unblock.
class BlockedStream {
 public:
  BlockedStream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  ~BlockedStream() {
    Unblock();
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    cudaStreamDestroy(stream_);
  }
  BlockedStream(const BlockedStream&) = delete;
  BlockedStream& operator=(const BlockedStream&) = delete;

  void Block() {
    blocked_ = true;
    EXPECT_EQ(cudaLaunchHostFunc(stream_, &Wait, this), cudaSuccess);
  }
  void Unblock() {
    blocked_ = false;
    blocked_.notify_all();
  }
  cudaStream_t get() const { return stream_; }

 private:
  static void CUDART_CB Wait(void* self) { static_cast<BlockedStream*>(self)->blocked_.wait(true); }

  cudaStream_t stream_ = nullptr;
  std::atomic<bool> blocked_{false};
};

// Memory of this process, registered with normd: x in its first half, y in its second.
class RegisteredPair {
 public:
  RegisteredPair(Client* client, const v1::NormalizeRequest& request, const std::string& event_handle = "")
      : bytes_(request.x().data().size()), memory_(request.x().data() + std::string(bytes_, '\x5A'), 0) {
    cudaIpcMemHandle_t handle;
    EXPECT_EQ(cudaIpcGetMemHandle(&handle, memory_.data()), cudaSuccess);
    absl::StatusOr<std::unique_ptr<client::CudaRegion>> region =
        client->RegisterCuda({.ipc_handle = std::string(reinterpret_cast<const char*>(&handle), sizeof(handle)),
                              .size_bytes = 2 * bytes_,
                              .event_handle = event_handle});
    EXPECT_TRUE(region.ok()) << region.status();
    if (region.ok()) region_ = *std::move(region);
  }

  bool ok() const { return region_ != nullptr; }
  // The request with its tensors where they lie.
  v1::NormalizeRequest InPlace(v1::NormalizeRequest request) const {
    client::SetShared({region_.get(), 0, bytes_}, request.mutable_x());
    v1::OutputRequest* const y = request.add_outputs();
    y->set_kind(v1::OUTPUT_KIND_Y);
    client::SetShared({region_.get(), bytes_, bytes_}, y);
    return request;
  }
  // Writes x anew, in the order of `stream`. `x` must live until the stream has done so, in pinned memory.
  void WriteX(const void* x, cudaStream_t stream) {
    EXPECT_EQ(cudaMemcpyAsync(memory_.data(), x, bytes_, cudaMemcpyHostToDevice, stream), cudaSuccess);
  }
  std::string x() const { return memory_.Content().substr(0, bytes_); }
  std::string y() const { return memory_.Content().substr(bytes_); }

 private:
  const size_t bytes_;
  const DeviceBytes memory_;
  std::unique_ptr<client::CudaRegion> region_;  // goes before the memory
};

TEST_F(GpuServiceTest, TensorsOfTheRequestHaveTheBytesOfTheCpu) {
  for (const v1::DType dtype : {v1::DTYPE_F16, v1::DTYPE_BF16, v1::DTYPE_F32, v1::DTYPE_F64}) {
    for (const int64_t n : {1, 67, 4096, 100'003}) {
      const v1::NormalizeRequest request = Request(9, n, dtype);
      const std::string want = On(v1::DEVICE_CPU, request).outputs(0).tensor().data();
      EXPECT_TRUE(On(v1::DEVICE_CUDA, request).outputs(0).tensor().data() == want) << v1::DType_Name(dtype) << " " << n;
    }
  }
}

TEST_F(GpuServiceTest, TensorsInMemoryOfThisProcessAreNormalisedWhereTheyLie) {
  for (const v1::DType dtype : {v1::DTYPE_BF16, v1::DTYPE_F32}) {
    for (const int64_t n : {67, 4096, 100'003}) {
      const v1::NormalizeRequest request = Request(33, n, dtype);
      const std::string want = On(v1::DEVICE_CPU, request).outputs(0).tensor().data();
      const RegisteredPair pair(client_.get(), request);
      ASSERT_TRUE(pair.ok());
      const v1::NormalizeResponse response = On(v1::DEVICE_CUDA, pair.InPlace(request));
      ASSERT_EQ(response.outputs_size(), 1);
      EXPECT_FALSE(response.outputs(0).tensor().has_data());
      EXPECT_TRUE(pair.y() == want) << v1::DType_Name(dtype) << " " << n;
      EXPECT_TRUE(pair.x() == request.x().data()) << "x is only read";
    }
  }
}

// Regions come and go while others are in use; every answer has the bytes that it should.
TEST_F(GpuServiceTest, ManyRegionsAtOnceKeepTheirOwnBytes) {
  constexpr int kThreads = 6, kRounds = 20;
  std::atomic<int> wrong{0}, refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const std::unique_ptr<Client> client = Client::Connect(normd_->target()).value();
      v1::NormalizeRequest request = Request(17 + i, 1000 + 301 * i, v1::DTYPE_BF16);
      request.set_device(v1::DEVICE_CPU);
      const absl::StatusOr<v1::NormalizeResponse> want = client->Normalize(request);
      request.set_device(v1::DEVICE_CUDA);
      for (int round = 0; round < kRounds; ++round) {
        const RegisteredPair pair(client.get(), request);
        const bool answered = want.ok() && pair.ok() && client->Normalize(pair.InPlace(request)).ok();
        if (!answered) {
          ++refused;
        } else if (pair.y() != want->outputs(0).tensor().data()) {
          ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(refused, 0);
}

// normd reads x when the stream that writes it has got as far as the event. The caller waits for nothing before it
// sends, and other callers are served while the event is pending.
TEST_F(GpuServiceTest, ACallStartsWhenTheEventOfItsRegionHasCompleted) {
  const v1::NormalizeRequest request = Request(33, 4096, v1::DTYPE_F32);
  const std::string want = On(v1::DEVICE_CPU, request).outputs(0).tensor().data();
  v1::NormalizeRequest stale = request;  // what lies there before the stream writes x
  std::fill(stale.mutable_x()->mutable_data()->begin(), stale.mutable_x()->mutable_data()->end(), '\0');
  const InterprocessEvent event;
  RegisteredPair pair(client_.get(), stale, event.Handle());
  ASSERT_TRUE(pair.ok());
  void* pinned = nullptr;  // pageable memory would make the copy wait for the stream here
  ASSERT_EQ(cudaMallocHost(&pinned, request.x().data().size()), cudaSuccess);
  std::memcpy(pinned, request.x().data().data(), request.x().data().size());
  {
    BlockedStream stream;
    stream.Block();
    pair.WriteX(pinned, stream.get());
    ASSERT_EQ(cudaEventRecord(event.get(), stream.get()), cudaSuccess);
    std::future<v1::NormalizeResponse> answer =
        std::async(std::launch::async, [&] { return On(v1::DEVICE_CUDA, pair.InPlace(request)); });
    EXPECT_EQ(answer.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
    EXPECT_EQ(On(v1::DEVICE_CUDA, request).outputs(0).tensor().data(), want) << "others are served meanwhile";
    stream.Unblock();
    answer.get();
  }
  EXPECT_TRUE(pair.y() == want);
  cudaFreeHost(pinned);
}

TEST_F(GpuServiceTest, AnEventThatStaysPendingEndsWithTheDeadlineAndLeavesTheDeviceToOthers) {
  const v1::NormalizeRequest request = Request(33, 4096, v1::DTYPE_F32);
  const std::string want = On(v1::DEVICE_CPU, request).outputs(0).tensor().data();
  const std::unique_ptr<Client> hasty =
      Client::Connect(normd_->target(), {.deadline = absl::Milliseconds(500)}).value();
  const InterprocessEvent event;
  const RegisteredPair pair(hasty.get(), request, event.Handle());
  ASSERT_TRUE(pair.ok());
  BlockedStream stream;
  stream.Block();
  ASSERT_EQ(cudaEventRecord(event.get(), stream.get()), cudaSuccess);
  EXPECT_EQ(hasty->Normalize(pair.InPlace(request)).status().code(), absl::StatusCode::kDeadlineExceeded);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(On(v1::DEVICE_CUDA, request).outputs(0).tensor().data(), want);
}

TEST_F(GpuServiceTest, AHandleOfNoEventIsRefused) {
  const DeviceBytes memory(64, 0);
  cudaIpcMemHandle_t handle;
  ASSERT_EQ(cudaIpcGetMemHandle(&handle, memory.data()), cudaSuccess);
  const absl::Status refused =
      client_
          ->RegisterCuda({.ipc_handle = std::string(reinterpret_cast<const char*>(&handle), sizeof(handle)),
                          .size_bytes = 64,
                          .event_handle = std::string(sizeof(cudaIpcEventHandle_t), 'x')})
          .status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_EQ(client::GetErrorInfo(refused)->field, "cuda.event_handle");
}

TEST_F(GpuServiceTest, AHandleOfNothingIsRefusedAndTheNextRequestIsServed) {
  const absl::Status refused =
      client_->RegisterCuda({.ipc_handle = std::string(sizeof(cudaIpcMemHandle_t), 'x'), .size_bytes = 64}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  const v1::NormalizeRequest request = Request(4, 64, v1::DTYPE_F32);
  EXPECT_EQ(On(v1::DEVICE_CUDA, request).outputs(0).tensor().data(),
            On(v1::DEVICE_CPU, request).outputs(0).tensor().data());
}

}  // namespace
}  // namespace normd
