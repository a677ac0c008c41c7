// A plain call planned once, to run again and again with another x: stateless, without parameters, y alone asked for,
// and small enough to run inline. Most of what a small call costs besides gRPC is planning what was planned before.
// Immutable; safe from any thread.
#ifndef NORMD_SERVER_ENGINE_PREPARED_CALL_H_
#define NORMD_SERVER_ENGINE_PREPARED_CALL_H_

#include <memory>

#include "kernels/backend.h"
#include "server/engine/call.h"

namespace normd {

struct PreparedCall {
  NormPlan plan;
  Applied applied;
  bool takes_segments = false;
  int64_t y_bytes = 0;  // and those of x
};

// Null for a call that is not plain. REQUIRES: `call` was run, or would be, without an error.
std::shared_ptr<const PreparedCall> PrepareCall(const SessionStore& sessions, const Backend& backend, const Call& call);

// What Engine::Submit would answer for the call with this x, in `y`, which has y_bytes. An x in pieces is put together
// in `x_buffer`, which has as many, unless takes_segments. Runs inline.
absl::Status RunPrepared(Backend& backend, const PreparedCall& call, const TensorView& x, void* x_buffer, void* y);

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_PREPARED_CALL_H_
