#include "server/rpc/edge/observation.h"

#include <optional>
#include <string>
#include <utility>

#include "kernels/base/errors.h"

namespace normd::rpc {

Observation::Observation(const RpcObserver* observer, std::string_view rpc, const RequestOrigin& origin)
    : state_(std::make_unique<State>(State{.observer = observer, .arrived = SteadyNow(), .record = {}})) {
  state_->record.rpc = rpc;
  state_->record.origin = origin;
}

Observation& Observation::operator=(Observation&& other) noexcept {
  Written();
  state_ = std::move(other.state_);
  return *this;
}

void Observation::ReceivedSince(absl::Time headers) { state_->record.receive = state_->arrived - headers; }

void Observation::Finish(const absl::Status& status, int64_t response_bytes) {
  const RpcObserver* const observer = state_->observer;
  if (observer == nullptr || !observer->on_request_done) return;
  RequestRecord& record = state_->record;
  record.code = status.code();
  if (!status.ok()) {
    record.message = std::string(status.message());
    if (std::optional<ErrorDetail> detail = GetErrorDetail(status)) record.reason = std::move(detail->reason);
  }
  record.response_bytes = response_bytes;
  record.queue += state_->thread_wait;
  state_->finished = SteadyNow();
  record.total = record.receive + (state_->finished - state_->arrived);
  observer->on_request_done(record);
}

std::string Observation::Explain() const {
  const RpcObserver* const observer = state_->observer;
  const CallTrace* const trace = state_->record.origin.trace;
  if (observer == nullptr || !observer->explain || trace == nullptr || !trace->explain) return "";
  return observer->explain(state_->record);
}

void Observation::Written() {
  const std::unique_ptr<State> state = std::move(state_);
  if (state == nullptr || state->finished == absl::InfiniteFuture() || !state->observer->on_request_written) return;
  state->record.write = SteadyNow() - state->finished;
  state->record.total += state->record.write;
  state->observer->on_request_written(state->record);
}

}  // namespace normd::rpc
