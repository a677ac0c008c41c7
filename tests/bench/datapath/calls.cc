#include "tests/bench/datapath/calls.h"

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/status.h"
#include "kernels/base/status_macros.h"
#include "normd/v1/normalizer.pb.h"
#include "normd/v1/sessions.grpc.pb.h"
#include "tests/bench/datapath/driver.h"
#include "tests/bench/datapath/exchange.h"
#include "tests/bench/datapath/rms_rows.h"
#include "tests/bench/datapath/server_process.h"

namespace normd::bench {
namespace {

constexpr int kItems = 64;             // of a batch
constexpr int64_t kItemElements = 64;  // of one of them
constexpr char kSession[] = "bench";

// What is asked against the earlier build; a stream is asked for unary's share of the echo.
const std::map<std::string, double> kFloors = {{"unary", 0.98}, {"session", 1.3}, {"batch", 1.3}};

struct Server {
  std::string name;
  std::unique_ptr<ServerProcess> process;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
};

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

v1::NormalizeRequest Item(const std::string& x) {
  v1::NormalizeRequest request = MakeNormalizeRequest(x);
  request.mutable_x()->clear_shape();
  request.mutable_x()->add_shape(1);
  request.mutable_x()->add_shape(kItemElements);
  request.mutable_x()->set_data(x.substr(0, kItemElements * sizeof(float)));
  return request;
}

Target MakeTargetOf(const std::string& form, const Rows& rows) {
  if (form == "unary" || form == "stream") return MakeTarget("normd", form == "stream", rows);
  Target target;
  target.method = "/normd.v1.Normalizer/Normalize";
  target.min_reply_bytes = rows.y.size();
  if (form == "session") {
    v1::NormalizeRequest request = MakeNormalizeRequest(rows.x);
    request.set_session(absl::StrCat("sessions/", kSession));
    target.request = Serialize(request);
    return target;
  }
  v1::BatchNormalizeRequest batch;
  for (int i = 0; i < kItems; ++i) *batch.add_items() = Item(rows.x);
  target.method = "/normd.v1.Normalizer/BatchNormalize";
  target.min_reply_bytes = kItems * kItemElements * sizeof(float);
  target.request = Serialize(batch);
  return target;
}

// That every item of a batch has its result.
absl::Status CheckBatch(const grpc::ByteBuffer& reply) {
  v1::BatchNormalizeResponse response;
  if (!Parse(reply, &response) || response.items_size() != kItems) return absl::InternalError("not a batch of results");
  for (const v1::BatchItemResult& item : response.items()) {
    const bool good =
        item.response().outputs_size() == 1 &&
        item.response().outputs(0).tensor().data() == response.items(0).response().outputs(0).tensor().data();
    if (!good) return absl::InternalError("an item of a batch without its result");
  }
  return absl::OkStatus();
}

class CallsRace {
 public:
  CallsRace(const CallsOptions& options, Report* report) : options_(options), report_(report) {}

  absl::Status Run() {
    NORMD_RETURN_IF_ERROR(Start("echo", "/proc/self/exe"));
    NORMD_RETURN_IF_ERROR(Start("normd", "/proc/self/exe"));
    if (!options_.before.empty()) NORMD_RETURN_IF_ERROR(Start("before", options_.before));
    std::map<std::string, double> of_echo;
    for (const char* const form : {"unary", "stream", "session", "batch"}) {
      NORMD_ASSIGN_OR_RETURN(of_echo[form], RunForm(form));
    }
    report_->Add({"4 KiB calls: stream / unary, of the echo each", of_echo["stream"] / of_echo["unary"], "ratio", 1.0});
    return absl::OkStatus();
  }

 private:
  absl::Status Start(const std::string& name, const std::string& program) {
    Server server = {.name = name, .process = nullptr, .channels = {}};
    NORMD_ASSIGN_OR_RETURN(server.process,
                           ServerProcess::Start(name == "echo" ? "echo" : "normd", "127.0.0.1:0", program));
    server.channels = NewChannels(server.process->address(), 1);
    if (name != "echo") NORMD_RETURN_IF_ERROR(WithContext(CreateSession(server.channels.front()), name));
    servers_.push_back(std::move(server));
    return absl::OkStatus();
  }

  // The share of the echo, over what is in flight.
  absl::StatusOr<double> RunForm(const std::string& form) {
    NORMD_ASSIGN_OR_RETURN(const Rows rows, MakeRows(kRowBytes));
    Target target = MakeTargetOf(form, rows);
    NORMD_RETURN_IF_ERROR(Check(form, rows, target));
    double of_echo = 0, of_before = 0;  // logarithms
    for (const int in_flight : options_.in_flight) {
      std::map<std::string, std::vector<double>> rates;
      NORMD_RETURN_IF_ERROR(RunRounds(target, in_flight, &rates));
      of_echo += std::log(AddCell(absl::StrCat(form, " n=", in_flight), rates, "echo"));
      if (!options_.before.empty()) of_before += std::log(RatioOf(rates, "before"));
    }
    const auto cells = static_cast<double>(options_.in_flight.size());
    report_->Add({absl::StrCat("4 KiB calls: ", form), std::exp(of_echo / cells), "of the echo"});
    if (!options_.before.empty()) AddBefore(form, std::exp(of_before / cells));
    return std::exp(of_echo / cells);
  }

  absl::Status Check(const std::string& form, const Rows& rows, Target& target) {
    for (const Server& server : servers_) {
      if (server.name == "echo") continue;
      target.channels = server.channels;
      NORMD_ASSIGN_OR_RETURN(const LoopResult first, RunClosedLoop(target, 1, absl::ZeroDuration()));
      const absl::Status status =
          form == "batch" ? CheckBatch(first.reply) : CheckReply("normd", form == "stream", rows, first.reply);
      NORMD_RETURN_IF_ERROR(WithContext(status, absl::StrCat(server.name, ", ", form)));
    }
    return absl::OkStatus();
  }

  // The servers take turns, the first one too; the first round is not counted.
  absl::Status RunRounds(Target& target, int in_flight, std::map<std::string, std::vector<double>>* rates) {
    const std::string method = target.method;
    for (int i = -1; i < options_.rounds; ++i) {
      for (size_t turn = 0; turn < servers_.size(); ++turn) {
        const Server& server = servers_[i % 2 == 0 ? turn : servers_.size() - 1 - turn];
        target.channels = server.channels;
        const absl::StatusOr<LoopResult> result = RunClosedLoop(target, in_flight, options_.round);
        NORMD_RETURN_IF_ERROR(WithContext(result.status(), server.name));
        if (i >= 0) (*rates)[server.name].push_back(result->PerSecond());
      }
    }
    return absl::OkStatus();
  }

  // Of normd against `base`, each round against the one beside it.
  static double RatioOf(const std::map<std::string, std::vector<double>>& rates, const std::string& base) {
    std::vector<double> ratios;
    for (size_t i = 0; i < rates.at(base).size(); ++i) ratios.push_back(rates.at("normd")[i] / rates.at(base)[i]);
    return Median(std::move(ratios));
  }

  double AddCell(const std::string& name, const std::map<std::string, std::vector<double>>& rates,
                 const std::string& base) {
    std::vector<std::string> cells = {name};
    for (const char* const server : {"echo", "normd", "before"}) {
      cells.push_back(rates.contains(server) ? Short(Median(rates.at(server))) : "");
    }
    cells.push_back(Fixed(RatioOf(rates, base), 2));
    cells.push_back(rates.contains("before") ? Fixed(RatioOf(rates, "before"), 2) : "");
    report_->Row(cells);
    return RatioOf(rates, base);
  }

  void AddBefore(const std::string& form, double ratio) {
    const auto floor = kFloors.find(form);
    Figure figure = {absl::StrCat("4 KiB calls: ", form, " / before"), ratio, "ratio"};
    if (floor != kFloors.end()) figure.floor = floor->second;
    report_->Row({absl::StrCat("  ", form, ", geometric mean"), "", "", "", "", Fixed(ratio, 2)});
    report_->Add(figure);
  }

  const CallsOptions& options_;
  Report* const report_;
  std::vector<Server> servers_;
};

}  // namespace

absl::Duration EstimateCalls(const CallsOptions& options) {
  const int servers = options.before.empty() ? 2 : 3;
  return options.round * (options.rounds + 1) * servers * 4 * static_cast<double>(options.in_flight.size());
}

absl::Status MeasureCalls(const CallsOptions& options, Report* report) {
  report->Table(
      "requests/s of small calls over TCP, n in flight: RMSNorm of a row of 1024 f32; session: with a weight; batch: "
      "64 "
      "items of 64 f32",
      {"", "echo/s", "normd/s", "before/s", "of echo", "of before"});
  return CallsRace(options, report).Run();
}

}  // namespace normd::bench
