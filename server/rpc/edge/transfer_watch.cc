#include "server/rpc/edge/transfer_watch.h"

#include <algorithm>
#include <utility>

#include "server/base/errors.h"
#include "server/base/steady_time.h"
#include "server/obs/process.h"

namespace normd::rpc {
namespace {

// A peer on the same host sends 50 MB in this time, so the budget may be exceeded by that much.
constexpr absl::Duration kInterval = absl::Milliseconds(20);
// While the budget is nearly spent, the grace is divided by this.
constexpr int kHaste = 5;
constexpr absl::Duration kGraceInDrain = absl::Milliseconds(500);
// Frame headers and metadata beside a message.
constexpr int64_t kOverheadBytes = int64_t{1} << 20;
// The window of a call, which gRPC may hold beside its messages.
constexpr int64_t kWindowBytes = int64_t{16} << 20;
// An honest process on this host has sent its message within this time.
constexpr absl::Duration kTimeToSendLocally = absl::Milliseconds(500);

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
  bytes_at_start_ = ReadPrivateBytes();
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
  EndOversized(calls);
}

TransferLimits TransferWatch::CurrentLimits() const {
  TransferLimits limits = options_.limits;
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

int64_t TransferWatch::UndeliveredBytes(Connection& connection, const Calls& calls, bool short_of_memory) {
  const absl::Time now = SteadyNow();
  if (!connection.is_unix()) {
    const DeliveryAccount::Bounds bytes = connection.UndeliveredBytes(now);
    return short_of_memory ? bytes.at_most : bytes.at_least;
  }
  // The kernel does not count the bytes of a Unix socket, so a late message counts with its largest possible size.
  int64_t bytes = 0;
  for (const std::shared_ptr<RpcCall>& call : calls) {
    const std::optional<RpcCall::Progress> read = call->ReadProgress(now);
    if (read.has_value() && read->elapsed > kTimeToSendLocally) bytes += read->bytes;
  }
  return bytes;
}

void TransferWatch::EndOversized(const Calls& calls) const {
  std::unordered_map<Connection*, Calls> by_connection;
  for (const std::shared_ptr<RpcCall>& call : calls) {
    if (call->connection()->open_messages() > 0) by_connection[call->connection().get()].push_back(call);
  }
  if (by_connection.empty()) return;
  // A peer that keeps abandoning messages can hide other messages behind them; the memory of the process reveals that.
  const bool short_of_memory = ReadPrivateBytes() - bytes_at_start_ > options_.max_growth_bytes;
  int64_t held_bytes = admission_->held_bytes();
  int64_t most_bytes = 0;
  Connection* greediest = nullptr;
  for (const auto& [connection, own] : by_connection) {
    const int64_t bytes = UndeliveredBytes(*connection, own, short_of_memory);
    const int64_t allowed = connection->open_messages() * (options_.max_message_bytes + kOverheadBytes) +
                            connection->live_calls() * kWindowBytes;
    if (bytes > allowed) {
      for (const auto& call : own) {
        call->EndReading(
            LimitExceededError("message_bytes", bytes, options_.max_message_bytes, {.option = "--max_message_bytes"}));
      }
      continue;
    }
    held_bytes += bytes;
    if (bytes > most_bytes) greediest = connection;
    most_bytes = std::max(most_bytes, bytes);
  }
  if (held_bytes <= options_.max_held_bytes || greediest == nullptr) return;
  for (const auto& call : by_connection[greediest]) {
    call->EndReading(
        NoRoomError("bytes_in_flight", held_bytes, options_.max_held_bytes, {.option = "--max_in_flight_bytes"}));
  }
}

}  // namespace normd::rpc
