// A server of its own for each test, in this process, on a port or a Unix socket that nobody else has, with stubs to
// talk to it. Everything of the server is real; the CPU's backend can be stopped at a gate, to look at calls under way.
#ifndef NORMD_TESTS_E2E_TEST_SERVER_H_
#define NORMD_TESTS_E2E_TEST_SERVER_H_

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "kernels/cpu/backend.h"
#include "normd/v1/normalizer.grpc.pb.h"
#include "normd/v1/sessions.grpc.pb.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/engine/engine.h"
#include "server/rpc/rpc_server.h"
#include "server/schedule/device_scheduler.h"
#include "server/session/memory/memory_store.h"
#include "tests/support/eventually.h"

namespace normd::e2e {

// The CPU backend behind a gate: while it is closed, submitted jobs wait.
class GatedBackend : public Backend {
 public:
  GatedBackend() : cpu_(MakeCpuBackend({.threads = 2})) {}
  ~GatedBackend() override { Open(); }

  std::string_view name() const override { return cpu_->name(); }
  std::string KernelName(const NormPlan& plan) const override { return cpu_->KernelName(plan); }
  bool Supports(const NormPlan& plan) const override { return cpu_->Supports(plan); }
  // Nothing, as this may hold any job back; all that the CPU backend does after RunInline.
  int64_t inline_elements() const override { return inline_ ? cpu_->inline_elements() : 0; }
  bool AcceptsScattered(const NormPlan& plan) const override { return cpu_->AcceptsScattered(plan); }
  // REQUIRES: no Close from now on.
  void RunInline() { inline_ = true; }
  std::shared_ptr<const PreparedParameters> Prepare(std::shared_ptr<const HostParameters> parameters) const override {
    return cpu_->Prepare(std::move(parameters));
  }

  void Submit(std::vector<Job> jobs, Done done) override {
    {
      MutexLock lock(mu_);
      ++submitted_;
      changed_.SignalAll();
      if (closed_) {
        waiting_.emplace_back(std::move(jobs), std::move(done));
        return;
      }
    }
    cpu_->Submit(std::move(jobs), std::move(done));
  }

  void Close() {
    MutexLock lock(mu_);
    closed_ = true;
  }

  // Newest first, so that what answers in order must put it in order.
  void Open() {
    std::vector<std::pair<std::vector<Job>, Done>> waiting;
    {
      MutexLock lock(mu_);
      closed_ = false;
      waiting.swap(waiting_);
    }
    for (; !waiting.empty(); waiting.pop_back()) {
      cpu_->Submit(std::move(waiting.back().first), std::move(waiting.back().second));
    }
  }

  int submitted() {
    MutexLock lock(mu_);
    return submitted_;
  }
  void WaitForSubmitted(int count) {
    MutexLock lock(mu_);
    while (submitted_ < count) changed_.Wait(mu_);
  }

 private:
  const std::unique_ptr<Backend> cpu_;
  std::atomic<bool> inline_{false};
  Mutex mu_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int submitted_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::pair<std::vector<Job>, Done>> waiting_ ABSL_GUARDED_BY(mu_);
};

// The transport that all servers of this process have: NORMD_TEST_TRANSPORT is native, the default, or grpc.
inline TransportKind TestedTransport() {
  const char* const wanted = std::getenv("NORMD_TEST_TRANSPORT");
  return wanted != nullptr && std::string_view(wanted) == "grpc" ? TransportKind::kGrpc : TransportKind::kNative;
}

class TestServer {
 public:
  // Everything runs on the CPU.
  explicit TestServer(RpcOptions options = {}) : TestServer(std::move(options), std::vector<ScheduledDevice>()) {}
  // With devices, which must outlive it. As far as AUTO knows the CPU takes a microsecond for each byte.
  TestServer(RpcOptions options, std::vector<ScheduledDevice> devices, SchedulerObserver observer = {})
      : store_({.quotas = options.quotas}, &clock_),
        scheduler_(&backend_, DeviceCost(), std::move(devices), &steady_clock_, std::move(observer)) {
    if (options.listeners.empty()) options.listeners = {"127.0.0.1:0"};
    if (options.queues == 0) options.queues = 2;
    options.transport = TestedTransport();
    const std::string address = options.listeners[0];
    auto server = RpcServer::Start(std::move(options), &engine_, &resources_);
    if (!server.ok()) ADD_FAILURE() << server.status().ToString();
    if (!server.ok()) std::abort();  // nothing in a test makes sense without its server
    server_ = *std::move(server);
    target_ = address.rfind("unix:", 0) == 0 ? address : "127.0.0.1:" + std::to_string(server_->ports()[0]);
    channel_ = NewChannel();
    normalizer_ = v1::Normalizer::NewStub(channel_);
    sessions_ = v1::Sessions::NewStub(channel_);
    health_ = grpc::health::v1::Health::NewStub(channel_);
  }
  ~TestServer() { backend_.Open(); }

  // With a connection of its own, and no limit on replies.
  std::shared_ptr<grpc::Channel> NewChannel() const {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(target_, grpc::InsecureChannelCredentials(), arguments);
  }

  const std::string& target() const { return target_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  v1::Normalizer::Stub& normalizer() { return *normalizer_; }
  v1::Sessions::Stub& sessions() { return *sessions_; }
  grpc::health::v1::Health::Stub& health() { return *health_; }
  RpcServer& server() { return *server_; }
  GatedBackend& backend() { return backend_; }

  grpc::Status Normalize(const v1::NormalizeRequest& request, v1::NormalizeResponse* response) {
    grpc::ClientContext context;
    return normalizer_->Normalize(&context, request, response);
  }

  // The next request is served.
  void ExpectAlive();

 private:
  SystemClock clock_;
  MemoryStore store_;
  GatedBackend backend_;
  SteadyClock steady_clock_;
  DeviceScheduler scheduler_;
  // Nothing waits before it is submitted to the scheduler.
  Resources resources_;
  Engine engine_{&scheduler_, &store_, &resources_, {.max_large_calls = 1 << 20}};
  std::string target_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Normalizer::Stub> normalizer_;
  std::unique_ptr<v1::Sessions::Stub> sessions_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

// A folder that goes away with the test. Short: a Unix socket's path has 107 bytes at most.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/normd-e2e-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// ---- Requests

inline void SetTensor(std::vector<int64_t> shape, const std::vector<float>& values, v1::Tensor* tensor) {
  tensor->set_dtype(v1::DTYPE_F32);
  tensor->mutable_shape()->Assign(shape.begin(), shape.end());
  tensor->set_data(values.data(), values.size() * sizeof(float));
}

inline void SetF64(const std::vector<double>& values, v1::Tensor* tensor) {
  tensor->set_dtype(v1::DTYPE_F64);
  tensor->clear_shape();
  tensor->add_shape(static_cast<int64_t>(values.size()));
  tensor->set_data(values.data(), values.size() * sizeof(double));
}

template <typename T>
std::vector<T> Values(const v1::Tensor& tensor) {
  std::vector<T> values(tensor.data().size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.data().data(), values.size() * sizeof(T));
  return values;
}

// LayerNorm over the last axis of [rows, 4], row r being [1, 2, 3, 4] * (r + 1).
inline v1::NormalizeRequest LayerNormRequest(int rows = 1) {
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_layer_norm()->add_normalized_shape(4);
  std::vector<float> values;
  for (int i = 0; i < 4 * rows; ++i) values.push_back(static_cast<float>((i % 4 + 1) * (i / 4 + 1)));
  SetTensor({rows, 4}, values, request.mutable_x());
  return request;
}

// RMSNorm of `values` as one row.
inline v1::NormalizeRequest RmsNormRequest(const std::vector<float>& values) {
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_rms_norm();
  SetTensor({1, static_cast<int64_t>(values.size())}, values, request.mutable_x());
  return request;
}

// ---- Errors

inline google::rpc::Status DetailsOf(const grpc::Status& status) {
  google::rpc::Status message;
  EXPECT_TRUE(message.ParseFromString(status.error_details()));
  return message;
}

template <typename T>
std::optional<T> Detail(const google::rpc::Status& status) {
  for (const google::protobuf::Any& any : status.details()) {
    T detail;
    if (any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

// The field that the BadRequest names; "" without one.
inline std::string FieldOf(const google::rpc::Status& status) {
  const auto bad_request = Detail<google::rpc::BadRequest>(status);
  return bad_request && bad_request->field_violations_size() == 1 ? bad_request->field_violations(0).field() : "";
}

inline std::string FieldOf(const grpc::Status& status) { return FieldOf(DetailsOf(status)); }

inline std::string ReasonOf(const google::rpc::Status& status) {
  const auto info = Detail<google::rpc::ErrorInfo>(status);
  return info && info->domain() == "normd" ? info->reason() : "";
}

inline std::string ReasonOf(const grpc::Status& status) { return ReasonOf(DetailsOf(status)); }

inline void TestServer::ExpectAlive() {
  v1::NormalizeResponse response;
  const grpc::Status status = Normalize(LayerNormRequest(), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.outputs_size(), 1);
}

}  // namespace normd::e2e

#endif  // NORMD_TESTS_E2E_TEST_SERVER_H_
