// (b) Sends Fisher's iris (150 flowers, 4 measurements) in mini-batches of 15 through a BatchNorm session that keeps
// the mean over all batches. Because the batches have equal size, the running mean arrives at the mean of the columns.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/csv.h"
#include "client/cli/table.h"
#include "client/normctl/demo.h"
#include "client/normctl/demo_data.h"

namespace normd::client {
namespace {

constexpr int64_t kBatchRows = 15;
// The means of the columns as statistics texts print them.
constexpr double kColumnMeans[] = {5.8433, 3.0573, 3.7580, 1.1993};
constexpr double kPrintedDigits = 5.0001e-05;
// The session and this program both use f64, but add in different orders.
constexpr double kF64Tolerance = 1e-12;

v1::Session CumulativeBatchNorm(int64_t channels) {
  v1::Session session;
  v1::BatchNorm& spec = *session.mutable_spec()->mutable_batch_norm();
  spec.set_layout(v1::LAYOUT_CHANNELS_LAST);
  spec.mutable_running()->set_cumulative(true);
  session.set_num_channels(channels);
  return session;
}

// Rows [first, first + kBatchRows) in f32.
Tensor Batch(const CsvTable& iris, int64_t first) {
  const auto begin = iris.values.begin() + first * iris.columns;
  const std::vector<double> values(begin, begin + kBatchRows * iris.columns);
  return Tensor::Rounded(v1::DTYPE_F32, {kBatchRows, iris.columns}, values);
}

// The running mean after `step` batches, from the f32 values that the server received.
std::vector<double> ExpectedMean(const CsvTable& iris, int64_t step) {
  std::vector<double> mean(static_cast<size_t>(iris.columns), 0);
  const int64_t rows = step * kBatchRows;
  for (int64_t i = 0; i < rows * iris.columns; ++i) {
    mean[static_cast<size_t>(i % iris.columns)] +=
        static_cast<double>(static_cast<float>(iris.values[static_cast<size_t>(i)]));
  }
  for (double& value : mean) value /= static_cast<double>(rows);
  return mean;
}

absl::StatusOr<std::vector<double>> RunningMean(Client& client, const std::string& name) {
  const absl::StatusOr<v1::Session> session = client.GetSession(name, v1::SESSION_VIEW_FULL);
  if (!session.ok()) return session.status();
  const absl::StatusOr<Tensor> mean = Tensor::FromProto(session->state().mean());
  if (!mean.ok()) return mean.status();
  return mean->ToDoubles();
}

bool Near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [tolerance](double x, double y) { return std::fabs(x - y) <= tolerance; });
}

v1::NormalizeRequest StepOf(const std::string& session, const CsvTable& iris, int64_t step) {
  v1::NormalizeRequest request;
  request.set_session(session);
  request.set_mode(v1::MODE_TRAINING);
  request.mutable_step()->set_client_id("normctl-demo");
  request.mutable_step()->set_sequence(static_cast<uint64_t>(step));
  *request.mutable_x() = Batch(iris, (step - 1) * kBatchRows).ToProto();
  return request;
}

absl::Status RunStep(Demo& demo, const std::string& session, const CsvTable& iris, int64_t step, Table& table) {
  const absl::StatusOr<v1::NormalizeResponse> response = demo.client.Normalize(StepOf(session, iris, step));
  if (!response.ok()) return response.status();
  demo.Check(response->state().applied(), absl::StrCat("iris: step ", step, " is applied"));
  const absl::StatusOr<std::vector<double>> mean = RunningMean(demo.client, session);
  if (!mean.ok()) return mean.status();
  const bool holds = demo.Check(Near(*mean, ExpectedMean(iris, step), kF64Tolerance),
                                absl::StrCat("iris: the running mean after step ", step));
  std::vector<std::string> cells = {absl::StrCat(step), absl::StrCat(response->state().version())};
  for (double value : *mean) cells.push_back(absl::StrFormat("%.4f", value));
  cells.push_back(holds ? "yes" : "NO");
  table.AddRow(std::move(cells));
  demo.json["iris"].push_back({{"step", step}, {"version", response->state().version()}, {"running_mean", *mean}});
  return absl::OkStatus();
}

// Sends the last step again. Exactly-once means that nothing moves.
absl::Status ReplayLastStep(Demo& demo, const std::string& session, const CsvTable& iris, int64_t step) {
  const absl::StatusOr<v1::NormalizeResponse> response = demo.client.Normalize(StepOf(session, iris, step));
  if (!response.ok()) return response.status();
  const bool holds =
      demo.Check(response->state().replayed() && response->state().num_batches() == static_cast<uint64_t>(step),
                 "iris: the last step sent again is recognised and changes nothing");
  absl::StrAppendFormat(&demo.text, "The last step sent again: %s, version %d, %d batches.\n",
                        holds ? "recognised, nothing changed" : "NOT RECOGNISED", response->state().version(),
                        response->state().num_batches());
  return absl::OkStatus();
}

}  // namespace

absl::Status RunIris(Demo& demo) {
  const absl::StatusOr<CsvTable> iris = ParseCsv(IrisCsv());
  if (!iris.ok()) return iris.status();
  const absl::StatusOr<ScopedSession> session =
      ScopedSession::Create(demo.client, "iris", CumulativeBatchNorm(iris->columns));
  if (!session.ok()) return session.status();
  std::vector<Table::Column> columns = {{"step", Align::kRight}, {"version", Align::kRight}};
  for (const std::string& name : iris->header) columns.push_back({name, Align::kRight});
  columns.push_back({"as computed here"});
  Table table(columns);
  const int64_t steps = iris->rows / kBatchRows;
  for (int64_t step = 1; step <= steps; ++step) {
    if (absl::Status status = RunStep(demo, session->name(), *iris, step, table); !status.ok()) return status;
  }
  const absl::StatusOr<std::vector<double>> mean = RunningMean(demo.client, session->name());
  if (!mean.ok()) return mean.status();
  const std::vector<double> printed(std::begin(kColumnMeans), std::end(kColumnMeans));
  const bool arrived =
      demo.Check(Near(*mean, printed, kPrintedDigits), "iris: the running mean arrives at the column means");
  std::vector<std::string> cells = {"means", ""};
  for (double value : printed) cells.push_back(absl::StrFormat("%.4f", value));
  cells.push_back(arrived ? "yes" : "NO");
  table.AddRow(std::move(cells));
  absl::StrAppend(&demo.text, table.Render(demo.width));
  return ReplayLastStep(demo, session->name(), *iris, steps);
}

}  // namespace normd::client
