// Ends messages far over the size limit, and those of the greediest connection when all together hold too many bytes:
// gRPC 1.51 receives a whole message before it compares the size with the limit, and counts no bytes, so the
// connections' counts are used.
// In the path: beside the calls; TransferWatch has it look. Ownership: borrows the admission, which must outlive it.
// Threads: Look is called from one thread at a time.
#ifndef NORMD_SERVER_RPC_GRPC_OVERSIZED_WATCH_H_
#define NORMD_SERVER_RPC_GRPC_OVERSIZED_WATCH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "server/rpc/edge/admission.h"
#include "server/rpc/edge/rpc_call.h"
#include "server/rpc/edge/rpc_options.h"
#include "server/rpc/grpc/grpc_connection.h"

namespace normd::rpc {

class OversizedWatch {
 public:
  using Calls = std::vector<std::shared_ptr<RpcCall>>;

  OversizedWatch(const RpcOptions& options, const Admission* admission);

  // The server has no calls yet: the present memory of the process is the baseline.
  void Start();
  // Looks once at the calls whose messages are on their way.
  void Look(const Calls& calls) const;

 private:
  // The bytes that gRPC holds of the messages of `calls`, which are all calls in progress of one connection.
  static int64_t UndeliveredBytes(GrpcConnection& connection, const Calls& calls, bool short_of_memory);

  const Admission* const admission_;
  const int64_t max_message_bytes_;
  const int64_t max_held_bytes_;  // of undelivered messages in gRPC and admitted requests together
  // Growth of the process beyond which an uncertain estimate of a connection's bytes is resolved against the peer.
  const int64_t max_growth_bytes_;
  int64_t bytes_at_start_ = 0;  // private memory of the process
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_GRPC_OVERSIZED_WATCH_H_
