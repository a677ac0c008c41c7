#include "client/normctl/variant_judge.h"

#include <utility>
#include <vector>

#include "client/normctl/cast_steps.h"
#include "client/normctl/exact_answer.h"
#include "client/normctl/spec_fields.h"
#include "client/normctl/variants.h"

namespace normd::client {
namespace {

bool DoesNotFit(const absl::Status& status) { return absl::IsInvalidArgument(status) || absl::IsOutOfRange(status); }

// Replaces the weight of `request` by weight + offset as a value of the dtype of x. REQUIRES: a weight is given.
absl::Status RoundWeight(v1::NormalizeRequest& request) {
  const absl::StatusOr<Tensor> weight = Tensor::FromProto(request.parameters().weight());
  if (!weight.ok()) return weight.status();
  std::vector<double> values = weight->ToDoubles();
  const double offset = DoubleOf(request.spec(), "weight_offset");
  ClearFields(*request.mutable_spec(), {"weight_offset"});
  for (double& value : values) value = RoundTo(request.x().dtype(), static_cast<long double>(value) + offset);
  *request.mutable_parameters()->mutable_weight() = Tensor::F64(weight->shape, std::move(values)).ToProto();
  return absl::OkStatus();
}

// Repeats a weight or bias of the last axes for all of the trailing axes that a definition normalises, which have the
// extents `shape`. Leaves one alone that is not of the last axes, or has all of them.
absl::Status Repeat(const std::vector<int64_t>& shape, v1::Tensor& parameter) {
  const absl::StatusOr<Tensor> given = Tensor::FromProto(parameter);
  if (!given.ok()) return given.status();
  const std::vector<double> values = given->ToDoubles();
  int64_t size = 1, of_last_axes = 0;
  for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent) {
    size *= *extent;
    if (size == static_cast<int64_t>(values.size())) of_last_axes = size;
  }
  if (of_last_axes == 0 || of_last_axes == size) return absl::OkStatus();
  std::vector<double> repeated;
  for (int64_t i = 0; i < size; i += of_last_axes) repeated.insert(repeated.end(), values.begin(), values.end());
  parameter = Tensor::F64(shape, std::move(repeated)).ToProto();
  return absl::OkStatus();
}

absl::Status RepeatParameters(v1::NormalizeRequest& request) {
  const auto rank = static_cast<int64_t>(request.x().shape_size());
  const int64_t first = FirstTrailingAxis(request.spec(), rank);
  if (first < 0 || first >= rank) return absl::OkStatus();
  const std::vector<int64_t> shape(request.x().shape().begin() + static_cast<int>(first), request.x().shape().end());
  v1::Parameters& parameters = *request.mutable_parameters();
  absl::Status status;
  if (parameters.has_weight()) status = Repeat(shape, *parameters.mutable_weight());
  if (status.ok() && parameters.has_bias()) status = Repeat(shape, *parameters.mutable_bias());
  return status;
}

// Multiplies the weight of `request`, weight offset included, by `factor`; a weight that is absent is 1.
// REQUIRES: a weight or a bias is given.
absl::Status ScaleWeight(double factor, v1::NormalizeRequest& request) {
  const v1::Parameters& parameters = request.parameters();
  const bool has_weight = parameters.has_weight();
  const absl::StatusOr<Tensor> weight = Tensor::FromProto(has_weight ? parameters.weight() : parameters.bias());
  if (!weight.ok()) return weight.status();
  std::vector<double> values = weight->ToDoubles();
  const double offset = DoubleOf(request.spec(), "weight_offset");
  ClearFields(*request.mutable_spec(), {"weight_offset"});
  for (double& value : values) value = has_weight ? (value + offset) * factor : factor;
  *request.mutable_parameters()->mutable_weight() = Tensor::F64(weight->shape, std::move(values)).ToProto();
  return absl::OkStatus();
}

}  // namespace

Fit FitOf(const Judgement& judgement) {
  const UlpReport& report = judgement.report;
  return {report.elements, report.mismatches, judgement.nearest.nearest, report.max, report.mean};
}

VariantInput VariantJudge::Input() const {
  VariantInput input;
  input.shape.assign(request_.x().shape().begin(), request_.x().shape().end());
  input.has_weight = request_.parameters().has_weight();
  input.has_bias = request_.parameters().has_bias();
  input.has_residual = request_.has_residual();
  input.given_statistics = request_.spec().has_batch_norm() && request_.mode() != v1::MODE_TRAINING;
  return input;
}

absl::StatusOr<v1::NormalizeRequest> VariantJudge::RequestOf(const Variant& variant) const {
  v1::NormalizeRequest request = request_;
  *request.mutable_spec() = variant.spec;
  if (request.has_residual()) request.mutable_residual()->set_rounding(variant.residual_rounding);
  absl::Status status = RepeatParameters(request);
  if (status.ok() && variant.rounds_weight) status = RoundWeight(request);
  if (!status.ok()) return status;
  return request;
}

absl::StatusOr<double> VariantJudge::CountOf(v1::NormalizeRequest request) const {
  request.clear_outputs();
  request.add_outputs()->set_kind(v1::OUTPUT_KIND_MOMENTS);
  absl::StatusOr<v1::NormalizeResponse> response = client_.Normalize(request);
  if (!response.ok()) return response.status();
  if (response->outputs_size() != 1) return absl::InternalError("the reply has no moments");
  const absl::StatusOr<Tensor> count = Tensor::FromProto(response->outputs(0).moments().count());
  if (!count.ok()) return count.status();
  if (count->elements() == 0) return absl::InternalError("the reply's moments are empty");
  return count->ToDoubles()[0];
}

absl::StatusOr<double> VariantJudge::SetUnbiased(v1::NormalizeRequest& request) const {
  const absl::StatusOr<double> count = CountOf(request);
  if (!count.ok()) return count.status();
  if (*count <= 1) return absl::InvalidArgumentError("one element has no unbiased variance");
  UnbiasedForm form = OfUnbiased(request.spec(), *count);
  *request.mutable_spec() = std::move(form.spec);
  // Rounded before the affine step, or without one, y itself has the factor.
  const bool has_affine = request.parameters().has_weight() || request.parameters().has_bias();
  if (!has_affine || CastsFirst(request.spec())) return form.factor;
  if (absl::Status status = ScaleWeight(form.factor, request); !status.ok()) return status;
  return 1;
}

absl::StatusOr<std::optional<Fit>> VariantJudge::operator()(const Variant& variant) const {
  absl::StatusOr<v1::NormalizeRequest> request = RequestOf(variant);
  if (!request.ok()) return request.status();
  double factor = 1;
  if (variant.unbiased) {
    const absl::StatusOr<double> left = SetUnbiased(*request);
    if (DoesNotFit(left.status())) return std::nullopt;
    if (!left.ok()) return left.status();
    factor = *left;
  }
  const v1::NormSpec spec = request->spec();
  absl::StatusOr<ExactAnswer> answer = AskExactAnswer(client_, spec, *std::move(request));
  if (DoesNotFit(answer.status())) return std::nullopt;
  if (!answer.ok()) return answer.status();
  if (answer->values.size() != candidate_.size()) return absl::InternalError("the reply's y has another size than x");
  for (double& value : answer->values) value *= factor;
  return FitOf(Judge(dtype_, candidate_, *std::move(answer), {.floor = floor_, .worst = 0}));
}

}  // namespace normd::client
