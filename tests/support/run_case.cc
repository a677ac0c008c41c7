#include "tests/support/run_case.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <future>
#include <string_view>
#include <utility>

#include "kernels/base/strings.h"

namespace normd {
namespace {

constexpr size_t kAlignment = 64;

std::string Difference(std::string_view what, std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return Concat(what, ": ", a.size(), " and ", b.size(), " bytes");
  const auto at = std::mismatch(a.begin(), a.end(), b.begin()).first;
  return at == a.end() ? "" : Concat(what, ": byte ", at - a.begin(), " of ", a.size());
}

std::string_view BytesOf(const Moments& moments) {
  return {reinterpret_cast<const char*>(moments.data()), moments.size() * sizeof(Moment)};
}

}  // namespace

absl::StatusOr<NormPlan> PlanOf(const Case& c) { return MakePlan(c.spec, c.dtype, c.shape, c.options); }

std::string DifferenceOf(const Outputs& a, const Outputs& b) {
  for (std::string text : {Difference("y", a.y, b.y), Difference("h", a.h, b.h), Difference("mean", a.mean, b.mean),
                           Difference("inverse_std", a.inverse_std, b.inverse_std),
                           Difference("moments", BytesOf(a.moments), BytesOf(b.moments))}) {
    if (!text.empty()) return text;
  }
  return "";
}

void CaseRun::Bytes::Free::operator()(char* p) const { std::free(p); }

CaseRun::Bytes::Bytes(size_t size, int misalignment) : size_(size), offset_(static_cast<size_t>(misalignment)) {
  void* memory = nullptr;
  // Not a null pointer for nothing: null means absent to a job.
  if (posix_memalign(&memory, kAlignment, std::max<size_t>(1, offset_ + size)) != 0) std::abort();
  data_.reset(static_cast<char*>(memory));
  std::memset(memory, 0xA5, std::max<size_t>(1, offset_ + size));
}

CaseRun::Bytes::Bytes(const std::string& content, int misalignment) : Bytes(content.size(), misalignment) {
  std::memcpy(data(), content.data(), content.size());
}

CaseRun::CaseRun(const Backend& backend, const Case& c, const NormPlan& plan, const CaseData& data, int misalignment)
    : case_(c),
      plan_(plan),
      data_(data),
      x_(data.x, misalignment),
      weight_(data.weight, misalignment),
      bias_(data.bias, misalignment),
      residual_(data.residual, misalignment),
      y_(data.x.size(), misalignment),
      h_(c.residual.has_value() ? data.x.size() : 0, misalignment),
      mean_(static_cast<size_t>(plan.StatisticsGroups() * SizeOf(plan.StatisticsDType())), misalignment),
      inverse_std_(mean_.size(), misalignment) {
  if (!plan.given_statistics) moments_.resize(static_cast<size_t>(plan.StatisticsGroups()));
  const Shape parameter_shape = {plan.parameter_length};
  ParameterViews views = {.order = plan.parameter_order};
  if (c.weight.has_value()) views.weight = View(weight_, *c.weight, parameter_shape);
  if (c.bias.has_value()) views.bias = View(bias_, *c.bias, parameter_shape);
  parameters_ = backend.Prepare(std::make_shared<const HostParameters>(ConvertParameters(views, c.spec.weight_offset)));
}

TensorView CaseRun::View(Bytes& bytes, DType dtype, const Shape& shape) const {
  TensorView view;
  view.dtype = dtype;
  view.shape = shape;
  view.data = bytes.data();
  view.size_bytes = static_cast<int64_t>(bytes.size());
  return view;
}

Job CaseRun::MakeJob() {
  Job job;
  job.plan = &plan_;
  job.parameters = parameters_.get();
  job.x = x_.data();
  if (case_.residual.has_value()) {
    job.residual = View(residual_, case_.residual->dtype, plan_.shape);
    job.residual_scale = case_.residual->scale;
    job.residual_rounding = case_.residual->rounding;
    job.h = h_.data();
  }
  if (!data_.mask.empty()) job.mask = data_.mask.data();
  if (!data_.given_mean.empty()) job.given_mean = data_.given_mean.data();
  if (!data_.given_variance.empty()) job.given_variance = data_.given_variance.data();
  job.y = y_.data();
  job.mean = mean_.data();
  job.inverse_std = inverse_std_.data();
  if (!moments_.empty()) job.moments = moments_.data();
  return job;
}

Outputs CaseRun::TakeOutputs() const {
  return {y_.Content(), h_.Content(), mean_.Content(), inverse_std_.Content(), moments_};
}

absl::Status RunJobs(Backend& backend, std::vector<Job> jobs) {
  std::promise<absl::Status> promise;
  backend.Submit(std::move(jobs), [&promise](absl::Status status) { promise.set_value(std::move(status)); });
  return promise.get_future().get();
}

absl::StatusOr<Outputs> RunCase(Backend& backend, const Case& c, const CaseData& data) {
  absl::StatusOr<NormPlan> plan = PlanOf(c);
  if (!plan.ok()) return plan.status();
  CaseRun run(backend, c, *plan, data, 0);
  absl::Status status = RunJobs(backend, {run.MakeJob()});
  if (!status.ok()) return status;
  return run.TakeOutputs();
}

}  // namespace normd
