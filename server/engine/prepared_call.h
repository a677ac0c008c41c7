// All of a call that does not depend on the bytes of its tensors: what it asks for, planned and checked once. Another
// call that asks for the same, with tensors of the same dtypes and shapes, is neither parsed nor planned again.
// In the path: PlanTask makes it, the reply hands it up, and whoever recognises the next call (rpc/call_cache.h) puts
// it into Call::prepared. Immutable; safe from any thread.
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
  // PowerNorm training divides by what the step's commit says, so it runs in two halves: Reduce by `plan`, then Apply
  // by `apply_plan`, which is given the divisor.
  bool is_two_pass = false;
  NormPlan apply_plan;
  bool commits = false;  // a training step on a session with running state

  Applied applied;  // the session's version apart, which each call has its own of

  // Whether such a call runs on the thread that submits it: small, on the CPU, in one pass, and nothing is committed.
  bool runs_inline = false;

  // The session that it was prepared for; empty for a spec target.
  std::string uid;
  uint64_t parameters_version = 0;
  int64_t num_channels = 0;

  // Whether it holds for `session` as it is now (null: a spec target).
  bool IsFor(const Session* session) const {
    if (session == nullptr) return uid.empty();
    return uid == session->uid && parameters_version == session->parameters_version &&
           num_channels == session->num_channels;
  }
};

// Whether Engine::Submit has called `done` when it returns: nobody needs to be asked whether the caller still waits.
inline bool RunsAtOnce(const Call& call) {
  return call.prepared != nullptr && call.prepared->runs_inline && std::holds_alternative<NormSpec>(call.target);
}

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_PREPARED_CALL_H_
