#include "client/normctl/exact_answer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/spec_flags.h"
#include "client/normctl/demo.h"
#include "client/normctl/spec_fields.h"
#include "client/normctl/split.h"

namespace normd::client {
namespace {

absl::Status Widen(v1::Tensor& tensor) {
  const absl::StatusOr<Tensor> parsed = Tensor::FromProto(std::move(tensor));
  if (!parsed.ok()) return parsed.status();
  tensor = Tensor::F64(parsed->shape, parsed->ToDoubles()).ToProto();
  return absl::OkStatus();
}

class Asker {
 public:
  Asker(Client& client, int64_t max_message_bytes) : client_(client), max_message_bytes_(max_message_bytes) {}

  absl::StatusOr<Tensor> Ask(v1::NormalizeRequest& request, const v1::NormSpec& spec, v1::OutputKind kind) {
    request.clear_outputs();
    request.add_outputs()->set_kind(kind);
    absl::StatusOr<v1::NormalizeResponse> response =
        NormalizeInPieces(client_, request, spec, max_message_bytes_, [](int64_t, int64_t) {});
    if (!response.ok()) return response.status();
    applied = response->applied();
    return TakeOutput(*response, kind);
  }

  // The values of `parameter` at each element of a tensor of `shape`, to which the server broadcasts it: it is the bias
  // of zeros.
  absl::StatusOr<std::vector<double>> Broadcast(const v1::Tensor& parameter, v1::NormSpec spec,
                                                const std::vector<int64_t>& shape) {
    Tensor zeros = Tensor::F64(shape, std::vector<double>(static_cast<size_t>(ElementsOf(shape))));
    const absl::StatusOr<Tensor> values = Tensor::FromProto(parameter);
    if (!values.ok()) return values.status();
    if (values->elements() == 1) return std::vector<double>(zeros.ToDoubles().size(), values->ToDoubles()[0]);
    v1::NormalizeRequest request;
    *request.mutable_parameters()->mutable_bias() = parameter;
    if (spec.has_batch_norm() || spec.has_instance_norm() || spec.has_power_norm()) {
      const std::vector<double> mean(static_cast<size_t>(values->elements())), var(mean.size(), 1);
      const v1::Layout layout = spec.has_batch_norm()      ? spec.batch_norm().layout()
                                : spec.has_instance_norm() ? spec.instance_norm().layout()
                                                           : v1::LAYOUT_CHANNELS_LAST;
      spec.Clear();
      spec.mutable_batch_norm()->set_layout(layout);
      const std::vector<int64_t> channels = {values->elements()};
      *request.mutable_parameters()->mutable_running_mean() = Tensor::F64(channels, mean).ToProto();
      *request.mutable_parameters()->mutable_running_var() = Tensor::F64(channels, var).ToProto();
    } else {
      // The default eps keeps zeros from being divided by zero.
      ClearFields(spec, {"eps", "eps_mode", "cast_order", "weight_offset"});
    }
    *request.mutable_spec() = spec;
    request.set_mode(v1::MODE_INFERENCE);
    request.set_precision(v1::PRECISION_EXACT);
    *request.mutable_x() = std::move(zeros).ToProto();
    const v1::Applied kept = applied;
    const absl::StatusOr<Tensor> out = Ask(request, spec, v1::OUTPUT_KIND_Y);
    applied = kept;
    if (!out.ok()) return out.status();
    return out->ToDoubles();
  }

  v1::Applied applied;  // of the last answer

 private:
  static int64_t ElementsOf(const std::vector<int64_t>& shape) {
    int64_t out = 1;
    for (const int64_t extent : shape) out *= extent;
    return out;
  }

  Client& client_;
  const int64_t max_message_bytes_;
};

// Replaces the session of `request` by its spec, parameters and running statistics, which can be taken apart.
absl::Status Inline(Client& client, v1::NormalizeRequest& request) {
  const absl::StatusOr<v1::Session> session = client.GetSession(request.session(), v1::SESSION_VIEW_FULL);
  if (!session.ok()) return session.status();
  v1::NormSpec spec = session->spec();
  if (spec.has_power_norm() || spec.instance_norm().track_running_statistics()) {
    return absl::InvalidArgumentError(
        absl::StrCat(session->name(), " rounds before the affine step, and verify cannot take a ", MethodOf(spec),
                     " with running statistics apart: compare without weight and bias, or without --session"));
  }
  ClearFields(spec, {"running"});
  *request.mutable_spec() = spec;
  *request.mutable_parameters() = session->parameters();
  if (!spec.has_batch_norm()) return absl::OkStatus();
  *request.mutable_parameters()->mutable_running_mean() = session->state().mean();
  *request.mutable_parameters()->mutable_running_var() = session->state().var();
  return absl::OkStatus();
}

// Takes the affine step out of `request`, and `answer` keeps it.
absl::Status TakeAffine(Asker& asker, double weight_offset, v1::NormalizeRequest& request, ExactAnswer& answer) {
  const std::vector<int64_t> shape(request.x().shape().begin(), request.x().shape().end());
  v1::Parameters& parameters = *request.mutable_parameters();
  if (parameters.has_weight()) {
    absl::StatusOr<std::vector<double>> weight = asker.Broadcast(parameters.weight(), request.spec(), shape);
    if (!weight.ok()) return weight.status();
    for (double& value : *weight) value += weight_offset;
    answer.affine.weight = *std::move(weight);
  }
  if (parameters.has_bias()) {
    absl::StatusOr<std::vector<double>> bias = asker.Broadcast(parameters.bias(), request.spec(), shape);
    if (!bias.ok()) return bias.status();
    answer.affine.bias = *std::move(bias);
  }
  parameters.clear_weight();
  parameters.clear_bias();
  ClearFields(*request.mutable_spec(), {"cast_order"});
  return absl::OkStatus();
}

// Prepares x, and the residual that is added to it, for an answer in f64.
absl::Status WidenInputs(Asker& asker, const v1::NormSpec& spec, v1::NormalizeRequest& request) {
  if (request.has_residual()) {
    if (request.residual().rounding() != v1::RESIDUAL_ROUNDING_KEEP_WIDE) {
      absl::StatusOr<Tensor> h = asker.Ask(request, spec, v1::OUTPUT_KIND_H);
      if (!h.ok()) return h.status();
      *request.mutable_x() = (*std::move(h)).ToProto();
      request.clear_residual();
    } else if (absl::Status status = Widen(*request.mutable_residual()->mutable_tensor()); !status.ok()) {
      return status;
    }
  }
  return Widen(*request.mutable_x());
}

}  // namespace

absl::StatusOr<ExactAnswer> AskExactAnswer(Client& client, const v1::NormSpec& spec, v1::NormalizeRequest request) {
  const absl::StatusOr<v1::DescribeResponse> describe = client.Describe();
  if (!describe.ok()) return describe.status();
  Asker asker(client, describe->limits().max_message_bytes());
  ExactAnswer answer;
  answer.t = request.x().dtype();
  const bool casts_first = CastsFirst(spec);
  if (casts_first && !request.session().empty()) {
    if (absl::Status status = Inline(client, request); !status.ok()) return status;
  }
  answer.has_steps = casts_first && (request.parameters().has_weight() || request.parameters().has_bias());
  if (absl::Status status = WidenInputs(asker, spec, request); !status.ok()) return status;
  if (answer.has_steps) {
    const double weight_offset = DoubleOf(spec, "weight_offset");
    if (absl::Status status = TakeAffine(asker, weight_offset, request, answer); !status.ok()) return status;
  }
  const absl::StatusOr<Tensor> y = asker.Ask(request, spec, v1::OUTPUT_KIND_Y);
  if (!y.ok()) return y.status();
  answer.applied = asker.applied;
  answer.values = y->ToDoubles();
  return answer;
}

}  // namespace normd::client
