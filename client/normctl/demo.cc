#include "client/normctl/demo.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/table.h"
#include "client/normctl/commands.h"
#include "client/normctl/ulps.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;

constexpr double kMaxUlps = 1;  // of f32, between received and expected
constexpr size_t kShownValues = 4;

// The numbers of nested lists, in order.
std::vector<double> NumbersIn(const Json& json) {
  if (json.is_number()) return {json.get<double>()};
  std::vector<double> out;
  for (const Json& item : json) {
    const std::vector<double> inner = NumbersIn(item);
    out.insert(out.end(), inner.begin(), inner.end());
  }
  return out;
}

absl::StatusOr<v1::NormSpec> SpecFrom(const Json& json) {
  v1::NormSpec spec;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json.dump(), &spec);
  if (parsed.ok()) return spec;
  return absl::InternalError(absl::StrCat("the embedded ", json.dump(), " is no NormSpec"));
}

v1::Parameters ParametersOf(const Json& example) {
  v1::Parameters out;
  for (const auto& [name, values] : example["params"].items()) {
    const bool is_weight = name == "gamma" || name == "g";
    if (!is_weight && name != "beta") continue;
    const std::vector<double> numbers = NumbersIn(values);
    *(is_weight ? out.mutable_weight() : out.mutable_bias()) =
        Tensor::Rounded(v1::DTYPE_F32, {static_cast<int64_t>(numbers.size())}, numbers).ToProto();
  }
  return out;
}

std::vector<int64_t> ShapeOf(const Json& example) { return example["input_shape"].get<std::vector<int64_t>>(); }

// The y of `spec`.
absl::StatusOr<std::vector<double>> ReceiveOutput(Client& client, const Json& example, const v1::NormSpec& spec,
                                                  DType dtype) {
  v1::NormalizeRequest request;
  *request.mutable_spec() = spec;
  *request.mutable_parameters() = ParametersOf(example);
  if (spec.has_batch_norm() || spec.has_power_norm()) request.set_mode(v1::MODE_TRAINING);
  *request.mutable_x() = Tensor::Rounded(dtype, ShapeOf(example), NumbersIn(example["input"])).ToProto();
  absl::StatusOr<v1::NormalizeResponse> response = client.Normalize(request);
  if (!response.ok()) return response.status();
  const absl::StatusOr<Tensor> y = TakeOutput(*response, v1::OUTPUT_KIND_Y);
  if (!y.ok()) return y.status();
  return y->ToDoubles();
}

// Computes the statistic `name` from count, mean and M2.
double FromMoments(const std::string& name, bool biased, double count, double mean, double m2) {
  if (name == "mean") return mean;
  if (name == "l2") return std::sqrt(m2);
  if (name == "rms") return std::sqrt(m2 / count);
  const double variance = m2 / (biased ? count : count - 1);
  return name == "std" ? std::sqrt(variance) : variance;
}

// A statistic of x, or of what the spec "of" makes of x: in f64, so that its own rounding does not show.
absl::StatusOr<std::vector<double>> ReceiveStatistic(Client& client, const Json& example, const v1::NormSpec& spec) {
  Tensor x = Tensor::Rounded(v1::DTYPE_F32, ShapeOf(example), NumbersIn(example["input"]));
  if (example.contains("of")) {
    const absl::StatusOr<v1::NormSpec> of = SpecFrom(example["of"]);
    if (!of.ok()) return of.status();
    const absl::StatusOr<std::vector<double>> y = ReceiveOutput(client, example, *of, v1::DTYPE_F64);
    if (!y.ok()) return y.status();
    x = Tensor::F64(ShapeOf(example), *y);
  }
  v1::ComputeMomentsRequest request;
  *request.mutable_spec() = spec;
  *request.mutable_x() = std::move(x).ToProto();
  const absl::StatusOr<v1::ComputeMomentsResponse> response = client.ComputeMoments(request);
  if (!response.ok()) return response.status();
  std::vector<double> parts[3];
  const v1::Moments& moments = response->moments();
  for (const auto& [part, tensor] :
       {std::pair(0, &moments.count()), std::pair(1, &moments.mean()), std::pair(2, &moments.m2())}) {
    const absl::StatusOr<Tensor> values = Tensor::FromProto(*tensor);
    if (!values.ok()) return values.status();
    parts[part] = values->ToDoubles();
  }
  const auto& [count, mean, m2] = parts;
  const bool biased = example.value("biased", true);
  std::vector<double> out;
  for (size_t i = 0; i < count.size() && i < mean.size() && i < m2.size(); ++i) {
    out.push_back(FromMoments(example["statistic"].get<std::string>(), biased, count[i], mean[i], m2[i]));
  }
  return out;
}

// A session with a random name, which is unique on any server.
absl::StatusOr<v1::Session> CreateDemoSession(Client& client, const Json& example, const v1::NormSpec& spec) {
  std::random_device random;
  v1::CreateSessionRequest request;
  request.set_session_id(absl::StrFormat("demo-%08x%08x", random(), random()));
  v1::Session& session = *request.mutable_session();
  *session.mutable_spec() = spec;
  session.set_num_channels(ShapeOf(example)[1]);
  *session.mutable_parameters() = ParametersOf(example);
  (*session.mutable_labels())["made-by"] = "normctl-demo";
  session.mutable_ttl()->set_seconds(600);  // in case this process dies before it deletes the session
  return client.CreateSession(request);
}

// Trains the session with the example's batches. The last step is sent twice, and counts once.
absl::Status Train(Demo& demo, const Json& example, const std::string& session) {
  const std::string id = example["id"].get<std::string>();
  const std::vector<double> values = NumbersIn(example["input"]);
  std::vector<int64_t> shape = ShapeOf(example);
  const auto steps = static_cast<uint64_t>(shape[0] / example.value("batch_rows", shape[0]));
  const size_t batch = values.size() / steps;
  shape[0] /= static_cast<int64_t>(steps);
  v1::NormalizeRequest request;
  request.set_session(session);
  request.set_mode(v1::MODE_TRAINING);
  request.mutable_step()->set_client_id("normctl-demo");
  for (uint64_t step = 1; step <= steps; ++step) {
    request.mutable_step()->set_sequence(step);
    const absl::Span<const double> rows = absl::MakeConstSpan(values).subspan((step - 1) * batch, batch);
    *request.mutable_x() = Tensor::Rounded(v1::DTYPE_F32, shape, rows).ToProto();
    const absl::StatusOr<v1::NormalizeResponse> reply = demo.client.Normalize(request);
    if (!reply.ok()) return reply.status();
    demo.Check(reply->state().applied(), absl::StrCat(id, ": step ", step, " is applied"));
  }
  const absl::StatusOr<v1::NormalizeResponse> again = demo.client.Normalize(request);
  if (!again.ok()) return again.status();
  demo.Check(again->state().replayed() && again->state().num_batches() == steps,
             absl::StrCat(id, ": the last step sent again is recognised and changes nothing"));
  return absl::OkStatus();
}

// A running statistic of a new session that the example's input trained.
absl::StatusOr<std::vector<double>> ReceiveRunning(Demo& demo, const Json& example, const v1::NormSpec& spec) {
  const absl::StatusOr<v1::Session> created = CreateDemoSession(demo.client, example, spec);
  if (!created.ok()) return created.status();
  const absl::Status trained = Train(demo, example, created->name());
  const absl::StatusOr<v1::Session> after = demo.client.GetSession(created->name(), v1::SESSION_VIEW_FULL);
  v1::DeleteSessionRequest request;
  request.set_name(created->name());
  demo.client.DeleteSession(request).IgnoreError();
  if (!trained.ok()) return trained;
  if (!after.ok()) return after.status();
  const absl::StatusOr<Tensor> statistic =
      Tensor::FromProto(example["running"] == "var" ? after->state().var() : after->state().mean());
  if (!statistic.ok()) return statistic.status();
  return statistic->ToDoubles();
}

absl::StatusOr<std::vector<double>> Receive(Demo& demo, const Json& example) {
  const absl::StatusOr<v1::NormSpec> spec = SpecFrom(example["spec"]);
  if (!spec.ok()) return spec.status();
  if (example.contains("running")) return ReceiveRunning(demo, example, *spec);
  if (example.contains("statistic")) return ReceiveStatistic(demo.client, example, *spec);
  return ReceiveOutput(demo.client, example, *spec, v1::DTYPE_F32);
}

double MaxUlps(const std::vector<double>& received, const std::vector<double>& expected) {
  if (received.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (size_t i = 0; i < received.size(); ++i) most = std::max(most, Ulps(v1::DTYPE_F32, received[i], expected[i]));
  return most;
}

// Returns "agrees", "the text is wrong", or the failure. The example's id names the comparison.
std::string ComparePrinted(Demo& demo, const Json& example, const std::vector<double>& received) {
  if (example["printed_output"].is_null()) return "-";
  const std::string id = example["id"].get<std::string>();
  const std::vector<double> printed = NumbersIn(example["printed_output"]);
  const double tolerance = example["compare_abs_tol"].get<double>();
  const bool close =
      std::equal(received.begin(), received.end(), printed.begin(), printed.end(),
                 [tolerance](double value, double digits) { return std::fabs(value - digits) <= tolerance; });
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

// What the table shows of an example: of a published one the method or the statistic, as the text calls it.
std::string WhatOf(const Json& example) {
  if (!example.contains("attributes")) return example["what"].get<std::string>();
  const Json& attributes = example["attributes"];
  if (attributes.contains("stat")) return attributes["stat"].get<std::string>();
  return absl::AsciiStrToLower(example["method"].get<std::string>());
}

absl::Status RunExample(Demo& demo, absl::string_view part, const Json& example, Table& table) {
  const std::string id = example["id"].get<std::string>();
  const absl::StatusOr<std::vector<double>> received = Receive(demo, example);
  if (!received.ok()) return InExample(id, received.status());
  const std::vector<double> expected = NumbersIn(example["recomputed_output"]);
  const double ulps = MaxUlps(*received, expected);
  const bool holds = demo.Check(ulps <= kMaxUlps, absl::StrCat(id, ": received against recomputed"));
  const std::string verdict = ComparePrinted(demo, example, *received);
  const Json& printed = example["printed_output"];
  table.AddRow({id, WhatOf(example), ValuesText(expected, kShownValues), ValuesText(*received, kShownValues),
                absl::StrFormat("%.2f%s", ulps, holds ? "" : " FAILED"),
                printed.is_null() ? "-" : ValuesText(NumbersIn(printed), kShownValues), verdict});
  demo.json[std::string(part)].push_back({{"id", id},
                                          {"method", absl::AsciiStrToLower(example["method"].get<std::string>())},
                                          {"expected", expected},
                                          {"received", *received},
                                          {"max_ulps", ulps},
                                          {"holds", holds},
                                          {"printed", printed},
                                          {"text", verdict}});
  return absl::OkStatus();
}

// A part of worked-examples.json.
absl::Status RunExamples(Demo& demo, absl::string_view part) {
  const Json parts = Json::parse(std::string(WorkedExamplesJson()), nullptr, false);
  if (!parts.is_object() || !parts.contains(std::string(part))) {
    return absl::InternalError(absl::StrCat("the embedded examples have no ", part));
  }
  Table table(
      {{"example"}, {"what"}, {"expected (recomputed)"}, {"received"}, {"ulps", Align::kRight}, {"printed"}, {"text"}});
  for (const Json& example : parts[std::string(part)]) {
    if (absl::Status status = RunExample(demo, part, example, table); !status.ok()) return status;
  }
  absl::StrAppend(&demo.text, table.Render(demo.width),
                  "\nulps: the largest error of received, in ulps of f32; at most ", kMaxUlps, " holds.\n");
  return absl::OkStatus();
}

struct DemoPart {
  absl::string_view name;
  absl::string_view title;
};
constexpr absl::string_view kResidual = "residual";
constexpr DemoPart kParts[] = {
    {"examples", "(a) Published worked examples, expected beside received"},
    {"iris", "(b) Fisher's iris in mini-batches of 15 through a BatchNorm session that averages all of them"},
    {"methods", "(c) Every method on one tensor [B, L, D] = [2, 3, 4], x[0, 0] = 1 2 3 4, with eps 0"},
    {kResidual, "(d) Twelve residual blocks, pre-norm and post-norm"}};

absl::Status RunDemo(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  const std::string only = args.GetOr("only", "");
  const bool known = std::any_of(std::begin(kParts), std::end(kParts), [&](const auto& p) { return p.name == only; });
  if (!only.empty() && !known) return BadValueError("only", only, "examples, iris, methods or residual");
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  // Whether a server is there shows before anything is printed.
  if (absl::Status status = (*client)->Describe().status(); absl::IsUnavailable(status)) return status;
  const bool json = args.Has("json");
  Demo demo{**client, terminal.width, {}, nlohmann::json::object(), 0, {}};
  for (const DemoPart& part : kParts) {
    if (!only.empty() && part.name != only) continue;
    demo.text = absl::StrCat(part.title, "\n\n");
    absl::Status status = part.name == kResidual ? RunResidual(demo) : RunExamples(demo, part.name);
    if (!json) terminal.out << demo.text << "\n" << std::flush;
    if (!status.ok()) return status;
  }
  const auto failed = static_cast<int64_t>(demo.failures.size());
  if (json) {
    demo.json["comparisons"] = demo.comparisons;
    demo.json["failures"] = demo.failures;
    terminal.out << JsonText(demo.json);
  } else {
    for (const std::string& failure : demo.failures) terminal.out << "FAILED: " << failure << "\n";
    terminal.out << absl::StrFormat("demo: %d comparisons, %d hold, %d failed\n", demo.comparisons,
                                    demo.comparisons - failed, failed);
  }
  if (failed == 0) return absl::OkStatus();
  return ReportedError(absl::StrCat(failed, " comparisons failed"));
}

}  // namespace

bool Demo::Check(bool holds, absl::string_view what) {
  ++comparisons;
  if (!holds) failures.emplace_back(what);
  return holds;
}

absl::StatusOr<Tensor> TakeOutput(v1::NormalizeResponse& response, v1::OutputKind kind) {
  for (v1::Output& output : *response.mutable_outputs()) {
    if (output.kind() == kind) return Tensor::FromProto(std::move(*output.mutable_tensor()));
  }
  return absl::InternalError(absl::StrCat("the reply has no ", v1::OutputKind_Name(kind)));
}

std::vector<Command> DemoCommands() {
  Command command;
  command.spec = {
      "demo",
      "",
      0,
      0,
      "real inputs through the server, expected beside received",
      "Worked examples of published texts, Fisher's iris, every method side by side, and a residual stack.\n"
      "Sessions that it needs get random names and are deleted. Exit code 1 when a comparison fails.",
      {{"only", '\0', "PART", "examples, iris, methods or residual"}}};
  command.run = &RunDemo;
  return {command};
}

}  // namespace normd::client
