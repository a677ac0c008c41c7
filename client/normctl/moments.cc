// normctl moments: the reduce pass alone.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/cli/tensor_file.h"
#include "client/normctl/commands.h"
#include "client/normctl/json_message.h"

namespace normd::client {
namespace {

constexpr size_t kShownGroups = 40;

absl::StatusOr<v1::ComputeMomentsRequest> BuildRequest(const ParsedArgs& args, const Terminal& terminal) {
  v1::ComputeMomentsRequest request;
  const absl::StatusOr<std::optional<DType>> dtype = DTypeFlag(args);
  if (!dtype.ok()) return dtype.status();
  const std::optional<std::string> method = MethodField(args.operands()[0]);
  if (!method.has_value()) return UnknownMethodError(args.operands()[0]);
  const absl::StatusOr<CsvOptions> csv = CsvFlags(args);
  if (!csv.ok()) return csv.status();
  absl::StatusOr<LoadedTensor> x = LoadTensor(args.operands()[1], *dtype, *csv);
  if (!x.ok()) return x.status();
  if (!x->warning.empty()) PrintWarnings({x->warning}, terminal);
  if (absl::Status status = CheckRank("x", x->tensor.shape.size()); !status.ok()) return status;
  const absl::StatusOr<v1::NormSpec> spec = BuildSpec(*method, args, x->tensor.shape);
  if (!spec.ok()) return spec.status();
  *request.mutable_spec() = *spec;
  if (args.Has("mask")) {
    absl::StatusOr<Tensor> mask = LoadMask(*args.Get("mask"), {.delimiter = csv->delimiter, .decimal = csv->decimal});
    if (!mask.ok()) return mask.status();
    *request.mutable_mask() = (*std::move(mask)).ToProto();
  }
  request.set_want_exact(args.Has("exact"));
  *request.mutable_x() = std::move(x->tensor).ToProto();
  return request;
}

absl::Status PrintText(const v1::ComputeMomentsResponse& response, const Terminal& terminal) {
  std::vector<double> columns[3];
  const v1::Tensor* tensors[] = {&response.moments().count(), &response.moments().mean(), &response.moments().m2()};
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<Tensor> tensor = Tensor::FromProto(*tensors[i]);
    if (!tensor.ok()) return tensor.status();
    columns[i] = tensor->ToDoubles();
    if (columns[i].size() != columns[0].size()) return absl::InternalError("the moments differ in length");
  }
  Table table({{"set", Align::kRight},
               {"count", Align::kRight},
               {"mean", Align::kRight},
               {"M2", Align::kRight},
               {"M2 / count", Align::kRight}});
  const size_t groups = columns[0].size();
  for (size_t i = 0; i < std::min(groups, kShownGroups); ++i) {
    table.AddRow({absl::StrCat(i), ShortestText(columns[0][i]), ShortestText(columns[1][i]),
                  ShortestText(columns[2][i]), ShortestText(columns[2][i] / columns[0][i])});
  }
  const v1::Tensor& mean = response.moments().mean();
  terminal.out << "statistics groups of shape "
               << ShapeText(std::vector<int64_t>(mean.shape().begin(), mean.shape().end())) << "\n"
               << table.Render(terminal.width);
  if (groups > kShownGroups) terminal.out << "... and " << groups - kShownGroups << " more: --json prints all\n";
  return absl::OkStatus();
}

absl::Status RunMoments(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  const absl::StatusOr<v1::ComputeMomentsRequest> request = BuildRequest(args, terminal);
  if (!request.ok()) return request.status();
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  const absl::StatusOr<v1::ComputeMomentsResponse> response = (*client)->ComputeMoments(*request);
  if (!response.ok()) return response.status();
  const std::string json = JsonText(MessageJson(*response));
  if (const std::optional<std::string> path = args.Get("output")) {
    if (*path == "-") {
      terminal.out << json;
      return absl::OkStatus();
    }
    if (absl::Status status = WriteFile(*path, json); !status.ok()) return status;
  }
  if (!args.Has("json")) return PrintText(*response, terminal);
  terminal.out << json;
  return absl::OkStatus();
}

}  // namespace

std::vector<Command> MomentsCommands() {
  Command command;
  command.spec = {"moments",
                  "METHOD INPUT",
                  2,
                  2,
                  "count, mean and M2 of each statistics group, mergeable",
                  "For methods that do not subtract the mean, mean is 0 and M2 is the sum of squares.",
                  Join(Join(SpecFlags(""), Join(HeaderFlags(), SeparatorFlags())),
                       {{"exact", '\0', "", "with exact sums, which parts of one step may be merged from in any order"},
                        {"output", 'o', "FILE", "where they go, as JSON, for session commit; - for standard output"},
                        {"dtype", '\0', "T", "convert the input after loading"},
                        {"mask", '\0', "FILE", "positions that count: non-zero ones"}})};
  command.run = &RunMoments;
  return {command};
}

}  // namespace normd::client
