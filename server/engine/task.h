// One call on its way through the engine: what was asked, what it runs as, and the reply being built.
// In the path: PlanTask (the checks), PrepareTask (parameters and outputs, once everything is valid), then the engine's
// batch. Threads: a task belongs to one stage at a time; stages hand it on.
#ifndef NORMD_SERVER_ENGINE_TASK_H_
#define NORMD_SERVER_ENGINE_TASK_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/moments.h"
#include "kernels/plan.h"
#include "server/base/buffer.h"
#include "server/engine/call.h"
#include "server/engine/parameter_cache.h"
#include "server/engine/prepared_call.h"
#include "server/schedule/device_scheduler.h"
#include "server/session/session_store.h"

namespace normd {

struct Task {
  Call call;
  SessionPtr session;                            // the snapshot the call reads; null for a spec target
  std::shared_ptr<const PreparedCall> prepared;  // what it runs as; null before PlanTask
  MemorySpace space;                             // that tensors of the call lie in; the host's: all do

  std::shared_ptr<const PreparedParameters> parameters;  // null: none
  // Statistics that the plan is given. The pointers are into `session`, the request's as f64, or `divisor`.
  const double* given_mean = nullptr;
  const double* given_variance = nullptr;
  std::vector<double> request_mean, request_variance;
  std::vector<double> divisor;

  Buffer together;  // room for a scattered x, where what runs it needs it in one piece

  Moments moments;      // empty: not wanted
  absl::Status status;  // the first error; ok so far
  CallReply reply;

  // REQUIRES: PlanTask has begun.
  const NormSpec& spec() const { return prepared->spec; }
  const NormPlan& plan() const { return prepared->plan; }
  bool is_two_pass() const { return prepared->is_two_pass; }
  bool commits() const { return prepared->commits; }

  // The session that the call names, null for a spec target.
  const std::string* TargetId() const;
  bool Wants(OutputKind kind) const;
  // Whether a half has anything to compute; an empty tensor has only its statistics, if they are wanted.
  bool ReduceHasWork() const;
  bool ApplyHasWork() const;
  // The job of the first half, or of all of it; and that of the second. REQUIRES: PrepareTask was ok.
  Job ReduceJob();
  Job ApplyJob();
  // Takes into reply.applied what ran a half.
  void NoteExecuted(const Executed& executed);
};

// Checks everything that can be wrong with the call, makes its plans unless the call was prepared before, and fills
// reply.applied and, for session targets, reply.state. Allocates nothing in proportion to the tensor. REQUIRES:
// task->session is set for a session target.
absl::Status PlanTask(const SessionStore& sessions, const DeviceScheduler& scheduler, Task* task);

// How many bytes of the call's and its session's PlanTask and PrepareTask look at one by one: the mask, and parameters
// that are converted.
int64_t BytesToPrepareFrom(const Task& task);

// Parameters, given statistics and outputs, large ones from `buffers`. REQUIRES: PlanTask was ok, not validate_only.
absl::Status PrepareTask(const DeviceScheduler& scheduler, ParameterCache* parameters, BufferPool* buffers, Task* task);

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_TASK_H_
