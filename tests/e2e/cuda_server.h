// A server whose CUDA device is a fake: its regions cannot be accessed by the host, its backend finds them all the
// same. Tensors of the host stay on the CPU. On a Unix socket and on TCP.
#ifndef NORMD_TESTS_E2E_CUDA_SERVER_H_
#define NORMD_TESTS_E2E_CUDA_SERVER_H_

#include <memory>
#include <string>
#include <utility>

#include "client/cpp/client.h"
#include "kernels/cpu/backend.h"
#include "normd/v1/shared_memory.grpc.pb.h"
#include "server/base/clock.h"
#include "server/schedule/device_scheduler.h"
#include "server/shm/region_table.h"
#include "tests/e2e/test_server.h"
#include "tests/support/fake_cuda_backend.h"

namespace normd::e2e {

class CudaServer {
 public:
  static constexpr int kDevice = 1;

  explicit CudaServer(bool shared_memory = true) {
    RpcOptions options;
    options.listeners = {target(), "127.0.0.1:0"};
    options.queues = 2;
    if (shared_memory) options.regions = &table_;
    auto server = RpcServer::Start(std::move(options), &engine_, &resources_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::string target() const { return "unix:" + folder_.path() + "/s"; }
  std::string tcp_target() const { return "127.0.0.1:" + std::to_string(server_->ports()[1]); }
  std::unique_ptr<Client> NewClient(ClientOptions options = {}) const {
    return Client::Connect(target(), std::move(options)).value();
  }
  // How the server ends a registration that it refuses.
  grpc::Status Refusal(const v1::RegisterRegionRequest& request) const {
    const auto stub = v1::SharedMemory::NewStub(grpc::CreateChannel(target(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    const auto call = stub->RegisterRegion(&context, request);
    v1::RegisterRegionResponse response;
    EXPECT_FALSE(call->Read(&response));
    return call->Finish();
  }
  RpcServer& server() { return *server_; }
  FakeCuda& cuda() { return cuda_; }
  FakeCudaBackend& backend() { return backend_; }
  RegionTable& table() { return table_; }

 private:
  CudaOpener Opener() {
    return {.devices = {kDevice},
            .open = [this](std::string_view handle, int device) -> absl::StatusOr<CudaAllocation> {
              const absl::StatusOr<FakeCuda::Opened> opened = cuda_.Open(handle, device);
              if (!opened.ok()) return opened.status();
              return CudaAllocation{opened->data, opened->size_bytes};
            },
            .close = [this](const CudaAllocation& allocation, int) { cuda_.Close(allocation.data); },
            .open_event = [this](std::string_view handle, int device) { return cuda_.OpenEvent(handle, device); },
            .close_event = [this](void* event, int) { cuda_.CloseEvent(event); },
            .is_event_completed = [this](void* event, int) { return cuda_.IsEventCompleted(event); }};
  }

  TemporaryFolder folder_;
  SystemClock clock_;
  MemoryStore store_{SessionLimits(), &clock_};
  FakeCuda cuda_;
  FakeCudaBackend backend_{&cuda_, kDevice, MakeCpuBackend({.threads = 2})};
  const std::unique_ptr<Backend> cpu_ = MakeCpuBackend({.threads = 2});
  SteadyClock steady_clock_;
  // The device has what lies in its memory or names it; to AUTO it is too dear.
  DeviceScheduler scheduler_{
      cpu_.get(), DeviceCost(), {{.backend = &backend_, .cost = {.fixed_us = 1e9}}}, &steady_clock_};
  Resources resources_;
  Engine engine_{&scheduler_, &store_, &resources_};
  RegionTable table_{RegionLimits(), Opener()};
  std::unique_ptr<RpcServer> server_;
};

}  // namespace normd::e2e

#endif  // NORMD_TESTS_E2E_CUDA_SERVER_H_
