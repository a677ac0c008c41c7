#include "client/normctl/demo.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/normctl/commands.h"

namespace normd::client {
namespace {

struct Part {
  absl::string_view name;
  absl::string_view title;
  absl::Status (*run)(Demo& demo);
};
constexpr Part kParts[] = {
    {"examples", "(a) Published worked examples, expected beside received", &RunExamples},
    {"iris", "(b) Fisher's iris in mini-batches of 15 through a cumulative BatchNorm session", &RunIris},
    {"methods", "(c) Every method on one tensor", &RunSideBySide},
    {"residual", "(d) Twelve residual blocks, pre-norm and post-norm", &RunResidual}};

absl::Status RunDemo(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  const std::string only = args.GetOr("only", "");
  bool known = only.empty();
  for (const Part& part : kParts) known = known || part.name == only;
  if (!known) return BadValueError("only", only, "examples, iris, methods or residual");
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  // Whether a server is there shows before anything is printed.
  if (absl::Status status = (*client)->Describe().status(); absl::IsUnavailable(status)) return status;
  const bool json = args.Has("json");
  Demo demo{**client, terminal.width, {}, nlohmann::json::object(), 0, {}};
  for (const Part& part : kParts) {
    if (!only.empty() && part.name != only) continue;
    demo.text = absl::StrCat(part.title, "\n\n");
    absl::Status status = part.run(demo);
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

int64_t Ordered(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits >= 0 ? bits : int64_t{std::numeric_limits<int32_t>::min()} - bits;
}

}  // namespace

bool Demo::Check(bool holds, absl::string_view what) {
  ++comparisons;
  if (!holds) failures.emplace_back(what);
  return holds;
}

absl::StatusOr<ScopedSession> ScopedSession::Create(Client& client, absl::string_view what,
                                                    const v1::Session& session) {
  std::random_device random;
  v1::CreateSessionRequest request;
  request.set_session_id(absl::StrFormat("demo-%s-%08x%08x", what, random(), random()));
  *request.mutable_session() = session;
  (*request.mutable_session()->mutable_labels())["made-by"] = "normctl-demo";
  // In case this process dies before it deletes the session.
  request.mutable_session()->mutable_ttl()->set_seconds(600);
  const absl::StatusOr<v1::Session> created = client.CreateSession(request);
  if (!created.ok()) return created.status();
  return ScopedSession(client, created->name());
}

ScopedSession::ScopedSession(ScopedSession&& other) noexcept : client_(other.client_), name_(std::move(other.name_)) {
  other.name_.clear();
}

ScopedSession::~ScopedSession() {
  if (name_.empty()) return;
  v1::DeleteSessionRequest request;
  request.set_name(name_);
  client_->DeleteSession(request).IgnoreError();
}

int64_t UlpDistance(float a, float b) {
  if (std::isnan(a) && std::isnan(b)) return 0;
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<int64_t>::max();
  return std::abs(Ordered(a) - Ordered(b));
}

absl::StatusOr<Tensor> TakeOutput(v1::NormalizeResponse& response, v1::OutputKind kind) {
  for (v1::Output& output : *response.mutable_outputs()) {
    if (output.kind() == kind) return Tensor::FromProto(std::move(*output.mutable_tensor()));
  }
  return absl::InternalError(absl::StrCat("the reply has no ", v1::OutputKind_Name(kind)));
}

double RootMeanSquare(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value * value;
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
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
