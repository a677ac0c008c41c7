// Everything about a call that does not depend on the bytes of its tensors, planned and checked once. A later call that
// asks for the same, with tensors of the same dtypes and shapes, is neither parsed nor planned again.
// In the path: CheckTask makes a PreparedCall, the reply hands it up, and the call cache (rpc/codec/call_cache.h) puts
// it into Call::prepared of equal calls. Immutable; safe from any thread.
#ifndef NORMD_SERVER_ENGINE_PREPARED_CALL_H_
#define NORMD_SERVER_ENGINE_PREPARED_CALL_H_

#include <cstdint>
#include <string>
#include <variant>

#include "kernels/plan.h"
#include "server/engine/call.h"
#include "server/session/session_store.h"

namespace normd {

struct PreparedCall {
  NormSpec spec;  // the call's or the session's

  NormPlan plan;
  // Training whose y is normalised with what the step's commit returns (CommitGivesStatistics) takes two passes: the
  // reduce pass by `plan`, then the apply pass by `apply_plan`, which is given these statistics.
  bool is_two_pass = false;
  NormPlan apply_plan;
  bool commits = false;  // a training step on a session with running state

  Applied applied;  // without session_version, which each call fills in

  // Whether such a call runs on the submitting thread: it is small, on the CPU, in one pass, and commits nothing.
  bool runs_inline = false;

  // The session that the call was prepared for; empty for a spec target.
  std::string uid;
  uint64_t parameters_version = 0;
  int64_t num_channels = 0;

  // Whether the preparation holds for the present `session` (null: a spec target).
  bool IsFor(const Session* session) const {
    if (session == nullptr) return uid.empty();
    return uid == session->uid && parameters_version == session->parameters_version &&
           num_channels == session->num_channels;
  }
};

// Whether Engine::Submit has called `done` by the time it returns, so that `call` needs no `cancelled`.
inline bool RunsAtOnce(const Call& call) {
  return call.prepared != nullptr && call.prepared->runs_inline && std::holds_alternative<NormSpec>(call.target);
}

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_PREPARED_CALL_H_
