#include "server/rpc/edge/dispatcher.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/steady_time.h"
#include "server/rpc/edge/access_check.h"

namespace normd::rpc {
namespace {

// For its caller, a call is over a moment before its end has passed through the queue here, and the caller may have
// opened the next call by then. So a caller that keeps to the limit may be counted with twice as many calls.
constexpr int kCallsCountedPerAllowed = 2;

// How records name a method that does not exist, and its key for the access check.
constexpr std::string_view kUnknownMethod = "unknown";
constexpr size_t kNoMethod = std::numeric_limits<size_t>::max();

// A call that was denied may have no identity, and its tenant stays unknown.
void NoteTenant(const RpcObserver* observer, RpcCall* call) {
  const IdentityPtr& identity = call->identity();
  if (identity == nullptr) return;
  const bool has_index = observer != nullptr && observer->tenant_index != nullptr;
  call->SetTenantIndex(has_index ? observer->tenant_index(identity->tenant) : 0);
}

}  // namespace

void Dispatcher::Add(std::vector<Route> routes) {
  for (Route& route : routes) {
    std::string path = route.path;
    const std::string service = path.substr(1, path.rfind('/') - 1);  // "/normd.v1.Normalizer/Describe"
    if (std::find(services_.begin(), services_.end(), service) == services_.end()) services_.push_back(service);
    const size_t access_index = context_->access == nullptr ? 0 : context_->access->MethodIndex(path);
    routes_.insert_or_assign(std::move(path), Served{std::move(route), access_index});
  }
}

absl::Status Dispatcher::Start(RpcTransport* transport) {
  return transport->Start(host_, [this](std::shared_ptr<RpcCall> call) { Dispatch(std::move(call)); });
}

bool Dispatcher::Drain(absl::Duration grace) {
  draining_ = true;
  // Reading must be ended, because a stream may wait for its next message for ever. A message on its way may still
  // come.
  for (const std::shared_ptr<RpcCall>& call : live_.Collect([](const RpcCall&) { return true; })) {
    call->EndReading(DrainingError(), /*keep_current=*/true);
  }
  return live_.WaitForNoCalls(grace);
}

absl::Status Dispatcher::Admit(RpcCall* call, const Route& route) {
  if (draining_ && !route.always_served) return DrainingError();
  const Connection& connection = call->connection();
  const int own = connection.live_calls();
  // The server counts calls itself: a transport limits only peers that have acknowledged its settings.
  const int most = max_calls_per_connection_ * kCallsCountedPerAllowed;
  if (own > most) {
    call->CountReset(kWeightOfExcess);
    return NoRoomError("calls_of_connection", own, most);
  }
  if (route.always_served) return absl::OkStatus();
  CallPlace place;
  NORMD_RETURN_IF_ERROR(places_.Take(connection, &place));
  call->KeepPlace(std::move(place));
  return absl::OkStatus();
}

bool Dispatcher::LetIn(const std::shared_ptr<RpcCall>& call, const Served* served) {
  const AuditSink* const sink = context_->observer == nullptr ? nullptr : &context_->observer->on_audit;
  const size_t index = served != nullptr ? served->access_index : kNoMethod;
  const std::optional<AccessDenial> denial = CheckAccess(context_->access, index, call.get());
  NoteTenant(context_->observer, call.get());
  if (!denial.has_value()) {
    if (served != nullptr && served->route.audited) call->BeginAudit(sink);
    return true;
  }
  // Strangers must not fill the collector, nor take the places of callers until they have read their refusal.
  call->ForgetTrace();
  call->GiveUpPlace();
  call->BeginAudit(sink, kDenialNames[static_cast<size_t>(denial->denial)]);
  Refuse(*context_, call, denial->error, served != nullptr ? std::string_view() : kUnknownMethod);
  return false;
}

void Dispatcher::Dispatch(std::shared_ptr<RpcCall> call) {
  call->ReadTrace(context_->observer);
  const auto found = routes_.find(call->method());
  const Served* const served = found == routes_.end() ? nullptr : &found->second;
  if (served != nullptr) {
    if (absl::Status status = Admit(call.get(), served->route); !status.ok()) {
      return Refuse(*context_, std::move(call), status);
    }
  }
  if (!LetIn(call, served)) return;
  if (served == nullptr) {
    const absl::Status unknown = UnknownMethodError(call->method(), absl::StrJoin(services_, ", "));
    return Refuse(*context_, std::move(call), unknown, kUnknownMethod);
  }
  served->route.start(std::move(call));
}

}  // namespace normd::rpc
