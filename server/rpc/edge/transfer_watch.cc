#include "server/rpc/edge/transfer_watch.h"

#include <algorithm>
#include <utility>

#include "server/base/errors.h"
#include "server/base/steady_time.h"

namespace normd::rpc {
namespace {

// A peer on the same host sends 50 MB in this time, so the budget may be exceeded by that much.
constexpr absl::Duration kInterval = absl::Milliseconds(20);
// While the budget is nearly spent, the grace is divided by this.
constexpr int kHaste = 5;
constexpr absl::Duration kGraceInDrain = absl::Milliseconds(500);

}  // namespace

bool IsTooSlow(const TransferLimits& limits, absl::Duration elapsed, int64_t bytes,
               std::optional<int64_t> moved_bytes) {
  const double seconds = absl::ToDoubleSeconds(elapsed - limits.grace);
  if (seconds <= 0) return false;
  const double due_bytes = seconds * static_cast<double>(limits.bytes_per_second);
  if (due_bytes >= static_cast<double>(bytes)) return true;
  return moved_bytes.has_value() && static_cast<double>(*moved_bytes) < due_bytes;
}

void TransferWatch::Start() {
  thread_.emplace(kInterval, [this] { Look(); });
}

void TransferWatch::Stop() { thread_.reset(); }

void TransferWatch::Look() {
  if (live_->calls() == 0) return;
  limiter_->Expire(SteadyNow());
  idle_.Look();
  const Calls calls = live_->Collect([](const RpcCall& call) { return call.in_progress(); });
  if (calls.empty()) return;
  EndSlow(calls);
  transport_->LookAt(calls);
}

TransferLimits TransferWatch::CurrentLimits() const {
  TransferLimits limits = limits_;
  if (admission_->held_bytes() > admission_->limits().max_bytes / 8 * 7) limits.grace /= kHaste;
  if (draining_) limits.grace = std::min(limits.grace, kGraceInDrain);
  return limits;
}

void TransferWatch::EndSlow(const Calls& calls) const {
  const absl::Time now = SteadyNow();
  const TransferLimits limits = CurrentLimits();
  TransferLimits of_readers = limits;
  of_readers.grace *= kPatienceForReaders;
  for (const std::shared_ptr<RpcCall>& call : calls) {
    const std::optional<RpcCall::Progress> read = call->ReadProgress(now);
    if (read.has_value() && IsTooSlow(limits, read->elapsed, read->bytes, read->moved_bytes)) {
      call->EndReading(draining_ ? DrainingError() : SlowMessageError(read->elapsed, limits.bytes_per_second));
    }
    const std::optional<RpcCall::Progress> write = call->WriteProgress(now);
    if (write.has_value() && IsTooSlow(of_readers, write->elapsed, write->bytes, write->moved_bytes)) call->Cancel();
  }
}

}  // namespace normd::rpc
