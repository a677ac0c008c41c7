#include "server/rpc/grpc/oversized_watch.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "server/base/errors.h"
#include "server/base/steady_time.h"
#include "server/obs/process.h"

namespace normd::rpc {
namespace {

// Frame headers and metadata beside a message.
constexpr int64_t kOverheadBytes = int64_t{1} << 20;
// The window of a call, which gRPC may hold beside its messages.
constexpr int64_t kWindowBytes = int64_t{16} << 20;
// An honest process on this host has sent its message within this time.
constexpr absl::Duration kTimeToSendLocally = absl::Milliseconds(500);

}  // namespace

OversizedWatch::OversizedWatch(const RpcOptions& options, const Admission* admission)
    : admission_(admission),
      max_message_bytes_(options.max_message_bytes),
      // The budget, the messages that wait in the read limiter, and the windows of a few streams.
      max_held_bytes_(options.max_in_flight_bytes / 4 * 7 + (int64_t{24} << 20)),
      // With the memory that the server has before its first call, a little less than twice the budget and 64 MiB.
      max_growth_bytes_(options.max_in_flight_bytes * 2 + (int64_t{16} << 20)) {}

void OversizedWatch::Start() { bytes_at_start_ = ReadPrivateBytes(); }

int64_t OversizedWatch::UndeliveredBytes(GrpcConnection& connection, const Calls& calls, bool short_of_memory) {
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

void OversizedWatch::Look(const Calls& calls) const {
  std::unordered_map<GrpcConnection*, Calls> by_connection;
  for (const std::shared_ptr<RpcCall>& call : calls) {
    if (call->connection().open_messages() > 0)
      by_connection[static_cast<GrpcConnection*>(&call->connection())].push_back(call);
  }
  if (by_connection.empty()) return;
  // A peer that keeps abandoning messages can hide other messages behind them; the memory of the process reveals that.
  const bool short_of_memory = ReadPrivateBytes() - bytes_at_start_ > max_growth_bytes_;
  int64_t held_bytes = admission_->held_bytes();
  int64_t most_bytes = 0;
  GrpcConnection* greediest = nullptr;
  for (const auto& [connection, own] : by_connection) {
    const int64_t bytes = UndeliveredBytes(*connection, own, short_of_memory);
    const int64_t allowed =
        connection->open_messages() * (max_message_bytes_ + kOverheadBytes) + connection->live_calls() * kWindowBytes;
    if (bytes > allowed) {
      for (const auto& call : own) {
        call->EndReading(
            LimitExceededError("message_bytes", bytes, max_message_bytes_, {.option = "--max_message_bytes"}));
      }
      continue;
    }
    held_bytes += bytes;
    if (bytes > most_bytes) greediest = connection;
    most_bytes = std::max(most_bytes, bytes);
  }
  if (held_bytes <= max_held_bytes_ || greediest == nullptr) return;
  for (const auto& call : by_connection[greediest]) {
    call->EndReading(NoRoomError("bytes_in_flight", held_bytes, max_held_bytes_, {.option = "--max_in_flight_bytes"}));
  }
}

}  // namespace normd::rpc
