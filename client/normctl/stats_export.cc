// normctl stats export: shared statistics as a file of another program.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/tensor_file.h"
#include "client/normctl/channel_statistics.h"
#include "client/normctl/commands.h"
#include "client/normctl/session_message.h"
#include "client/normctl/statistics_formats.h"

namespace normd::client {
namespace {

constexpr absl::string_view kFormats = "json|lerobot|onnx-scaler|c-header";

absl::StatusOr<std::string> TextFor(const ChannelStatistics& statistics, const std::string& format,
                                    const ParsedArgs& args) {
  if (format == "json") return JsonText(StatisticsJson(statistics));
  if (format == "lerobot") return LeRobotText(statistics, args.GetOr("feature", ""));
  if (format == "onnx-scaler") return OnnxScalerText(statistics);
  return CHeaderText(statistics, args.GetOr("prefix", CIdentifier(statistics.session)));
}

// What can be said of the flags without a server.
absl::Status CheckExportFlags(const ParsedArgs& args) {
  const std::string format = args.GetOr("format", "");
  const std::vector<std::string> formats = absl::StrSplit(kFormats, '|');
  if (format.empty()) return UsageError(absl::StrCat("in which form? --format ", kFormats));
  if (std::find(formats.begin(), formats.end(), format) == formats.end()) {
    return BadValueError("format", format, "json, lerobot, onnx-scaler or c-header");
  }
  if (args.Has("feature") && format != "lerobot") return UsageError("--feature is for --format lerobot");
  if (args.Has("prefix") && format != "c-header") return UsageError("--prefix is for --format c-header");
  if (args.Has("prefix") && !IsCIdentifier(*args.Get("prefix"))) {
    return BadValueError("prefix", *args.Get("prefix"), "an identifier of C");
  }
  if (args.Has("json") && args.GetOr("output", "-") == "-") {
    return UsageError("--json prints its report on standard output, so that the statistics cannot go there: -o FILE");
  }
  return absl::OkStatus();
}

absl::Status RunExportStatistics(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  if (absl::Status status = CheckExportFlags(args); !status.ok()) return status;
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  absl::StatusOr<ChannelStatistics> statistics = ReadStatistics(**client, args.operands()[0]);
  if (statistics.ok() && args.Has("channels")) {
    statistics = ChooseChannels(*statistics, absl::StrSplit(*args.Get("channels"), ','));
  }
  if (!statistics.ok()) return statistics.status();
  const std::string format = *args.Get("format");
  const absl::StatusOr<std::string> text = TextFor(*statistics, format, args);
  if (!text.ok()) return text.status();
  const std::string path = args.GetOr("output", "-");
  if (path == "-") return WriteStandardOutput(*text, "", terminal.out);
  if (absl::Status status = WriteFile(path, *text); !status.ok()) return status;
  if (args.Has("json")) {
    terminal.out << JsonText({{"session", statistics->session},
                              {"version", statistics->version},
                              {"digest", statistics->digest},
                              {"file", path},
                              {"format", format}});
  } else {
    terminal.out << statistics->session << "  version " << statistics->version << " -> " << path << "  " << format
                 << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Command> StatsExportCommands() {
  Command command;
  command.spec = {
      "stats export",
      "NAME",
      1,
      1,
      "write shared statistics in the form of another program",
      "json has everything that is known. lerobot is stats.json of LeRobot: channels KEY/0, KEY/1 are one\n"
      "feature KEY. onnx-scaler has the attributes of ONNX's operator Scaler. c-header is a header of C99\n"
      "with the statistics and a function that normalises rows by them. All but json need numbers: a\n"
      "value that is not known is an error, as is a channel that is missing.",
      {{"format", 'f', "FORM", "the form", "", kFormats},
       {"output", 'o', "FILE", "where it goes; - is standard output (default)"},
       {"channels", 'c', "A,B,...", "these channels alone, in this order; without names: their numbers from 0"},
       {"feature", '\0', "KEY", "lerobot: all channels are this feature"},
       {"prefix", '\0', "NAME", "c-header: how its names begin (default: the session's)"}}};
  command.run = &RunExportStatistics;
  return {command};
}

}  // namespace normd::client
