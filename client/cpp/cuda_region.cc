#include "client/cpp/cuda_region.h"

#include <grpcpp/grpcpp.h>

#include <mutex>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "client/cpp/channels.h"
#include "normd/v1/shared_memory.grpc.pb.h"

namespace normd {
namespace client {
namespace {

void SetRange(const CudaBlock& block, v1::SharedRange* range) {
  range->set_region(block.region->name());
  range->set_offset(block.offset);
  range->set_size_bytes(block.size_bytes);
}

}  // namespace

// One RegisterRegion call, which stays open as long as the region. A completion queue instead of a blocking read, so
// that waiting for the answer ends at the deadline, and so that the end of the call is noticed without a thread.
struct CudaRegion::Call {
  explicit Call(const std::shared_ptr<grpc::Channel>& to) : stub(v1::SharedMemory::NewStub(to)) {}
  ~Call();

  // Returns the name that the server gave.
  absl::StatusOr<std::string> Register(const CudaMemory& memory, absl::Time deadline);
  bool registered();
  // Waits for the operation in progress; false if it did not complete by `deadline`. `ok` is the operation's result.
  bool Await(absl::Time deadline, bool* ok);
  // The final status of the call. REQUIRES: no operation is in progress.
  grpc::Status Finish();

  const std::unique_ptr<v1::SharedMemory::Stub> stub;
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  std::unique_ptr<grpc::ClientAsyncReader<v1::RegisterRegionResponse>> reader;
  v1::RegisterRegionResponse response;

  std::mutex mu;
  bool pending = false;  // an operation is in progress; guarded by mu once the region is made
};

bool CudaRegion::Call::Await(absl::Time deadline, bool* ok) {
  void* tag = nullptr;
  if (queue.AsyncNext(&tag, ok, ToDeadline(deadline)) != grpc::CompletionQueue::GOT_EVENT) return false;
  pending = false;
  return true;
}

grpc::Status CudaRegion::Call::Finish() {
  grpc::Status status;
  reader->Finish(&status, this);
  bool ok = false;
  Await(absl::InfiniteFuture(), &ok);
  return status;
}

absl::StatusOr<std::string> CudaRegion::Call::Register(const CudaMemory& memory, absl::Time deadline) {
  v1::RegisterRegionRequest request;
  request.set_size_bytes(memory.size_bytes);
  v1::CudaMemory* const cuda = request.mutable_cuda();
  cuda->set_ipc_handle(memory.ipc_handle);
  cuda->set_device(memory.device);
  cuda->set_offset(memory.offset);
  cuda->set_event_handle(memory.event_handle);
  reader = stub->PrepareAsyncRegisterRegion(&context, request, &queue);
  pending = true;
  reader->StartCall(this);
  bool ok = false;
  for (const bool starts : {true, false}) {
    if (!Await(deadline, &ok)) return absl::DeadlineExceededError("RegisterRegion: the server did not answer in time");
    if (!ok) return FromGrpc(Finish(), context);
    if (!starts) break;
    pending = true;
    reader->Read(&response, this);
  }
  std::string name = response.region();
  // The server sends no second answer: this read completes when the call ends.
  pending = true;
  reader->Read(&response, this);
  return name;
}

bool CudaRegion::Call::registered() {
  const std::lock_guard<std::mutex> lock(mu);
  bool ok = false;
  // A time in the past, so that Await only polls. gRPC misreads the infinite past.
  if (pending) Await(absl::UnixEpoch(), &ok);
  return pending;
}

CudaRegion::Call::~Call() {
  bool ok = false;
  if (reader != nullptr) {
    context.TryCancel();
    if (pending) Await(absl::InfiniteFuture(), &ok);
  }
  queue.Shutdown();
  void* tag = nullptr;
  while (queue.Next(&tag, &ok)) {
  }
}

CudaRegion::CudaRegion(std::string name, uint64_t size_bytes, std::unique_ptr<Call> call)
    : name_(std::move(name)), size_bytes_(size_bytes), call_(std::move(call)) {}
CudaRegion::~CudaRegion() = default;

bool CudaRegion::registered() const { return call_->registered(); }

void SetShared(const CudaBlock& block, v1::Tensor* tensor) { SetRange(block, tensor->mutable_shared()); }
void SetShared(const CudaBlock& block, v1::OutputRequest* output) { SetRange(block, output->mutable_shared()); }

}  // namespace client

namespace {
constexpr int kRegionConnection = 2;  // 0 and 1 are the connections for calls
}

absl::StatusOr<std::unique_ptr<client::CudaRegion>> Client::RegisterCuda(const client::CudaMemory& memory) {
  // A connection of its own, because open calls count against the number of calls that a connection may have at a time.
  auto call = std::make_unique<client::CudaRegion::Call>(
      client::MakeChannel(target_, options_, *channels_->credentials, kRegionConnection));
  channels_->credentials->AddTo(&call->context);
  absl::StatusOr<std::string> name = call->Register(memory, absl::Now() + options_.deadline);
  if (!name.ok()) return client::ExplainConnection(name.status(), channels_->callee);
  return std::unique_ptr<client::CudaRegion>(
      new client::CudaRegion(*std::move(name), memory.size_bytes, std::move(call)));
}

}  // namespace normd
