#include "server/rpc/services/health_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"
#include "server/rpc/edge/status.h"
#include "server/rpc/services/handlers.h"
#include "server/rpc/services/method_names.h"

namespace normd::rpc {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

bool IsKnown(const std::string& service) {
  return service.empty() || service == "normd.v1.Normalizer" || service == "normd.v1.Sessions";
}

MessageBytes Response(HealthCheckResponse::ServingStatus status) {
  HealthCheckResponse response;
  response.set_status(status);
  return Serialize(response);
}

}  // namespace

std::vector<Route> HealthService::Routes() {
  Route check = Unary<HealthCheckRequest>(
      &context_, MethodPath("grpc.health.v1.Health", "Check"),
      [this](Parsed<HealthCheckRequest> request, Reply reply) { Check(request->service(), std::move(reply)); });
  check.always_served = true;
  return {std::move(check), ServerStreaming<HealthCheckRequest>(
                                &context_, MethodPath("grpc.health.v1.Health", "Watch"),
                                [this](Parsed<HealthCheckRequest> request, std::shared_ptr<RpcCall> stream,
                                       Observation) { Watch(request->service(), std::move(stream)); })};
}

void HealthService::Check(const std::string& service, Reply reply) {
  if (!IsKnown(service)) {
    return reply(MakeError(ServerReason("SERVICE_UNKNOWN"),
                           {.field = "service", .value = service, .limit = "a service of this server"},
                           absl::StrCat("is \"", service, "\", which this server does not have")));
  }
  bool serving = false;
  {
    MutexLock lock(mu_);
    serving = serving_;
  }
  reply(Response(serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING));
}

void HealthService::Watch(const std::string& service, std::shared_ptr<RpcCall> stream) {
  auto watcher = std::make_shared<Watcher>();
  watcher->stream = std::move(stream);
  watcher->known_service = IsKnown(service);
  bool ended = false;
  {
    MutexLock lock(mu_);
    ended = ended_;
    if (!ended) watchers_.insert(watcher);
  }
  if (ended) return watcher->stream->Finish(DrainingError());
  watcher->stream->WhenOver([this, watcher](const absl::Status& end) {
    if (end.ok()) return;
    {
      MutexLock lock(mu_);
      watchers_.erase(watcher);
    }
    watcher->stream->Finish(CallerGoneError());
  });
  Update(watcher);
}

void HealthService::Update(const WatcherPtr& watcher) {
  ServingStatus status = HealthCheckResponse::SERVICE_UNKNOWN;
  {
    MutexLock lock(mu_);
    if (watcher->known_service) status = serving_ ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
    if (watcher->writing || watcher->sent == status) return;
    watcher->writing = true;
    watcher->sent = status;
  }
  watcher->stream->Write(Response(status), [this, watcher] {
    {
      MutexLock lock(mu_);
      watcher->writing = false;
    }
    Update(watcher);
  });
}

void HealthService::SetServing(bool serving) {
  std::unordered_set<WatcherPtr> watchers;
  {
    MutexLock lock(mu_);
    serving_ = serving;
    watchers = watchers_;
  }
  for (const WatcherPtr& watcher : watchers) Update(watcher);
}

void HealthService::EndWatches() {
  std::unordered_set<WatcherPtr> watchers;
  {
    MutexLock lock(mu_);
    ended_ = true;
    watchers.swap(watchers_);
  }
  for (const WatcherPtr& watcher : watchers) watcher->stream->Finish(DrainingError());
}

}  // namespace normd::rpc
