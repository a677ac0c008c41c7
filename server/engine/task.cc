#include "server/engine/task.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/base/status_macros.h"

namespace normd {

namespace {

// MEAN and INV_STD have a value a statistic set, Y and H are like x.
OutputTensor MakeOutput(const NormPlan& plan, OutputKind kind) {
  const bool is_statistic = kind == OutputKind::kMean || kind == OutputKind::kInverseStd;
  OutputTensor output;
  output.kind = kind;
  output.dtype = is_statistic ? plan.StatisticsDType() : plan.dtype;
  output.shape = is_statistic ? plan.statistics_shape : plan.shape;
  const int64_t elements = is_statistic ? plan.Sets() : plan.elements;
  output.bytes = Buffer(static_cast<size_t>(elements * SizeOf(output.dtype)));
  return output;
}

void PointTo(OutputTensor* output, const NormPlan& plan, Job* job) {
  void* data = output->bytes.data();
  switch (output->kind) {
    case OutputKind::kY:
      job->y = data;
      break;
    case OutputKind::kH:
      job->h = data;
      break;
    case OutputKind::kMean:
      job->mean = data;
      // Statistics about zero have the mean 0, as their moments do; no kernel computes it.
      if (plan.statistic != Statistic::kMeanVariance) {
        job->mean = nullptr;
        if (data != nullptr) std::memset(data, 0, output->bytes.size_bytes());
      }
      break;
    case OutputKind::kInverseStd:
      job->inverse_std = data;
      break;
    case OutputKind::kMoments:
      break;
  }
}

Job InputJob(const Task& task, const NormPlan& plan) {
  Job job;
  job.plan = &plan;
  job.layer = task.layer.get();
  job.x = task.call.x.data;
  job.residual = task.call.residual;
  job.residual_scale = task.call.residual_scale;
  job.residual_rounding = task.call.residual_rounding;
  // Statistics that are given are not masked.
  if (!plan.given_statistics) job.mask = static_cast<const uint8_t*>(task.call.mask.data);
  return job;
}

}  // namespace

const std::string* Task::TargetId() const {
  const auto* target = std::get_if<SessionTarget>(&call.target);
  return target == nullptr ? nullptr : &target->id;
}

bool Task::Wants(OutputKind kind) const {
  if (call.moments_only) return kind == OutputKind::kMoments;
  if (call.outputs.empty()) return kind == OutputKind::kY;
  return std::find(call.outputs.begin(), call.outputs.end(), kind) != call.outputs.end();
}

bool Task::FirstHasWork() const { return !moments.empty() || (!two_halves && SecondHasWork()); }

bool Task::SecondHasWork() const {
  return plan.elements > 0 || Wants(OutputKind::kMean) || Wants(OutputKind::kInverseStd);
}

Job Task::FirstJob() {
  Job job = InputJob(*this, plan);
  job.given_mean = given_mean;
  job.given_variance = given_variance;
  if (!moments.empty()) job.moments = moments.data();
  if (two_halves) return job;
  for (OutputTensor& output : reply.outputs) PointTo(&output, plan, &job);
  return job;
}

Job Task::SecondJob() {
  Job job = InputJob(*this, apply_plan);
  job.given_variance = divisor.data();
  for (OutputTensor& output : reply.outputs) PointTo(&output, apply_plan, &job);
  return job;
}

absl::Status PrepareTask(const Backend& backend, LayerCache* layers, Task* task) {
  if (task->plan.elements == 0) {
    // Nothing to apply parameters to, and their length is not bounded by the bytes that came.
  } else if (task->session != nullptr) {
    NORMD_ASSIGN_OR_RETURN(task->layer, layers->Get(*task->session, task->plan));
  } else {
    NORMD_ASSIGN_OR_RETURN(task->layer, PrepareLayer(backend, task->spec, task->plan, task->call.parameters));
  }
  if (task->commits || task->two_halves || task->Wants(OutputKind::kMoments)) {
    task->moments.resize(static_cast<size_t>(task->plan.Sets()));
  }
  if (task->call.moments_only) return absl::OkStatus();
  if (task->call.outputs.empty()) task->call.outputs = {OutputKind::kY};
  for (const OutputKind kind : task->call.outputs) {
    if (kind != OutputKind::kMoments) task->reply.outputs.push_back(MakeOutput(task->plan, kind));
  }
  return absl::OkStatus();
}

}  // namespace normd
