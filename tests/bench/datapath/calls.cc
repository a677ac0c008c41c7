#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/status.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "normd/v1/normalizer.pb.h"
#include "normd/v1/sessions.grpc.pb.h"
#include "tests/bench/comparison.h"
#include "tests/bench/datapath/exchange.h"
#include "tests/bench/datapath/rms_rows.h"
#include "tests/bench/datapath/sections.h"
#include "tests/bench/datapath/server_comparison.h"

namespace normd::bench {
namespace {

constexpr int kItems = 64;             // of a batch
constexpr int64_t kItemElements = 64;  // of one of them
constexpr char kSession[] = "bench";

// What is asked against the earlier build; a stream is asked for unary's share of the echo.
struct Form {
  const char* name;
  std::optional<double> floor;
};
constexpr Form kForms[] = {{"unary", 0.98}, {"stream", std::nullopt}, {"session", 1.3}, {"batch", 1.3}};
constexpr double kStreamFloor = 1.0;

// RMSNorm with a weight of ones, so that the session gives what a call without one gives.
absl::Status CreateSession(const std::shared_ptr<grpc::Channel>& channel) {
  const std::vector<float> ones(kRowElements, 1);
  v1::CreateSessionRequest request;
  request.set_session_id(kSession);
  request.mutable_session()->mutable_spec()->mutable_rms_norm();
  v1::Tensor* const weight = request.mutable_session()->mutable_parameters()->mutable_weight();
  weight->set_dtype(v1::DTYPE_F32);
  weight->add_shape(kRowElements);
  weight->set_data(ones.data(), ones.size() * sizeof(float));
  grpc::ClientContext context;
  v1::Session session;
  const grpc::Status status = v1::Sessions::NewStub(channel)->CreateSession(&context, request, &session);
  return client::MakeStatus(status.error_code(), status.error_message(), status.error_details());
}

Target MakeSessionTarget(const Rows& rows) {
  v1::NormalizeRequest request = MakeNormalizeRequest(rows.x);
  request.set_session(Concat("sessions/", kSession));
  Target target = MakeTarget("normd", false, rows);
  target.requests = {Serialize(request)};
  return target;
}

Target MakeBatchTarget(const Rows& rows) {
  constexpr size_t kItemBytes = kItemElements * sizeof(float);
  v1::NormalizeRequest item = MakeNormalizeRequest(rows.x.substr(0, kItemBytes));
  item.mutable_x()->set_shape(0, 1);
  item.mutable_x()->set_shape(1, kItemElements);
  v1::BatchNormalizeRequest batch;
  for (int i = 0; i < kItems; ++i) *batch.add_items() = item;
  Target target;
  target.method = "/normd.v1.Normalizer/BatchNormalize";
  target.min_reply_bytes = kItems * kItemBytes;
  target.requests = {Serialize(batch)};
  return target;
}

Target MakeFormTarget(const std::string& form, const Rows& rows) {
  if (form == "session") return MakeSessionTarget(rows);
  if (form == "batch") return MakeBatchTarget(rows);
  return MakeTarget("normd", form == "stream", rows);
}

// That every item of a batch has its result.
absl::Status CheckBatch(const grpc::ByteBuffer& reply) {
  v1::BatchNormalizeResponse response;
  if (!Parse(reply, &response) || response.items_size() != kItems) return absl::InternalError("not a batch of results");
  const v1::NormalizeResponse& first = response.items(0).response();
  for (const v1::BatchItemResult& item : response.items()) {
    const v1::NormalizeResponse& other = item.response();
    if (other.outputs_size() == 1 && other.outputs(0).tensor().data() == first.outputs(0).tensor().data()) continue;
    return absl::InternalError("an item of a batch without its result");
  }
  return absl::OkStatus();
}

// All that may be in flight, and below them geometric means. Returns the share of the echo.
absl::StatusOr<double> MeasureForm(const Form& form, const Flags& flags, ServerComparison* comparison, Report* report) {
  NORMD_ASSIGN_OR_RETURN(const Rows rows, MakeRows(kRowBytes));
  const std::string name = form.name;
  NORMD_RETURN_IF_ERROR(comparison->Prepare([&](const std::string&) { return MakeFormTarget(name, rows); },
                                            [&](const std::string& server, const grpc::ByteBuffer& reply) {
                                              if (server == "echo") return absl::OkStatus();
                                              return name == "batch"
                                                         ? CheckBatch(reply)
                                                         : CheckReply("normd", name == "stream", rows, reply);
                                            }));
  std::vector<double> of_echo, of_before;
  for (const int in_flight : flags.Pick<std::vector<int>>({1, 4, 16}, {4, 16}, {4})) {
    NORMD_ASSIGN_OR_RETURN(const ServerRounds rounds, comparison->Run(in_flight));
    const std::optional<double> before = rounds.NormdTo("before", &ServerRound::per_second);
    of_echo.push_back(*rounds.NormdTo("echo", &ServerRound::per_second));
    if (before.has_value()) of_before.push_back(*before);
    std::vector<Cell> cells;
    for (const char* const server : {"echo", "normd", "before"}) {
      cells.push_back(Amount(rounds.Median(server, &ServerRound::per_second)));
    }
    cells.push_back(Ratio(of_echo.back()));
    cells.push_back(Ratio(before));
    report->Row(Concat("calls ", name, " n=", in_flight), cells);
  }
  const Cell before = of_before.empty() ? Cell() : Ratio(GeometricMean(of_before), form.floor);
  report->Row("calls " + name, {Cell(), Cell(), Cell(), Ratio(GeometricMean(of_echo)), before});
  return GeometricMean(of_echo);
}

}  // namespace

absl::Status MeasureCalls(const Flags& flags, Report* report) {
  std::vector<Form> forms;
  for (const Form& form : kForms) {
    if (flags.Chosen(Concat("calls ", form.name))) forms.push_back(form);
  }
  if (forms.empty()) return absl::OkStatus();
  report->Table(
      "requests/s of small calls over TCP, n in flight, below each form geometric means: RMSNorm of a row of 1024 f32; "
      "session: with a weight; batch: 64 items of 64 f32",
      {"echo/s", "normd/s", "before/s", "of echo", "of before"});
  ServerComparison comparison(flags);
  NORMD_RETURN_IF_ERROR(comparison.Start("echo", "echo", "tcp", 1));
  NORMD_RETURN_IF_ERROR(comparison.Start("normd", "normd", "tcp", 1));
  NORMD_RETURN_IF_ERROR(CreateSession(comparison.channel("normd")));
  if (!flags.before.empty()) {
    NORMD_RETURN_IF_ERROR(comparison.Start("before", "normd", "tcp", 1, flags.before));
    NORMD_RETURN_IF_ERROR(CreateSession(comparison.channel("before")));
  }
  std::map<std::string, double> of_echo;
  for (const Form& form : forms) {
    NORMD_ASSIGN_OR_RETURN(of_echo[form.name], MeasureForm(form, flags, &comparison, report));
  }
  if (of_echo.contains("stream") && of_echo.contains("unary")) {
    report->Row("calls, stream / unary",
                {Cell(), Cell(), Cell(), Ratio(of_echo["stream"] / of_echo["unary"], kStreamFloor)});
  }
  return absl::OkStatus();
}

}  // namespace normd::bench
