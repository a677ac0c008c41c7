#include "server/engine/prepared_call.h"

#include <utility>
#include <vector>

#include "server/engine/task.h"

namespace normd {
namespace {

bool IsPlain(const Call& call) {
  const bool own_statistics = !call.running_mean.present() && !call.running_var.present();
  const bool y_alone = call.outputs.empty() || (call.outputs.size() == 1 && call.outputs[0].kind == OutputKind::kY &&
                                                !call.outputs[0].shared.has_value());
  return std::holds_alternative<NormSpec>(call.target) && !call.parameters.weight.present() &&
         !call.parameters.bias.present() && own_statistics && !call.residual.present() && !call.mask.present() &&
         y_alone && !call.validate_only && !call.moments_only;
}

// A weight_offset makes a layer of ones.
bool NeedsNoLayer(const NormSpec& spec) { return spec.weight_offset == 0; }

}  // namespace

std::shared_ptr<const PreparedCall> PrepareCall(const SessionStore& sessions, const Backend& backend,
                                                const Call& call) {
  if (!IsPlain(call) || !NeedsNoLayer(std::get<NormSpec>(call.target))) return nullptr;
  if (call.device == Device::kCuda) return nullptr;  // queued, whatever its size
  if (ElementCount(call.x.shape) > backend.inline_elements()) return nullptr;
  Task task;
  task.call = call;
  if (!PlanTask(sessions, backend, &task).ok()) return nullptr;
  const NormPlan& plan = task.plan;
  if (task.two_halves || plan.given_statistics || plan.elements == 0) return nullptr;
  auto prepared = std::make_shared<PreparedCall>();
  prepared->takes_segments = backend.TakesSegments(plan);
  prepared->y_bytes = plan.elements * SizeOf(plan.dtype);
  prepared->plan = std::move(task.plan);
  prepared->plan.parameter_order = {};  // an index for each reduced element, for parameters alone
  prepared->applied = std::move(task.reply.applied);
  return prepared;
}

absl::Status RunPrepared(Backend& backend, const PreparedCall& call, const TensorView& x, void* x_buffer, void* y) {
  std::vector<Job> jobs(1);
  jobs[0].plan = &call.plan;
  jobs[0].x = x.data;
  jobs[0].x_segments = x.segments;
  if (x.scattered() && !call.takes_segments) jobs[0].x_buffer = x_buffer;
  jobs[0].y = y;
  absl::Status result;
  backend.Submit(std::move(jobs), [&result](absl::Status status) { result = std::move(status); });
  return result;
}

}  // namespace normd
