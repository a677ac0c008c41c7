// normctl methods, normctl describe and normctl health.
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/normctl/commands.h"
#include "client/normctl/json_message.h"
#include "client/normctl/method_page.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;

// One table with all columns needs about this width; narrower terminals get two tables.
constexpr int kOneTableWidth = 200;

std::string YesNo(bool value) { return value ? "yes" : "no"; }

std::vector<Table::Column> PropertyColumns() {
  return {{"method"},          {"subtracts mean?"}, {"divides by"},        {"axes of [B,C,H,W]"},
          {"axes of [B,L,D]"}, {"axes of [B,C]"},   {"depends on batch?"}, {"training = inference?"}};
}

std::vector<Table::Column> UseColumns() { return {{"parameters"}, {"used by"}, {"when to choose"}}; }

template <typename T>
std::vector<T> Joined(std::vector<T> a, std::vector<T> b) {
  a.insert(a.end(), std::make_move_iterator(b.begin()), std::make_move_iterator(b.end()));
  return a;
}

std::vector<std::string> PropertyCells(const v1::MethodDescription& method) {
  return {method.title(),
          YesNo(method.subtracts_mean()),
          method.divides_by(),
          method.axes_bchw(),
          method.axes_bld(),
          method.axes_bc(),
          YesNo(method.depends_on_batch()),
          YesNo(method.training_equals_inference())};
}

std::vector<std::string> UseCells(const v1::MethodDescription& method) {
  return {method.parameters(), method.used_by(), method.when_to_choose()};
}

std::string MethodsText(const v1::DescribeResponse& describe, int width) {
  if (width >= kOneTableWidth) {
    Table table(Joined(PropertyColumns(), UseColumns()));
    table.set_row_lines(true);
    for (const v1::MethodDescription& method : describe.methods()) {
      table.AddRow(Joined(PropertyCells(method), UseCells(method)));
    }
    return table.Render(width);
  }
  Table properties(PropertyColumns()), uses(Joined<Table::Column>({{"method"}}, UseColumns()));
  properties.set_row_lines(true);
  uses.set_row_lines(true);
  for (const v1::MethodDescription& method : describe.methods()) {
    properties.AddRow(PropertyCells(method));
    uses.AddRow(Joined<std::string>({method.title()}, UseCells(method)));
  }
  return absl::StrCat(properties.Render(width), "\n", uses.Render(width));
}

absl::StatusOr<v1::DescribeResponse> AskServer(const ParsedArgs& args) {
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  return (*client)->Describe();
}

// Prints the page of the method that is named `written`.
absl::Status ShowMethod(const v1::DescribeResponse& describe, const std::string& written, bool json,
                        const Terminal& terminal) {
  const std::string name = MethodField(written).value_or(written);
  std::vector<std::string> names;
  for (const v1::MethodDescription& method : describe.methods()) {
    if (method.name() == name) {
      terminal.out << (json ? JsonText(MessageJson(method))
                            : WithBoldHeadings(MethodPage(method, terminal.width), terminal.color));
      return absl::OkStatus();
    }
    names.push_back(absl::StrReplaceAll(method.name(), {{"_", "-"}}));
  }
  return UnknownNameError("method", written, names);
}

absl::Status RunMethods(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  const absl::StatusOr<v1::DescribeResponse> describe = AskServer(args);
  if (!describe.ok()) return describe.status();
  if (!args.operands().empty()) return ShowMethod(*describe, args.operands()[0], args.Has("json"), terminal);
  if (args.Has("json")) {
    Json methods = Json::array();
    for (const v1::MethodDescription& method : describe->methods()) methods.push_back(MessageJson(method));
    terminal.out << JsonText({{"methods", methods}});
  } else {
    terminal.out << MethodsText(*describe, terminal.width);
  }
  return absl::OkStatus();
}

std::string LimitsText(const v1::Limits& limits, int width) {
  Table table({{"limit"}, {"value", Align::kRight}});
  table.AddRow({"message", BytesText(static_cast<double>(limits.max_message_bytes()))});
  table.AddRow({"chunk", BytesText(static_cast<double>(limits.max_chunk_bytes()))});
  table.AddRow({"tensor in chunks", BytesText(static_cast<double>(limits.max_tensor_bytes()))});
  table.AddRow({"parameters of a session", BytesText(static_cast<double>(limits.max_parameter_bytes()))});
  table.AddRow({"rank", absl::StrCat(limits.max_rank())});
  table.AddRow({"sessions", absl::StrCat(limits.max_sessions())});
  table.AddRow({"items of a batch", absl::StrCat(limits.max_batch_items())});
  table.AddRow({"training clients of a session", absl::StrCat(limits.max_session_clients())});
  table.AddRow({"steps kept for replay, each client", absl::StrCat(limits.replay_window())});
  return table.Render(width);
}

absl::Status RunDescribe(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  const absl::StatusOr<v1::DescribeResponse> describe = AskServer(args);
  if (!describe.ok()) return describe.status();
  if (!args.operands().empty()) return ShowMethod(*describe, args.operands()[0], args.Has("json"), terminal);
  if (args.Has("json")) {
    terminal.out << JsonText(MessageJson(*describe));
    return absl::OkStatus();
  }
  const std::string dtypes = absl::StrJoin(describe->dtypes(), ", ", [](std::string* out, int dtype) {
    absl::StrAppend(out, DTypeName(static_cast<DType>(dtype)));
  });
  terminal.out << absl::StrFormat("normd %s, numerics %s, dtypes %s, durability %s\n", describe->server_version(),
                                  describe->numerics(), dtypes,
                                  EnumText(*v1::Durability_descriptor(), describe->durability()));
  for (const v1::DeviceDescription& device : describe->devices()) {
    // The detail of an unusable device says that the device is unusable.
    terminal.out << absl::StrFormat("device %s: %s\n", device.name(), device.detail());
  }
  if (!describe->calibration().empty()) terminal.out << "device scheduler: " << describe->calibration() << "\n";
  terminal.out << "\n" << LimitsText(describe->limits(), terminal.width);
  terminal.out << "\n" << AttributesText(*describe, terminal.width);
  return absl::OkStatus();
}

absl::Status RunHealth(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  const absl::StatusOr<Health> health = (*client)->CheckHealth();
  if (!health.ok()) return health.status();
  const std::string text = *health == Health::kServing      ? "SERVING"
                           : *health == Health::kNotServing ? "NOT_SERVING"
                                                            : "UNKNOWN";
  if (args.Has("json")) {
    terminal.out << JsonText({{"status", absl::AsciiStrToLower(text)}});
  } else {
    terminal.out << text << "\n";
  }
  if (*health == Health::kServing) return absl::OkStatus();
  return ReportedError(absl::StrCat("the server is ", text));
}

}  // namespace

std::vector<Command> DescribeCommands() {
  return {{{"methods",
            "[METHOD]",
            0,
            1,
            "the table of methods, or all of one: formula, axes, attributes",
            "Without METHOD: what each method does and when to choose it; two tables where the terminal has fewer than "
            "200 columns. With METHOD: its formula, a picture of the elements that share their statistics, parameters, "
            "attributes with defaults, and an example.",
            {}},
           &RunMethods},
          {{"describe",
            "[METHOD]",
            0,
            1,
            "the server: version, devices, limits, attributes of methods",
            "With METHOD: the page of normctl methods METHOD.",
            {}},
           &RunDescribe},
          {{"health", "", 0, 0, "ask whether the server serves; exit code 0 only then", "", {}}, &RunHealth}};
}

}  // namespace normd::client
