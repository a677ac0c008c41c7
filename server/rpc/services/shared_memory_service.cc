#include "server/rpc/services/shared_memory_service.h"

#include <utility>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/errors.h"
#include "server/rpc/edge/status.h"
#include "server/rpc/services/handlers.h"
#include "server/rpc/services/method_names.h"

namespace normd::rpc {
namespace {

// Mapping and unmapping always count as large work, because these system calls may wait for others.
constexpr int64_t kMappingBytes = WorkPool::kLargeBytes;

}  // namespace

SharedMemoryService::~SharedMemoryService() {
  MutexLock lock(mu_);
  for (const Registration& left : left_) regions_->Remove(left.owner, left.region).IgnoreError();
}

std::vector<Route> SharedMemoryService::Routes() {
  return {Audited(ServerStreaming<v1::RegisterRegionRequest>(
      context_, MethodPath("normd.v1.SharedMemory", "RegisterRegion"),
      [this](Parsed<v1::RegisterRegionRequest> request, std::shared_ptr<RpcCall> stream, Observation observation) {
        RegisterLater(std::move(request), std::move(stream), std::move(observation));
      }))};
}

void SharedMemoryService::RegisterLater(Parsed<v1::RegisterRegionRequest> request, std::shared_ptr<RpcCall> stream,
                                        Observation observation) {
  RunIfLarge(*context_, kMappingBytes,
             [this, stream = std::move(stream), request = std::move(request),
              observation = std::move(observation)]() mutable { Register(*request, stream, std::move(observation)); });
}

void SharedMemoryService::Register(const v1::RegisterRegionRequest& request, const std::shared_ptr<RpcCall>& stream,
                                   Observation observation) {
  absl::StatusOr<Registration> made = AddRegion(request, *stream);
  if (!made.ok()) return Reply(stream, std::move(observation))(made.status());
  if (!Keep(stream, *made)) {
    regions_->Remove(made->owner, made->region).IgnoreError();
    return Reply(stream, std::move(observation))(DrainingError());
  }
  v1::RegisterRegionResponse response;
  response.set_region(made->region);
  MessageBytes message = Serialize(response);
  // The request is over with its answer, because the lifetime of a region is not the duration of a request.
  observation.Finish(absl::OkStatus(), message.size_bytes());
  stream->EndAudit(absl::StatusCode::kOk);
  stream->Write(std::move(message));
  // The callback runs at once if the caller is gone already.
  stream->WhenOver([this, stream](const absl::Status& end) {
    if (end.ok()) return;
    RunIfLarge(*context_, kMappingBytes, [this, stream] {
      Remove(stream);
      stream->Finish(CallerGoneError());
    });
  });
}

absl::StatusOr<SharedMemoryService::Registration> SharedMemoryService::AddRegion(
    const v1::RegisterRegionRequest& request, const RpcCall& stream) {
  const TensorSource::SharedMemory allowed = SharedMemoryOf(*context_, stream);
  const std::string_view field = request.has_cuda() ? "cuda" : "posix_name";
  if (regions_ == nullptr || allowed.regions == nullptr) return NotAllowedError(field, allowed.refusal);
  if (request.cuda().ipc_handle().empty() && !request.cuda().event_handle().empty()) {
    return NotAllowedError("cuda.event_handle", "the registration names no CUDA memory: cuda.ipc_handle is empty");
  }
  if (request.has_cuda() && !request.posix_name().empty()) return ExclusiveError(field, "posix_name");
  // All connections of one user of the Unix socket are one owner, if they are of one tenant.
  const std::string& tenant = allowed.tenant;
  const std::string user = Concat("rpc ", stream.is_local() ? stream.connection().address() : stream.peer());
  const std::string owner_name = tenant.empty() ? user : Concat(user, " of ", tenant);
  const RegionOwner owner(owner_name, tenant);
  const v1::CudaMemory& cuda = request.cuda();
  NORMD_ASSIGN_OR_RETURN(
      std::string region,
      request.has_cuda()
          ? regions_->AddCuda(owner, {cuda.ipc_handle(), cuda.device(), cuda.offset(), cuda.event_handle()},
                              request.size_bytes())
          : regions_->AddPosixName(owner, request.posix_name(), request.size_bytes()));
  return Registration{owner_name, std::move(region)};
}

bool SharedMemoryService::Keep(const std::shared_ptr<RpcCall>& stream, const Registration& registration) {
  MutexLock lock(mu_);
  if (!ended_) open_.emplace(stream, registration);
  return !ended_;
}

void SharedMemoryService::Remove(const std::shared_ptr<RpcCall>& stream) {
  Registration registration;
  {
    MutexLock lock(mu_);
    const auto found = open_.find(stream);
    if (found == open_.end()) return;
    registration = std::move(found->second);
    open_.erase(found);
  }
  regions_->Remove(registration.owner, registration.region).IgnoreError();
}

void SharedMemoryService::EndRegistrations() {
  std::unordered_map<std::shared_ptr<RpcCall>, Registration> open;
  {
    MutexLock lock(mu_);
    ended_ = true;
    open.swap(open_);
    for (auto& [stream, registration] : open) left_.push_back(std::move(registration));
  }
  for (const auto& [stream, registration] : open) stream->Finish(DrainingError());
}

}  // namespace normd::rpc
