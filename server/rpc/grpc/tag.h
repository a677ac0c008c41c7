// A tag of a completion queue: the callback of one operation in progress.
// In the path: GrpcCall arms a tag when it starts an operation, and the queue's thread runs the tag when the operation
// is over. A tag may be armed again only after it ran. Ownership: the callback keeps the call alive, which owns the
// tag. Threads: Arm happens before Run.
#ifndef NORMD_SERVER_RPC_GRPC_TAG_H_
#define NORMD_SERVER_RPC_GRPC_TAG_H_

#include <utility>

#include "absl/functional/any_invocable.h"
#include "server/base/tsan_annotations.h"

namespace normd::rpc {

class Tag {
 public:
  using Callback = absl::AnyInvocable<void(bool ok)>;

  // Stores `callback` and returns the pointer to give to gRPC. REQUIRES: the tag is not armed.
  void* Arm(Callback callback) {
    callback_ = std::move(callback);
    TsanRelease(this);
    return this;
  }

  // Runs the callback, which may destroy the tag.
  void Run(bool ok) {
    TsanAcquire(this);
    Callback callback = std::move(callback_);
    callback(ok);
  }

 private:
  Callback callback_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_GRPC_TAG_H_
