#include "server/rpc/grpc/grpc_connection.h"

#include <optional>

#include "server/base/steady_time.h"

namespace normd::rpc {

void GrpcConnection::EndMessage(bool complete) {
  const absl::Time now = SteadyNow();
  if (!delivery_.End(complete, now)) return;
  if (const std::optional<int64_t> received = ReceivedBytes(); received.has_value()) delivery_.Settle(*received, now);
}

DeliveryAccount::Bounds GrpcConnection::UndeliveredBytes(absl::Time now) {
  const std::optional<int64_t> received = ReceivedBytes();
  return received.has_value() ? delivery_.Undelivered(*received, now) : DeliveryAccount::Bounds();
}

}  // namespace normd::rpc
