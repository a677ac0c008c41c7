// CheckTask and PlanTask: check everything that can be wrong with a call, in the order of the request's fields,
// cheapest first.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "kernels/methods.h"
#include "kernels/nearest.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"
#include "server/engine/memory_space.h"
#include "server/engine/shared_outputs.h"
#include "server/engine/task.h"
#include "server/session/running_state.h"
#include "server/session/session_checks.h"

namespace normd {

namespace {

// Most empty statistics groups that a call may ask statistics of.
constexpr int64_t kMaxEmptyGroups = int64_t{1} << 20;
// Most statistics groups whose exact sums a call may ask for: many small groups are hundreds of times the bytes of x,
// so those of few elements are limited to 52 MiB in all, and the others so that a reply is under 2 GiB.
constexpr int64_t kMaxSmallExactGroups = int64_t{1} << 15, kMaxExactGroups = int64_t{1} << 20;
constexpr int64_t kElementsOfLargeGroup = 64;

bool IsTraining(const Call& call) { return call.mode == Mode::kTraining && !call.moments_only; }

// ---- target

absl::Status CheckSpecTarget(const Call& call, const NormSpec& spec) {
  if (call.step.has_value()) return NotAllowedError("step", "a step needs a session");
  if (call.expected_version.has_value()) {
    return NotAllowedError("expected_version", "an expected version needs a session");
  }
  const auto* instance = std::get_if<InstanceNormSpec>(&spec.attributes);
  if (instance != nullptr && instance->track_running_statistics) {
    return NotAllowedError(Concat("spec.", Info(spec.method()).name, ".track_running_statistics"),
                           "running statistics need a session");
  }
  return absl::OkStatus();
}

absl::Status CheckStep(const Task& task) {
  const Call& call = task.call;
  if (!call.step.has_value()) return absl::OkStatus();
  if (!task.spec().HasState()) {
    return NotAllowedError("step", Concat("a session of ", Info(task.spec().method()).name, " has no running state"));
  }
  if (!IsTraining(call)) return NotAllowedError("step", "only training takes steps");
  return ValidateStepId(*call.step);
}

absl::Status CheckSessionTarget(const Task& task) {
  const Call& call = task.call;
  if (call.parameters.weight.present() || call.parameters.bias.present() || call.running_mean.present() ||
      call.running_var.present()) {
    return NotAllowedError("parameters", "a session has its own parameters");
  }
  NORMD_RETURN_IF_ERROR(CheckStep(task));
  // A commit checks the version itself, after looking for a replay.
  const bool store_checks = task.commits() && (!call.validate_only || call.step.has_value());
  if (call.expected_version.has_value() && !store_checks && *call.expected_version != task.session->version) {
    return VersionMismatchError(*call.expected_version, task.session->version);
  }
  return absl::OkStatus();
}

absl::Status CheckTarget(const Task& task) {
  return task.session == nullptr ? CheckSpecTarget(task.call, task.spec()) : CheckSessionTarget(task);
}

// ---- tensors

absl::Status CheckBytes(const TensorView& view, std::string_view field) {
  if (SizeOf(view.dtype) == 0) return DTypeError(Concat(field, ".dtype"), Concat(static_cast<int>(view.dtype)));
  NORMD_ASSIGN_OR_RETURN(const int64_t elements, CheckedElementCount(view.shape, field));
  const int64_t want = elements * SizeOf(view.dtype);
  if (view.size_bytes == want) return absl::OkStatus();
  return ByteCountError(field, view.size_bytes, want, Name(view.dtype), ShapeText(view.shape));
}

absl::Status CheckX(const TensorView& x) {
  if (!x.present() && x.shape.empty()) return MissingError("x", "a tensor");
  return x.shape.empty() ? absl::OkStatus() : CheckBytes(x, "x");
}

int64_t CountKept(const TensorView& mask) {
  const auto* bytes = static_cast<const uint8_t*>(mask.data);
  return mask.size_bytes - std::count(bytes, bytes + mask.size_bytes, uint8_t{0});
}

Shape WithoutChannels(const NormSpec& spec, Shape shape) {
  const bool last = !TraitsOf(spec.method()).has_layout || spec.layout() == Layout::kChannelsLast;
  shape.erase(last ? shape.end() - 1 : shape.begin() + 1);
  return shape;
}

absl::Status CheckMask(const Task& task) {
  const TensorView& mask = task.call.mask;
  if (!mask.present()) return absl::OkStatus();
  if (!Info(task.spec().method()).takes_mask) {
    return NotAllowedError("mask", Concat(Info(task.spec().method()).name, " takes no mask"));
  }
  NORMD_ASSIGN_OR_RETURN(const int64_t positions, CheckedElementCount(mask.shape, "mask"));
  const Shape want = WithoutChannels(task.spec(), task.plan().shape);
  if (mask.shape != want) return ShapeMismatchError("mask", ShapeText(mask.shape), ShapeText(want));
  if (mask.size_bytes == positions) return absl::OkStatus();
  return ByteCountError("mask", mask.size_bytes, positions, /*dtype=*/"", ShapeText(mask.shape));
}

// Checks the bytes of the mask, which differ from call to call.
absl::Status CheckKept(const Task& task) {
  const TensorView& mask = task.call.mask;
  const bool refuses_one = mask.present() && TraitsOf(task.spec().method()).refuses_single_values &&
                           IsTraining(task.call) && task.spec().running().RefusesSingleValue();
  if (!refuses_one || CountKept(mask) != 1) return absl::OkStatus();
  return AmountError("mask", "1 value per channel left",
                     "more than one value per channel in training, unless single_value is SINGLE_VALUE_ZERO_VARIANCE",
                     KernelReason("SINGLE_VALUE_PER_CHANNEL"));
}

absl::Status CheckResidual(const Task& task) {
  const TensorView& residual = task.call.residual;
  if (!residual.present()) return absl::OkStatus();
  if (residual.shape != task.call.x.shape) {
    return ShapeMismatchError("residual.tensor", ShapeText(residual.shape), ShapeText(task.call.x.shape));
  }
  return CheckBytes(residual, "residual.tensor");
}

absl::Status CheckAffine(const Task& task) {
  if (task.session != nullptr) {
    ParameterViews views;
    const OwnedParameters& owned = *task.session->parameters;
    if (owned.weight.has_value()) views.weight = owned.weight->View();
    if (owned.bias.has_value()) views.bias = owned.bias->View();
    return CheckParameters(task.plan(), views);
  }
  const ParameterViews& views = task.call.parameters;
  NORMD_RETURN_IF_ERROR(CheckParameters(task.plan(), views));
  if (views.weight.present()) NORMD_RETURN_IF_ERROR(CheckBytes(views.weight, "parameters.weight"));
  return views.bias.present() ? CheckBytes(views.bias, "parameters.bias") : absl::OkStatus();
}

// ---- given statistics

absl::Status CheckRunning(const TensorView& view, int64_t channels, std::string_view field) {
  NORMD_RETURN_IF_ERROR(CheckBytes(view, field));
  const int64_t count = ElementCount(view.shape);
  return count == channels ? absl::OkStatus() : ParameterLengthError(field, count, channels);
}

// Only inference by spec takes statistics from the request: BatchNorm mean and variance, PowerNorm its phi, other
// methods none. A PowerNorm call may carry its layer's phi even if it does not use it.
absl::Status CheckRunningTensors(const Task& task) {
  const Call& call = task.call;
  const bool takes = task.plan().given_statistics && task.session == nullptr;
  const bool has_phi = TraitsOf(task.spec().method()).state == StateKind::kQuadraticMean;
  const bool takes_mean = takes && !has_phi;
  constexpr std::string_view kMean = "parameters.running_mean";
  constexpr std::string_view kVar = "parameters.running_var";
  if (takes_mean && !call.running_mean.present()) {
    return MissingError(kMean, "one value per channel, for inference without a session");
  }
  if (takes && !call.running_var.present()) {
    return MissingError(kVar, "one value per channel, for inference without a session");
  }
  if (!takes_mean && call.running_mean.present()) {
    return NotAllowedError(kMean, Concat("this ", Info(task.spec().method()).name, " call does not use it"));
  }
  if (!takes && call.running_var.present() && !has_phi) {
    return NotAllowedError(kVar, Concat("this ", Info(task.spec().method()).name, " call does not use it"));
  }
  const int64_t channels = task.plan().num_channels;
  if (takes_mean) NORMD_RETURN_IF_ERROR(CheckRunning(call.running_mean, channels, kMean));
  return takes ? CheckRunning(call.running_var, channels, kVar) : absl::OkStatus();
}

absl::Status TakeGivenFromRequest(Task* task) {
  const Call& call = task->call;
  const int64_t channels = task->plan().num_channels;
  const bool has_mean = call.running_mean.present();
  const int64_t values = channels * (has_mean ? 2 : 1);
  if (call.reserve != nullptr) NORMD_RETURN_IF_ERROR(call.reserve(values * static_cast<int64_t>(sizeof(double))));
  if (has_mean) {
    task->request_mean = WidenToF64(call.running_mean);
    NORMD_RETURN_IF_ERROR(CheckRunningValues(task->request_mean, channels, {}, "parameters.running_mean"));
    task->given_mean = task->request_mean.data();
  }
  task->request_variance = WidenToF64(call.running_var);
  task->given_variance = task->request_variance.data();
  return CheckRunningValues(task->request_variance, channels, {.negative = false}, "parameters.running_var");
}

absl::Status TakeGiven(Task* task) {
  if (!task->plan().given_statistics) return absl::OkStatus();
  if (task->session == nullptr) return TakeGivenFromRequest(task);
  const RunningState& state = task->session->state;
  const bool has_phi = TraitsOf(task->spec().method()).state == StateKind::kQuadraticMean;
  task->given_mean = has_phi ? nullptr : state.mean.data();
  task->given_variance = has_phi ? state.phi.data() : state.var.data();
  return absl::OkStatus();
}

// ---- outputs, device

absl::Status CheckExact(const Task& task) {
  if (!task.call.want_exact) return absl::OkStatus();
  if (task.plan().power_groups > 0) {
    return NotAllowedError("want_exact", "power_norm has statistics of scaled elements, which are rounded");
  }
  const int64_t groups = task.plan().StatisticsGroups();
  const int64_t limit = std::clamp(task.plan().elements / kElementsOfLargeGroup, kMaxSmallExactGroups, kMaxExactGroups);
  if (groups <= limit) return absl::OkStatus();
  return LimitExceededError("x.shape", groups, limit, {.unit = "statistics groups with exact sums"});
}

absl::Status CheckOutputs(const Task& task) {
  const std::vector<WantedOutput>& outputs = task.call.outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string field = Concat("outputs[", i, "].kind");
    const bool again = std::any_of(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const WantedOutput& other) { return other.kind == outputs[i].kind; });
    if (again) return NotAllowedError(field, "the same output is asked for before");
    if (outputs[i].kind == OutputKind::kH && !task.call.residual.present()) {
      return NotAllowedError(field, "H needs a residual");
    }
  }
  NORMD_RETURN_IF_ERROR(CheckSharedOutputs(task.call, task.plan()));
  if (!task.Wants(OutputKind::kMoments)) return absl::OkStatus();
  if (task.plan().given_statistics) {
    return NotAllowedError("outputs", "MOMENTS need statistics that are computed, and here they are given");
  }
  const Statistic statistic = task.plan().statistic;
  if (statistic == Statistic::kAbsSum || SumsPowers(statistic)) {
    const auto* lp = std::get_if<LpNormSpec>(&task.spec().attributes);
    const bool is_order = lp != nullptr && !lp->p.has_value();
    return OutOfRangeError(is_order ? "spec.lp_norm.order" : "spec.lp_norm.p", NumberText(task.plan().p),
                           "2 where moments are asked for, because other norms have none",
                           ServerReason("MOMENTS_NOT_DEFINED"));
  }
  return absl::OkStatus();
}

// The bytes that came bound the number of statistics groups, because a group has elements; they do not bound the number
// of empty groups.
absl::Status CheckEmptyGroups(const Task& task) {
  const bool fills_groups = task.commits() || task.is_two_pass() || task.Wants(OutputKind::kMean) ||
                            task.Wants(OutputKind::kInverseStd) || task.Wants(OutputKind::kMoments);
  if (!fills_groups || task.plan().elements > 0 || task.plan().StatisticsGroups() <= kMaxEmptyGroups)
    return absl::OkStatus();
  return LimitExceededError("x.shape", task.plan().StatisticsGroups(), kMaxEmptyGroups,
                            {.unit = "statistics groups without a value"});
}

// What will run the call. Both passes of a two-pass call must be able to run on the device that it asks for.
absl::StatusOr<Executed> ChooseDevice(const DeviceScheduler& scheduler, const Task& task) {
  const Device device = task.call.device;
  if (task.is_two_pass()) {
    NORMD_RETURN_IF_ERROR(scheduler.Choose(task.prepared->apply_plan, device, task.space).status());
  }
  return scheduler.Choose(task.plan(), device, task.space);
}

// ---- plan and reply

// The dtype of a residual that is kept wide.
std::optional<DType> KeptWide(const Call& call) {
  const bool keeps_wide = call.residual.present() && call.residual_rounding == ResidualRounding::kKeepWide;
  return keeps_wide ? std::optional(call.residual.dtype) : std::nullopt;
}

absl::Status MakePlans(const Task& task, PreparedCall* prepared) {
  const Call& call = task.call;
  const NormSpec& spec = prepared->spec;
  const bool own_statistics = call.moments_only || call.mode == Mode::kTraining || !spec.HasState();
  // A residual stream that is kept wide is f64, and has no fast arithmetic. Moments that go into a session's state, or
  // are merged elsewhere, are exact.
  const bool keeps_wide = KeptWide(call).has_value();
  const bool is_state = call.moments_only || (task.session != nullptr && IsTraining(call));
  // Partial moments of one value are valid, so ComputeMoments is planned as inference that computes its statistics.
  const PlanOptions options = {.mode = call.moments_only ? Mode::kInference : call.mode,
                               .given_statistics = !own_statistics,
                               .precision = keeps_wide || is_state ? Precision::kExact : call.precision,
                               .exact_sums = call.want_exact};
  NORMD_ASSIGN_OR_RETURN(prepared->plan, MakePlan(spec, call.x.dtype, call.x.shape, options));
  prepared->is_two_pass = CommitGivesStatistics(spec) && IsTraining(call);
  if (!prepared->is_two_pass) return absl::OkStatus();
  // With running statistics y is that of inference, in the precision that was asked for.
  const bool is_inference = spec.running().normalize_with == NormalizeWith::kRunning;
  const PlanOptions apply = {.mode = is_inference ? Mode::kInference : Mode::kTraining,
                             .given_statistics = true,
                             .precision = is_inference && !keeps_wide ? call.precision : Precision::kExact};
  NORMD_ASSIGN_OR_RETURN(prepared->apply_plan, MakePlan(spec, call.x.dtype, call.x.shape, apply));
  return absl::OkStatus();
}

absl::Status CheckChannels(const Task& task) {
  if (task.session == nullptr || task.session->num_channels == 0 || task.plan().num_channels == 0 ||
      task.plan().num_channels == task.session->num_channels) {
    return absl::OkStatus();
  }
  return ShapeMismatchError("x", ShapeText(task.plan().shape),
                            Concat("the session's ", task.session->num_channels, " channels"));
}

bool AllPassesGiveNearest(const Task& task) {
  const std::optional<DType> kept_wide = KeptWide(task.call);
  if (task.is_two_pass() && !GivesNearest(task.prepared->apply_plan, kept_wide)) return false;
  return GivesNearest(task.plan(), kept_wide);
}

Applied MakeApplied(const Task& task, Executed chosen) {
  const NormSpec& spec = task.spec();
  Applied applied;
  applied.method = spec.method();
  applied.eps = task.plan().eps;
  applied.eps_mode = task.plan().eps_mode;
  applied.cast_order = task.plan().cast_order;
  applied.mode = task.call.mode;
  applied.precision = task.plan().precision;
  applied.is_nearest = AllPassesGiveNearest(task);
  applied.device = chosen.device;
  applied.kernel = std::move(chosen.kernel);
  applied.k = task.plan().k;
  applied.weight_offset = spec.weight_offset;
  const MethodTraits& traits = TraitsOf(spec.method());
  if (traits.has_layout) applied.layout = spec.layout();
  if (spec.HasState() && traits.state == StateKind::kMeanVariance) applied.running = spec.running();
  if (task.call.residual.present()) applied.residual_rounding = task.call.residual_rounding;
  if (const auto* partial = std::get_if<PRmsNormSpec>(&spec.attributes)) applied.k_rounding = partial->k_rounding;
  return applied;
}

// The state of the session in the reply of a call that does not change it.
StateReply UnchangedState(const SessionStore& sessions, const Task& task) {
  StateReply state;
  state.result.version = task.session->version;
  state.result.uid = task.session->uid;
  state.result.applied = false;
  state.result.reason = task.call.validate_only ? Reason::kValidateOnly : Reason::kInference;
  state.result.durability = sessions.durability();
  state.result.num_batches = task.session->state.num_batches;
  return state;
}

// Checks a call that is new and fills task->prepared and task->reply.applied.
absl::Status Prepare(const DeviceScheduler& scheduler, Task* task) {
  auto prepared = std::make_shared<PreparedCall>();
  task->prepared = prepared;
  const Call& call = task->call;
  prepared->spec = task->session == nullptr ? std::get<NormSpec>(call.target) : task->session->spec;
  prepared->commits = task->session != nullptr && IsTraining(call) && prepared->spec.HasState();
  if (task->session != nullptr) {
    prepared->uid = task->session->uid;
    prepared->parameters_version = task->session->parameters_version;
    prepared->num_channels = task->session->num_channels;
  }
  NORMD_RETURN_IF_ERROR(CheckTarget(*task));
  NORMD_ASSIGN_OR_RETURN(task->space, FindMemorySpace(call));
  NORMD_RETURN_IF_ERROR(CheckX(call.x));
  NORMD_RETURN_IF_ERROR(MakePlans(*task, prepared.get()));
  NORMD_RETURN_IF_ERROR(CheckChannels(*task));
  const NormPlan& plan = prepared->plan;
  if (!scheduler.Supports(plan)) return UnimplementedError("spec", "a plan that this backend has no kernel for");
  NORMD_ASSIGN_OR_RETURN(Executed chosen, ChooseDevice(scheduler, *task));
  prepared->runs_inline = !prepared->commits && !prepared->is_two_pass && !call.validate_only &&
                          chosen.device == Device::kCpu && plan.elements > 0 &&
                          plan.Work() <= scheduler.inline_elements();
  NORMD_RETURN_IF_ERROR(CheckAffine(*task));
  NORMD_RETURN_IF_ERROR(CheckResidual(*task));
  NORMD_RETURN_IF_ERROR(CheckMask(*task));
  NORMD_RETURN_IF_ERROR(CheckOutputs(*task));
  NORMD_RETURN_IF_ERROR(CheckExact(*task));
  NORMD_RETURN_IF_ERROR(CheckEmptyGroups(*task));
  NORMD_RETURN_IF_ERROR(CheckRunningTensors(*task));
  prepared->applied = MakeApplied(*task, std::move(chosen));
  task->reply.applied = prepared->applied;
  return absl::OkStatus();
}

// For a call that was prepared before: repeats the checks of Prepare whose results may have changed, which are those of
// the session and the device.
absl::Status TakePrepared(const DeviceScheduler& scheduler, Task* task) {
  task->prepared = std::move(task->call.prepared);
  task->reply.applied = task->prepared->applied;
  NORMD_RETURN_IF_ERROR(CheckTarget(*task));
  if (!task->prepared->runs_inline) {
    NORMD_ASSIGN_OR_RETURN(const Executed chosen, ChooseDevice(scheduler, *task));
    task->NoteExecuted(chosen);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTask(const DeviceScheduler& scheduler, Task* task) {
  const bool known = task->call.prepared != nullptr && task->call.prepared->IsFor(task->session.get());
  return known ? TakePrepared(scheduler, task) : Prepare(scheduler, task);
}

absl::Status PlanTask(const SessionStore& sessions, const DeviceScheduler& scheduler, Task* task) {
  const Session* const session = task->session.get();
  if (task->prepared == nullptr) NORMD_RETURN_IF_ERROR(CheckTask(scheduler, task));
  NORMD_RETURN_IF_ERROR(CheckKept(*task));
  NORMD_RETURN_IF_ERROR(TakeGiven(task));
  // The plan was also checked against where the tensors lie, which differs from call to call in shared and CUDA memory.
  const bool holds_for_others = task->space.is_host() && !HasSharedOutputs(task->call);
  if (holds_for_others) task->reply.prepared = task->prepared;
  task->reply.rows = task->plan().StatisticsGroups();
  if (session == nullptr) return absl::OkStatus();
  task->reply.applied.session_version = session->version;
  task->reply.state = UnchangedState(sessions, *task);
  return absl::OkStatus();
}

}  // namespace normd
