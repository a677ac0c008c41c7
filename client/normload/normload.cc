#include "client/normload/normload.h"

#include <sys/utsname.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/cli/tensor_file.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxElements = int64_t{1} << 30;

std::vector<double> RandomValues(int64_t count) {
  std::mt19937_64 random(20240607);
  std::normal_distribution<double> normal(0.25, 1.5);
  std::vector<double> out(static_cast<size_t>(count));
  for (double& value : out) value = normal(random);
  return out;
}

absl::StatusOr<int64_t> Elements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count) || count > kMaxElements) {
      return UsageError("--shape: extents must not be negative, and their product at most 2^30");
    }
  }
  return count;
}

// Whole numbers from `low` up.
absl::StatusOr<int> Count(const ParsedArgs& args, absl::string_view flag, int fallback, int low, int high) {
  const absl::StatusOr<std::optional<int64_t>> value = args.Int(flag);
  if (!value.ok()) return value.status();
  const int64_t count = value->value_or(fallback);
  if (count < low || count > high) {
    return UsageError(absl::StrCat("--", flag, " ", count, ": must be ", low, " to ", high));
  }
  return static_cast<int>(count);
}

absl::Status ReadInto(const ParsedArgs& args, absl::string_view flag, absl::Duration& to) {
  const absl::StatusOr<std::optional<absl::Duration>> value = args.Duration(flag);
  if (value.ok() && value->has_value()) to = **value;
  return value.status();
}

absl::Status AddTransport(const ParsedArgs& args, LoadOptions& options) {
  const std::string name = args.GetOr("transport", "unary");
  if (name != "unary" && name != "batch" && name != "stream") {
    return UsageError(absl::StrCat("--transport ", name, ": must be unary, batch or stream"));
  }
  options.transport = name == "unary" ? Transport::kUnary : name == "batch" ? Transport::kBatch : Transport::kStream;
  const absl::StatusOr<int> items = Count(args, "batch-items", options.batch_items, 1, 1 << 16);
  const absl::StatusOr<int> concurrency = Count(args, "concurrency", 1, 1, 4096);
  const absl::StatusOr<int> connections = Count(args, "connections", 1, 1, 256);
  const absl::StatusOr<int> requests = Count(args, "requests", 0, 0, std::numeric_limits<int>::max());
  for (const auto* value : {&items, &concurrency, &connections, &requests}) {
    if (!value->ok()) return value->status();
  }
  options.batch_items = *items;
  options.concurrency = *concurrency;
  options.connections = *connections;
  options.requests = *requests;
  for (auto [flag, to] :
       {std::pair{"duration", &options.duration}, {"warmup", &options.warmup}, {"deadline", &options.deadline}}) {
    if (absl::Status status = ReadInto(args, flag, *to); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status AddTensor(const ParsedArgs& args, LoadOptions& options) {
  const absl::StatusOr<std::optional<DType>> dtype = DTypeFlag(args);
  if (!dtype.ok()) return dtype.status();
  absl::StatusOr<std::vector<int64_t>> shape = args.Ints("shape", 'x');
  if (!shape.ok()) return shape.status();
  if (shape->empty()) *shape = {256, 768};
  const absl::StatusOr<int64_t> count = Elements(*shape);
  if (!count.ok()) return count.status();
  *options.request.mutable_x() =
      Tensor::Rounded(dtype->value_or(v1::DTYPE_F32), *shape, RandomValues(*count)).ToProto();
  const std::optional<std::string> method = MethodField(args.GetOr("method", "layer-norm"));
  const absl::StatusOr<v1::NormSpec> spec = BuildSpec(method.value_or(args.GetOr("method", "")), args, *shape);
  if (!spec.ok()) return spec.status();
  *options.request.mutable_spec() = *spec;
  options.request.set_mode(args.Has("training") ? v1::MODE_TRAINING : v1::MODE_INFERENCE);
  // Training without a session changes nothing on the server; inference without one would need running statistics.
  if (spec->has_batch_norm() || spec->has_power_norm()) options.request.set_mode(v1::MODE_TRAINING);
  return absl::OkStatus();
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "model name")) return line.substr(line.find(": ") + 2);
  }
  return "unknown CPU";
}

// Who measured what, where and when.
Json About(const LoadOptions& options, const v1::DescribeResponse& server) {
  utsname system = {};
  uname(&system);
  double load = 0;
  std::ifstream("/proc/loadavg") >> load;
  return {{"date", absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone())},
          {"machine", absl::StrCat(CpuModel(), ", ", std::thread::hardware_concurrency(), " CPUs, ", system.sysname,
                                   " ", system.release, " ", system.machine)},
          {"load_average_before", load},
          {"server", options.server},
          {"server_version", server.server_version()},
          {"numerics", server.numerics()},
          {"client_version", ClientVersion()}};
}

Json Report(const ParsedArgs& args, const LoadOptions& options, const LoadResult& result, Json about) {
  const double seconds = absl::ToDoubleSeconds(result.elapsed);
  const v1::Tensor& x = options.request.x();
  const std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  const auto rate = [&](int64_t count) { return static_cast<double>(count) / seconds; };
  int64_t failed = 0;
  for (const auto& [code, count] : result.errors) failed += count;
  return {{"about", std::move(about)},
          {"load",
           {{"method", MethodOf(options.request.spec())},
            {"shape", shape},
            {"dtype", DTypeName(x.dtype())},
            {"transport", args.GetOr("transport", "unary")},
            {"items_per_call", options.transport == Transport::kBatch ? options.batch_items : 1},
            {"concurrency", options.concurrency},
            {"connections", options.connections},
            {"kernel", result.applied.kernel()}}},
          {"seconds", seconds},
          {"calls", result.latency.count()},
          {"failed", failed},
          {"errors", result.errors},
          {"first_error", result.first_error},
          {"calls_per_second", rate(result.latency.count())},
          {"tensors_per_second", rate(result.items)},
          {"rows_per_second", rate(result.items * rows)},
          {"sent_mb_per_second", rate(result.bytes_sent) / 1e6},
          {"received_mb_per_second", rate(result.bytes_received) / 1e6},
          {"latency_ns",
           {{"p50", result.latency.Quantile(0.5)},
            {"p90", result.latency.Quantile(0.9)},
            {"p99", result.latency.Quantile(0.99)},
            {"max", result.latency.max()},
            {"mean", result.latency.mean()}}}};
}

std::string ReportText(const Json& report, int width) {
  const Json& about = report["about"];
  const Json& load = report["load"];
  std::string out = absl::StrFormat("normload %s against normd %s (%s) at %s\n%s; load average before: %.2f; %s\n",
                                    about["client_version"].get<std::string>(),
                                    about["server_version"].get<std::string>(), about["numerics"].get<std::string>(),
                                    about["server"].get<std::string>(), about["machine"].get<std::string>(),
                                    about["load_average_before"].get<double>(), about["date"].get<std::string>());
  absl::StrAppendFormat(
      &out, "%s %s %s, %s, %d tensor(s) a call, %d in flight on %d connection(s), %s, %.1f s closed loop\n\n",
      load["method"].get<std::string>(), ShapeText(load["shape"].get<std::vector<int64_t>>()),
      load["dtype"].get<std::string>(), load["transport"].get<std::string>(), load["items_per_call"].get<int>(),
      load["concurrency"].get<int>(), load["connections"].get<int>(), load["kernel"].get<std::string>(),
      report["seconds"].get<double>());
  Table table({{"calls/s", Align::kRight},
               {"tensors/s", Align::kRight},
               {"rows/s", Align::kRight},
               {"MB/s sent", Align::kRight},
               {"MB/s received", Align::kRight},
               {"p50", Align::kRight},
               {"p90", Align::kRight},
               {"p99", Align::kRight},
               {"max", Align::kRight},
               {"errors", Align::kRight}});
  const auto number = [&](const char* name) { return absl::StrFormat("%.1f", report[name].get<double>()); };
  const auto time = [&](const char* name) { return NanosecondsText(report["latency_ns"][name].get<double>()); };
  table.AddRow({number("calls_per_second"), number("tensors_per_second"), number("rows_per_second"),
                number("sent_mb_per_second"), number("received_mb_per_second"), time("p50"), time("p90"), time("p99"),
                time("max"), absl::StrCat(report["failed"].get<int64_t>())});
  absl::StrAppend(&out, table.Render(width));
  for (const auto& [code, count] : report["errors"].items()) {
    absl::StrAppend(&out, "  ", code, ": ", count.get<int64_t>(), "\n");
  }
  if (!report["errors"].empty()) absl::StrAppend(&out, "  first: ", report["first_error"].get<std::string>(), "\n");
  return out;
}

absl::Status Measure(const ParsedArgs& args, const Terminal& terminal) {
  const absl::StatusOr<LoadOptions> options = MakeLoadOptions(args);
  if (!options.ok()) return options.status();
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  const absl::StatusOr<v1::DescribeResponse> server = (*client)->Describe();
  if (!server.ok()) return server.status();
  Json about = About(*options, *server);
  const absl::StatusOr<LoadResult> result = RunLoad(*options);
  if (!result.ok()) return result.status();
  const Json report = Report(args, *options, *result, std::move(about));
  terminal.out << (args.Has("json") ? JsonText(report) : ReportText(report, terminal.width));
  if (result->errors.empty()) return absl::OkStatus();
  return ReportedError(absl::StrCat(report["failed"].get<int64_t>(), " calls failed: ", result->first_error));
}

}  // namespace

CommandSpec NormloadSpec() {
  CommandSpec spec;
  spec.summary = "Loads a normd server with one kind of call, closed loop, and prints throughput and latency.";
  spec.details =
      "Each of --concurrency workers sends its next call when the last one is answered. MB/s are tensor bytes of "
      "calls\n"
      "that succeeded, 1 MB = 10^6 bytes. batch-norm and power-norm run in training mode, which needs no state.";
  spec.flags = Join(Join({{"method", 'm', "METHOD", "layer-norm (default), rms-norm, batch-norm, ..."},
                          {"shape", '\0', "AxB", "of x (default 256x768)"},
                          {"dtype", '\0', "T", "f32 (default), f16, bf16 or f64"},
                          {"training", '\0', "", "training mode"},
                          {"transport", 't', "T", "unary (default), batch or stream"},
                          {"batch-items", '\0', "N", "tensors in one batch call (default 16)"},
                          {"concurrency", 'c', "N", "calls in flight (default 1)"},
                          {"connections", '\0', "N", "clients that the calls are spread over (default 1)"},
                          {"duration", 'd', "TIME", "how long to measure (default 10s)"},
                          {"warmup", '\0', "TIME", "before measuring (default 1s)"},
                          {"requests", 'n', "N", "stop after so many calls, too"},
                          {"allow-remote", '\0', "", "load a server on another machine"},
                          {"version", '\0', "", "print the version"}},
                         SpecFlags("")),
                    ServerFlags());
  return spec;
}

absl::StatusOr<LoadOptions> MakeLoadOptions(const ParsedArgs& args) {
  LoadOptions options;
  options.server = ServerTarget(args);
  if (!IsLocal(options.server) && !args.Has("allow-remote")) {
    return UsageError(absl::StrCat(options.server, " is not on this machine: --allow-remote loads it all the same"));
  }
  if (absl::Status status = AddTransport(args, options); !status.ok()) return status;
  if (absl::Status status = AddTensor(args, options); !status.ok()) return status;
  return options;
}

int RunNormload(absl::Span<const std::string> arguments, const Terminal& terminal) {
  const CommandSpec spec = NormloadSpec();
  const absl::StatusOr<ParsedArgs> args = ParseArgs(spec, arguments);
  if (!args.ok()) return Finish(args.status(), "normload", false, terminal);
  if (args->Has("help")) {
    terminal.out << HelpText("normload", spec);
    return kExitOk;
  }
  if (args->Has("version")) {
    terminal.out << "normload " << ClientVersion() << "\n";
    return kExitOk;
  }
  return Finish(Measure(*args, terminal), "normload", args->Has("json"), terminal);
}

}  // namespace normd::client
