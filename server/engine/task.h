// One call on its way through the engine: the request, the plan that it runs by, and the reply being built.
// In the path: CheckTask and PlanTask check and plan, PrepareTask makes parameters and outputs once everything is
// valid, then BatchExecution (engine.cc) runs the jobs. Threads: a task belongs to one stage at a time; stages hand it
// on.
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
  SessionPtr session;                            // the snapshot that the call reads; null for a spec target
  std::shared_ptr<const PreparedCall> prepared;  // the plan that it runs by; null before CheckTask
  MemorySpace space;                             // FindMemorySpace of the call

  std::shared_ptr<const PreparedParameters> parameters;  // null: none
  // Statistics given to the plan. The pointers are into `session`, or into the request's values as f64.
  const double* given_mean = nullptr;
  const double* given_variance = nullptr;
  std::vector<double> request_mean, request_variance;
  // Given statistics of the apply pass; the divisor, which is its variance, is empty before the commit. Statistics
  // about zero have no mean.
  std::vector<double> apply_mean, divisor;

  Buffer contiguous;  // room for a contiguous x, if x is scattered and its backend needs it contiguous

  Moments moments;                   // empty: not wanted
  std::vector<double> mean_squares;  // with the moments, for StateUpdate; else empty
  Extremes extremes;                 // with the moments, where the spec counts samples; else empty
  GroupSums exact;                   // with the moments, where the call wants them; else empty
  absl::Status status;               // the first error; OK so far
  CallReply reply;

  // REQUIRES: `prepared` is set, which CheckTask does.
  const NormSpec& spec() const { return prepared->spec; }
  const NormPlan& plan() const { return prepared->plan; }
  bool is_two_pass() const { return prepared->is_two_pass; }
  bool commits() const { return prepared->commits; }

  // The id of the session that the call names; null for a spec target.
  const std::string* TargetId() const;
  bool Wants(OutputKind kind) const;
  // Whether the pass has anything to compute. An empty tensor has only its statistics, if they are wanted.
  bool ReduceHasWork() const;
  bool ApplyHasWork() const;
  // The job of the reduce pass, which is the whole call unless is_two_pass(), and that of the apply pass. REQUIRES:
  // PrepareTask returned OK.
  Job ReduceJob();
  Job ApplyJob();
  // Records in reply.applied which device and kernel ran a pass.
  void NoteExecuted(const Executed& executed);
};

// Checks everything that can be wrong with the call but the values of its tensors, which it does not read, and makes
// its plans unless the call was prepared before. Allocates nothing in proportion to the tensor. Called at most once.
// REQUIRES: task->session is set for a session target.
absl::Status CheckTask(const DeviceScheduler& scheduler, Task* task);

// Does what CheckTask does, if that was not called, checks the values of the tensors, and fills the reply's `applied`,
// `prepared`, `rows` and, for session targets, `state`. REQUIRES: as above.
absl::Status PlanTask(const SessionStore& sessions, const DeviceScheduler& scheduler, Task* task);

// Bytes of the call and its session that PlanTask and PrepareTask look at one by one: the mask, and parameters that are
// converted.
int64_t BytesToPrepareFrom(const Task& task);

// Makes parameters, moments, a contiguous x and outputs, where the call needs them; large blocks come from `buffers`.
// Fails if call.reserve does. REQUIRES: PlanTask returned OK, and the call is not validate_only.
absl::Status PrepareTask(const DeviceScheduler& scheduler, ParameterCache* parameters, BufferPool* buffers, Task* task);

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_TASK_H_
