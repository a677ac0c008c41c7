// What a completion queue carries: one callback for one operation under way.
// In the path: armed by Stream when it starts an operation, run by the queue's thread when that is over.
// A tag is armed again only after it ran. Ownership: the callback keeps the stream that holds the tag alive.
#ifndef NORMD_SERVER_RPC_TRANSPORT_TAG_H_
#define NORMD_SERVER_RPC_TRANSPORT_TAG_H_

#include <utility>

#include "absl/functional/any_invocable.h"
#include "kernels/base/tsan_annotations.h"

namespace normd::rpc {

class Tag {
 public:
  using Callback = absl::AnyInvocable<void(bool ok)>;

  // The pointer to give to gRPC. REQUIRES: not armed.
  void* Arm(Callback callback) {
    callback_ = std::move(callback);
    TsanRelease(this);
    return this;
  }

  // May destroy the tag.
  void Run(bool ok) {
    TsanAcquire(this);
    Callback callback = std::move(callback_);
    callback(ok);
  }

 private:
  Callback callback_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_TAG_H_
