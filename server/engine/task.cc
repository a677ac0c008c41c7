#include "server/engine/task.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/methods.h"
#include "server/engine/shared_outputs.h"

namespace normd {

namespace {

OutputTensor MakeOutput(const NormPlan& plan, WantedOutput wanted, BufferPool* buffers) {
  OutputTensor output;
  output.kind = wanted.kind;
  output.dtype = OutputDType(plan, wanted.kind);
  output.shape = OutputShape(plan, wanted.kind);
  output.shared = std::move(wanted.shared);
  if (!output.shared.has_value()) output.bytes = buffers->Take(static_cast<size_t>(OutputBytes(plan, wanted.kind)));
  return output;
}

void PointTo(OutputTensor* output, const NormPlan& plan, Job* job) {
  void* const data = output->data();
  switch (output->kind) {
    case OutputKind::kY:
      job->y = data;
      job->y_space = output->space();
      break;
    case OutputKind::kH:
      job->h = data;
      job->h_space = output->space();
      break;
    case OutputKind::kMean:
      job->mean = data;
      // Statistics about zero have mean 0, as their moments do; no kernel computes the mean.
      if (plan.statistic != Statistic::kMeanVariance) {
        job->mean = nullptr;
        if (data != nullptr) std::memset(data, 0, static_cast<size_t>(OutputBytes(plan, output->kind)));
      }
      break;
    case OutputKind::kInverseStd:
      job->inverse_std = data;
      break;
    case OutputKind::kMoments:
      break;
  }
}

Job InputJob(Task& task, const NormPlan& plan) {
  Job job;
  job.plan = &plan;
  job.parameters = task.parameters.get();
  job.x = task.call.x.data;
  job.x_space = task.call.x.space;
  job.x_segments = task.call.x.segments;
  job.x_buffer = task.contiguous.data();
  job.residual = task.call.residual;
  job.residual_scale = task.call.residual_scale;
  job.residual_rounding = task.call.residual_rounding;
  // The mask does not apply to given statistics.
  if (!plan.given_statistics) job.mask = static_cast<const uint8_t*>(task.call.mask.data);
  return job;
}

bool NeedsContiguousX(const DeviceScheduler& scheduler, const Task& task) {
  const bool takes = scheduler.AcceptsScattered(task.plan()) && !task.is_two_pass() && !task.call.residual.present();
  return task.call.x.scattered() && !takes;
}

// Of both extremes of a group.
constexpr auto kExtremes = static_cast<int64_t>(2 * sizeof(double));
// A channel with a NaN is copied without it; a stream that is kept wide has two f64 an element.
constexpr auto kBytesOfKeptSample = static_cast<int64_t>(2 * sizeof(double));

// Bytes that PrepareTask, the backend and the encoding of moments allocate for a call. The parameters of a session are
// left out, because the cache counts them.
int64_t BytesToMake(const DeviceScheduler& scheduler, const Task& task) {
  int64_t bytes = NeedsContiguousX(scheduler, task) ? task.call.x.size_bytes : 0;
  const bool widens = SumsPowers(task.plan().statistic) && task.plan().dtype != DType::kF64;
  if (widens) bytes += task.plan().elements * SizeOf(DType::kF64);  // the backend's copy of x
  if (task.session == nullptr) bytes += BytesToPrepare(task.plan(), task.call.parameters);
  if (task.plan().skips_nan) bytes += task.plan().elements * kBytesOfKeptSample;
  int64_t bytes_per_group = static_cast<int64_t>(sizeof(Moment)) + (task.plan().counts_samples ? kExtremes : 0);
  if (task.plan().exact_sums) bytes_per_group += GroupSums::BytesPerGroup(task.plan().dtype);
  const int64_t moments = bytes_per_group * task.plan().StatisticsGroups();
  if (task.commits() || task.is_two_pass() || task.Wants(OutputKind::kMoments)) bytes += moments;
  if (task.Wants(OutputKind::kMoments)) bytes += moments;
  if (task.call.moments_only) return bytes;
  if (task.call.outputs.empty()) return bytes + OutputBytes(task.plan(), OutputKind::kY);
  for (const WantedOutput& wanted : task.call.outputs) {
    if (wanted.kind != OutputKind::kMoments && !wanted.shared.has_value())
      bytes += OutputBytes(task.plan(), wanted.kind);
  }
  return bytes;
}

}  // namespace

const std::string* Task::TargetId() const {
  const auto* target = std::get_if<SessionTarget>(&call.target);
  return target == nullptr ? nullptr : &target->id;
}

bool Task::Wants(OutputKind kind) const {
  if (call.moments_only) return kind == OutputKind::kMoments;
  if (call.outputs.empty()) return kind == OutputKind::kY;
  return std::any_of(call.outputs.begin(), call.outputs.end(),
                     [kind](const WantedOutput& output) { return output.kind == kind; });
}

bool Task::ReduceHasWork() const { return !moments.empty() || (!is_two_pass() && ApplyHasWork()); }

bool Task::ApplyHasWork() const {
  return plan().elements > 0 || Wants(OutputKind::kMean) || Wants(OutputKind::kInverseStd);
}

Job Task::ReduceJob() {
  Job job = InputJob(*this, plan());
  job.given_mean = given_mean;
  job.given_variance = given_variance;
  if (!moments.empty()) job.moments = moments.data();
  if (!mean_squares.empty()) job.mean_squares = mean_squares.data();
  if (!extremes.empty()) {
    job.min = extremes.min.data();
    job.max = extremes.max.data();
  }
  if (plan().exact_sums) job.exact = &exact;
  if (is_two_pass()) {
    job.parameters = nullptr;  // the apply pass uses them
    return job;
  }
  for (OutputTensor& output : reply.outputs) PointTo(&output, plan(), &job);
  return job;
}

Job Task::ApplyJob() {
  Job job = InputJob(*this, prepared->apply_plan);
  if (contiguous.data() != nullptr) {
    // The reduce pass has made x contiguous.
    job.x = contiguous.data();
    job.x_segments = {};
    job.x_buffer = nullptr;
  }
  if (!apply_mean.empty()) job.given_mean = apply_mean.data();
  job.given_variance = divisor.data();
  for (OutputTensor& output : reply.outputs) PointTo(&output, prepared->apply_plan, &job);
  return job;
}

void Task::NoteExecuted(const Executed& executed) {
  Applied& applied = reply.applied;
  applied.device = executed.device;
  applied.device_fallback = applied.device_fallback || executed.fell_back;
  applied.kernel = executed.kernel;
}

int64_t BytesToPrepareFrom(const Task& task) {
  const Call& call = task.call;
  int64_t bytes = call.mask.size_bytes + call.parameters.weight.size_bytes + call.parameters.bias.size_bytes +
                  call.running_mean.size_bytes + call.running_var.size_bytes;
  if (task.session == nullptr || task.session->parameters == nullptr) return bytes;
  for (const std::optional<OwnedTensor>* tensor :
       {&task.session->parameters->weight, &task.session->parameters->bias}) {
    if (tensor->has_value()) bytes += static_cast<int64_t>((*tensor)->bytes.size());
  }
  return bytes;
}

absl::Status PrepareTask(const DeviceScheduler& scheduler, ParameterCache* parameters, BufferPool* buffers,
                         Task* task) {
  // First, so that a call that the budget has no room for converts nothing.
  if (task->call.reserve != nullptr) NORMD_RETURN_IF_ERROR(task->call.reserve(BytesToMake(scheduler, *task)));
  if (task->plan().elements == 0) {
    // There is nothing to apply parameters to, and the bytes that came do not bound their length.
  } else if (task->session != nullptr) {
    task->parameters = parameters->Get(*task->session, task->plan());
  } else {
    task->parameters = PrepareParameters(scheduler, task->spec(), task->plan(), task->call.parameters);
  }
  if (task->commits() || task->is_two_pass() || task->Wants(OutputKind::kMoments)) {
    const auto groups = static_cast<size_t>(task->plan().StatisticsGroups());
    task->moments.resize(groups);
    if (TraitsOf(task->spec().method()).commit_gives_divisor) {
      task->mean_squares.resize(groups, std::numeric_limits<double>::quiet_NaN());
    }
    if (task->plan().counts_samples) {
      task->extremes.min.resize(groups, std::numeric_limits<double>::quiet_NaN());
      task->extremes.max.resize(groups, std::numeric_limits<double>::quiet_NaN());
    }
  }
  if (NeedsContiguousX(scheduler, *task)) {
    task->contiguous = buffers->Take(static_cast<size_t>(task->call.x.size_bytes));
  }
  if (task->call.moments_only) return absl::OkStatus();
  if (task->call.outputs.empty()) task->call.outputs = {OutputKind::kY};
  for (WantedOutput& wanted : task->call.outputs) {
    if (wanted.kind != OutputKind::kMoments) {
      task->reply.outputs.push_back(MakeOutput(task->plan(), std::move(wanted), buffers));
    }
  }
  return absl::OkStatus();
}

}  // namespace normd
