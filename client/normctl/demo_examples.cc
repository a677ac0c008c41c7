// (a) Sends every published worked example to the server. Compares the result with the recomputed one at 1 ulp of f32,
// and with the digits that the text printed. If the text is wrong, the received values must differ from it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/normctl/demo.h"
#include "client/normctl/demo_data.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxUlps = 1;
constexpr size_t kShownValues = 3;

// Appends the numbers of nested lists, in order.
void AppendValues(const Json& json, std::vector<double>& out) {
  if (json.is_array()) {
    for (const Json& item : json) AppendValues(item, out);
  } else if (json.is_number()) {
    out.push_back(json.get<double>());
  }
}

std::vector<double> ValuesOf(const Json& json) {
  std::vector<double> out;
  AppendValues(json, out);
  return out;
}

std::string Text(const Json& attributes, const char* name) {
  return attributes.contains(name) && attributes[name].is_string() ? attributes[name].get<std::string>() : "";
}

Tensor Input(const Json& example, DType dtype) {
  return Tensor::Rounded(dtype, example["input_shape"].get<std::vector<int64_t>>(), ValuesOf(example["input"]));
}

// Sets the fields that every method has.
template <typename Method>
void SetCommon(const Json& attributes, Method* method) {
  method->set_eps(attributes.value("eps", 0.0));
  const std::string mode = Text(attributes, "eps_mode");
  if (mode == "ADD_TO_ROOT") method->set_eps_mode(v1::EPS_MODE_ADD_TO_ROOT);
  if (mode == "INSIDE_SQRT") method->set_eps_mode(v1::EPS_MODE_INSIDE_SQRT);
}

// In all of the texts, channels are the second axis.
template <typename Method>
void SetChannels(const Json& attributes, Method* method) {
  SetCommon(attributes, method);
  method->set_layout(v1::LAYOUT_CHANNELS_FIRST);
}

absl::StatusOr<v1::NormSpec> SpecOf(const Json& example) {
  const std::string method = example["method"].get<std::string>();
  const Json& attributes = example["attributes"];
  v1::NormSpec spec;
  if (method == "BATCH_NORM") {
    SetChannels(attributes, spec.mutable_batch_norm());
    v1::RunningStatistics& running = *spec.mutable_batch_norm()->mutable_running();
    if (attributes.contains("momentum")) running.set_momentum(attributes["momentum"].get<double>());
    const bool biased = absl::StartsWithIgnoreCase(Text(attributes, "running_var"), "biased");
    running.set_variance(biased ? v1::RUNNING_VARIANCE_BIASED : v1::RUNNING_VARIANCE_UNBIASED);
  } else if (method == "LAYER_NORM") {
    SetCommon(attributes, spec.mutable_layer_norm());
    const std::vector<int64_t> last = {example["input_shape"].back().get<int64_t>()};
    for (int64_t extent : attributes.value("normalized_shape", last)) {
      spec.mutable_layer_norm()->add_normalized_shape(extent);
    }
  } else if (method == "INSTANCE_NORM") {
    SetChannels(attributes, spec.mutable_instance_norm());
  } else if (method == "GROUP_NORM") {
    SetChannels(attributes, spec.mutable_group_norm());
    spec.mutable_group_norm()->set_num_groups(attributes.value("num_groups", int64_t{2}));
  } else if (method == "RMS_NORM") {
    SetCommon(attributes, spec.mutable_rms_norm());
  } else if (method == "SCALE_NORM") {
    SetCommon(attributes, spec.mutable_scale_norm());
  } else {
    return absl::UnimplementedError(absl::StrCat(example["id"].get<std::string>(), ": method ", method));
  }
  return spec;
}

v1::Parameters ParametersOf(const Json& example) {
  v1::Parameters out;
  const Json& params = example["params"];
  const auto set = [&](const char* name, v1::Tensor* (v1::Parameters::*field)()) {
    if (!params.contains(name)) return;
    const std::vector<double> values = ValuesOf(params[name]);
    *(out.*field)() = Tensor::Rounded(v1::DTYPE_F32, {static_cast<int64_t>(values.size())}, values).ToProto();
  };
  set("gamma", &v1::Parameters::mutable_weight);
  set("g", &v1::Parameters::mutable_weight);
  set("beta", &v1::Parameters::mutable_bias);
  return out;
}

// Returns y of the example's method.
absl::StatusOr<std::vector<double>> Output(Client& client, const Json& example, DType dtype) {
  const absl::StatusOr<v1::NormSpec> spec = SpecOf(example);
  if (!spec.ok()) return spec.status();
  v1::NormalizeRequest request;
  *request.mutable_spec() = *spec;
  *request.mutable_parameters() = ParametersOf(example);
  if (spec->has_batch_norm()) request.set_mode(v1::MODE_TRAINING);
  *request.mutable_x() = Input(example, dtype).ToProto();
  absl::StatusOr<v1::NormalizeResponse> response = client.Normalize(request);
  if (!response.ok()) return response.status();
  const absl::StatusOr<Tensor> y = TakeOutput(*response, v1::OUTPUT_KIND_Y);
  if (!y.ok()) return y.status();
  return y->ToDoubles();
}

// Returns the running statistics after one training step of a new session.
absl::StatusOr<std::vector<double>> RunningStatistic(Client& client, const Json& example, bool variance) {
  const absl::StatusOr<v1::NormSpec> spec = SpecOf(example);
  if (!spec.ok()) return spec.status();
  v1::Session session;
  *session.mutable_spec() = *spec;
  session.set_num_channels(example["input_shape"][1].get<int64_t>());
  *session.mutable_parameters() = ParametersOf(example);
  const absl::StatusOr<ScopedSession> scoped = ScopedSession::Create(client, "example", session);
  if (!scoped.ok()) return scoped.status();
  v1::NormalizeRequest request;
  request.set_session(scoped->name());
  request.set_mode(v1::MODE_TRAINING);
  request.mutable_step()->set_client_id("normctl-demo");
  request.mutable_step()->set_sequence(1);
  *request.mutable_x() = Input(example, v1::DTYPE_F32).ToProto();
  if (const auto reply = client.Normalize(request); !reply.ok()) return reply.status();
  const absl::StatusOr<v1::Session> after = client.GetSession(scoped->name(), v1::SESSION_VIEW_FULL);
  if (!after.ok()) return after.status();
  const absl::StatusOr<Tensor> tensor = Tensor::FromProto(variance ? after->state().var() : after->state().mean());
  if (!tensor.ok()) return tensor.status();
  return tensor->ToDoubles();
}

// A spec with the statistics groups of a STATISTIC example.
v1::NormSpec StatisticSpec(const Json& example, const std::string& stat) {
  v1::NormSpec spec;
  const Json& attributes = example["attributes"];
  if (attributes.contains("num_groups")) {
    spec.mutable_group_norm()->set_layout(v1::LAYOUT_CHANNELS_FIRST);
    spec.mutable_group_norm()->set_num_groups(attributes["num_groups"].get<int64_t>());
  } else if (absl::StartsWith(stat, "rms")) {
    spec.mutable_rms_norm();
  } else if (absl::StartsWith(stat, "l2")) {
    spec.mutable_scale_norm();
  } else if (attributes.contains("axis")) {
    for (double axis : ValuesOf(attributes["axis"])) spec.mutable_layer_norm()->add_axes(static_cast<int64_t>(axis));
  } else {
    for (int64_t extent : example["input_shape"]) spec.mutable_layer_norm()->add_normalized_shape(extent);
  }
  return spec;
}

// Computes the statistic `stat` from count, mean and M2.
double FromMoments(const std::string& stat, bool biased, double count, double mean, double m2) {
  if (absl::StartsWith(stat, "mean")) return mean;
  if (absl::StartsWith(stat, "l2")) return std::sqrt(m2);
  if (absl::StartsWith(stat, "rms")) return std::sqrt(m2 / count);
  const double variance = m2 / (biased ? count : count - 1);
  return absl::StartsWith(stat, "std") ? std::sqrt(variance) : variance;
}

// The normalised tensor whose statistic an example asks for ("std of the normalized group"). It is in f64, so that its
// own rounding does not show.
absl::StatusOr<Tensor> Normalized(Client& client, const Json& example, const std::string& stat) {
  Json inner = example;
  inner["method"] = absl::StartsWith(stat, "l2") ? "SCALE_NORM" : "GROUP_NORM";
  inner["attributes"]["eps"] = 1e-5;
  const absl::StatusOr<std::vector<double>> y = Output(client, inner, v1::DTYPE_F64);
  if (!y.ok()) return y.status();
  return Tensor::F64(example["input_shape"].get<std::vector<int64_t>>(), *y);
}

absl::StatusOr<std::vector<double>> StatisticOf(Client& client, const Json& example) {
  const std::string stat = Text(example["attributes"], "stat");
  v1::ComputeMomentsRequest request;
  *request.mutable_spec() = StatisticSpec(example, stat);
  Tensor x = Input(example, v1::DTYPE_F32);
  if (absl::StrContains(stat, "of the")) {
    absl::StatusOr<Tensor> y = Normalized(client, example, stat);
    if (!y.ok()) return y.status();
    x = *std::move(y);
  }
  *request.mutable_x() = std::move(x).ToProto();
  const absl::StatusOr<v1::ComputeMomentsResponse> response = client.ComputeMoments(request);
  if (!response.ok()) return response.status();
  const absl::StatusOr<Tensor> count = Tensor::FromProto(response->moments().count());
  const absl::StatusOr<Tensor> mean = Tensor::FromProto(response->moments().mean());
  const absl::StatusOr<Tensor> m2 = Tensor::FromProto(response->moments().m2());
  for (const auto* tensor : {&count, &mean, &m2}) {
    if (!tensor->ok()) return tensor->status();
  }
  const bool biased = example["attributes"].value("biased", true);
  const std::vector<double> n = count->ToDoubles(), means = mean->ToDoubles(), squares = m2->ToDoubles();
  std::vector<double> out;
  for (size_t i = 0; i < n.size() && i < means.size() && i < squares.size(); ++i) {
    out.push_back(FromMoments(stat, biased, n[i], means[i], squares[i]));
  }
  return out;
}

absl::StatusOr<std::vector<double>> Receive(Client& client, const Json& example) {
  const std::string what = example["what"].get<std::string>();
  if (example["method"] == "STATISTIC") return StatisticOf(client, example);
  if (absl::StartsWith(what, "running_mean")) return RunningStatistic(client, example, false);
  if (absl::StartsWith(what, "running_var")) return RunningStatistic(client, example, true);
  return Output(client, example, v1::DTYPE_F32);
}

int64_t MaxUlps(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<int64_t>::max();
  int64_t most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, UlpDistance(static_cast<float>(a[i]), static_cast<float>(b[i])));
  }
  return most;
}

bool WithinTolerance(const std::vector<double>& received, const std::vector<double>& printed, double tolerance) {
  if (received.size() != printed.size()) return false;
  for (size_t i = 0; i < received.size(); ++i) {
    if (!(std::fabs(received[i] - printed[i]) <= tolerance)) return false;
  }
  return true;
}

// Returns "agrees", "the text is wrong", or the failure. The example's id names the comparison.
std::string ComparePrinted(Demo& demo, const Json& example, const std::vector<double>& received) {
  if (example["printed_output"].is_null()) return "-";
  const std::string id = example["id"].get<std::string>();
  const bool close =
      WithinTolerance(received, ValuesOf(example["printed_output"]), example["compare_abs_tol"].get<double>());
  if (example["agrees"].get<bool>()) {
    return demo.Check(close, absl::StrCat(id, ": the printed digits")) ? "agrees" : "DIFFERS";
  }
  const bool differs = demo.Check(!close, absl::StrCat(id, ": differs from the text, which is wrong"));
  return differs ? "the text is wrong" : "AGREES WITH A WRONG TEXT";
}

// The error with the example's id before it. The payloads stay: they say who refused what, or that nobody answered.
absl::Status InExample(const std::string& id, const absl::Status& error) {
  absl::Status out(error.code(), absl::StrCat("example ", id, ": ", error.message()));
  error.ForEachPayload([&out](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
  return out;
}

absl::Status RunOne(Demo& demo, const Json& example, Table& table) {
  const std::string id = example["id"].get<std::string>();
  const absl::StatusOr<std::vector<double>> received = Receive(demo.client, example);
  if (!received.ok()) return InExample(id, received.status());
  const std::vector<double> expected = ValuesOf(example["recomputed_output"]);
  const int64_t ulps = MaxUlps(*received, expected);
  const bool holds = demo.Check(ulps <= kMaxUlps, absl::StrCat(id, ": received against recomputed"));
  const std::string verdict = ComparePrinted(demo, example, *received);
  const std::string method = absl::AsciiStrToLower(example["method"].get<std::string>());
  const std::string printed =
      example["printed_output"].is_null() ? "-" : ValuesText(ValuesOf(example["printed_output"]), kShownValues);
  table.AddRow({id, method == "statistic" ? Text(example["attributes"], "stat") : method,
                ValuesText(expected, kShownValues), ValuesText(*received, kShownValues),
                absl::StrCat(ulps, holds ? "" : " FAILED"), printed, verdict});
  demo.json["examples"].push_back({{"id", id},
                                   {"method", method},
                                   {"expected", expected},
                                   {"received", *received},
                                   {"max_ulps", ulps},
                                   {"holds", holds},
                                   {"printed", example["printed_output"]},
                                   {"text", verdict}});
  return absl::OkStatus();
}

}  // namespace

absl::Status RunExamples(Demo& demo) {
  const Json examples = Json::parse(std::string(WorkedExamplesJson()), nullptr, false);
  if (!examples.is_array() || examples.empty()) return absl::InternalError("the embedded examples are no JSON list");
  Table table(
      {{"example"}, {"what"}, {"expected (recomputed)"}, {"received"}, {"ulps", Align::kRight}, {"printed"}, {"text"}});
  for (const Json& example : examples) {
    if (absl::Status status = RunOne(demo, example, table); !status.ok()) return status;
  }
  absl::StrAppend(&demo.text, table.Render(demo.width), "\nulps: the largest distance between received and expected, ",
                  "both as f32; at most ", kMaxUlps, " holds.\n");
  return absl::OkStatus();
}

}  // namespace normd::client
