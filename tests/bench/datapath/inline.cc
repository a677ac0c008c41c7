#include <optional>
#include <string>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "tests/bench/comparison.h"
#include "tests/bench/datapath/exchange.h"
#include "tests/bench/datapath/rms_rows.h"
#include "tests/bench/datapath/sections.h"
#include "tests/bench/datapath/server_comparison.h"

namespace normd::bench {

namespace {

// What is asked of normd, as a share of the echo: geometric means over what is in flight, and of any cell.
struct Floors {
  double requests, cpu;
};
constexpr Floors kSmall = {0.95, 1.10}, kLarge = {0.85, 1.30};  // small: up to 64 KiB
constexpr double kCellFloor = 0.75;
// At most, as a multiple of the echo's CPU, of small messages with the kernel's own time taken off.
constexpr double kCpuWithoutKernel = 1.15;

bool IsSmall(int64_t payload) { return payload <= 64 << 10; }

struct Group {
  std::string name;  // "tcp stream 4 KiB"
  bool stream;
  int64_t payload;
};

// The chosen groups of one transport.
std::vector<Group> GroupsOn(const std::string& transport, const Flags& flags) {
  std::vector<Group> groups;
  for (const bool stream : {false, true}) {
    for (const int64_t payload : {4 << 10, 64 << 10, 1 << 20, 16 << 20}) {
      const std::string name = Concat(transport, stream ? " stream " : " unary ", BytesText(payload));
      const bool skipped = flags.smoke && (payload == 64 << 10 || payload == 16 << 20);
      if (flags.Chosen("inline " + name) && !skipped) groups.push_back({name, stream, payload});
    }
  }
  return groups;
}

// Micros of the kernel on these rows, by itself and from the cache, so that no more is taken off than it can have
// taken. Absent for large rows, which several threads share, whose time together is not the time of one.
absl::StatusOr<std::optional<double>> KernelMicros(const Rows& rows, const Flags& flags) {
  if (!IsSmall(static_cast<int64_t>(rows.x.size()))) return std::nullopt;
  std::string y(rows.x.size(), '\0');
  const absl::Duration duration = flags.Pick(absl::Milliseconds(100), absl::Milliseconds(30), absl::Milliseconds(1));
  NORMD_ASSIGN_OR_RETURN(const absl::Duration one,
                         RmsRows().TimeOfOne(rows.x.data(), rows.x.size(), y.data(), duration));
  return absl::ToDoubleMicroseconds(one);
}

absl::Status MeasureGroup(const Group& group, const Flags& flags, ServerComparison* comparison, Worst* worst,
                          Report* report) {
  NORMD_ASSIGN_OR_RETURN(const Rows rows, MakeRows(group.payload));
  NORMD_RETURN_IF_ERROR(
      comparison->Prepare([&](const std::string& kind) { return MakeTarget(kind, group.stream, rows); },
                          [&](const std::string& kind, const grpc::ByteBuffer& reply) {
                            return CheckReply(kind, group.stream, rows, reply);
                          }));
  NORMD_ASSIGN_OR_RETURN(const std::optional<double> kernel, KernelMicros(rows, flags));
  std::vector<double> requests, cpu, cpu_without_kernel;
  for (const int in_flight : flags.Pick<std::vector<int>>({1, 4, 16}, {1, 4, 16}, {1, 4})) {
    NORMD_ASSIGN_OR_RETURN(const ServerRounds rounds, comparison->Run(in_flight));
    const std::string name = Concat(group.name, " n=", in_flight);
    requests.push_back(*rounds.NormdTo("echo", &ServerRound::per_second));
    cpu.push_back(*rounds.NormdTo("echo", &ServerRound::cpu_micros));
    const double echo_cpu = *rounds.Median("echo", &ServerRound::cpu_micros);
    Cell without_kernel;
    if (kernel.has_value()) {
      cpu_without_kernel.push_back(cpu.back() - *kernel / echo_cpu);
      without_kernel = Ratio(cpu_without_kernel.back());
    }
    worst->Take(requests.back(), name);
    report->Row(name, {Amount(rounds.Median("echo", &ServerRound::per_second)),
                       Amount(rounds.Median("normd", &ServerRound::per_second)), Ratio(requests.back()),
                       Ratio(rounds.MedianRatio("bytes", "echo", &ServerRound::per_second)),
                       Ratio(rounds.MedianRatio("floats", "echo", &ServerRound::per_second)), Amount(echo_cpu),
                       Amount(rounds.Median("normd", &ServerRound::cpu_micros)), Ratio(cpu.back()), without_kernel});
  }
  const Floors& floors = IsSmall(group.payload) ? kSmall : kLarge;
  const Cell without_kernel =
      kernel.has_value() ? Ratio(GeometricMean(cpu_without_kernel), {}, kCpuWithoutKernel) : Cell();
  report->Row(group.name, {Cell(), Cell(), Ratio(GeometricMean(requests), floors.requests), Cell(), Cell(), Cell(),
                           Cell(), Ratio(GeometricMean(cpu), {}, floors.cpu), without_kernel});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureInline(const Flags& flags, Report* report) {
  report->Table(
      "n in flight, RMSNorm f32 rows of 1024 in the message; medians of rounds, below each group the geometric mean "
      "(floor); normd, bytes, floats: share of the echo's requests/s; us: server CPU a request; less kernel: without "
      "the time that the kernel takes by itself",
      {"echo/s", "normd/s", "normd", "bytes", "floats", "echo us", "normd us", "cpu", "less kernel"});
  Worst worst;
  for (const char* const transport : {"tcp", "unix"}) {
    const std::vector<Group> groups = GroupsOn(transport, flags);
    if (groups.empty()) continue;
    ServerComparison comparison(flags);
    NORMD_RETURN_IF_ERROR(comparison.Start("echo", "echo", transport, 1));
    NORMD_RETURN_IF_ERROR(comparison.Start("normd", "normd", transport, 1));
    NORMD_RETURN_IF_ERROR(comparison.Start("bytes", "bytes", transport, 0.5));
    if (!flags.quick) NORMD_RETURN_IF_ERROR(comparison.Start("floats", "floats", transport, 0.25));
    for (const Group& group : groups) {
      NORMD_RETURN_IF_ERROR(WithContext(MeasureGroup(group, flags, &comparison, &worst, report), group.name));
    }
  }
  report->Table("of all cells, normd's share of the echo's requests/s (floor)", {"worst", "median"});
  worst.AddTo(report, "worst cell", kCellFloor);
  return absl::OkStatus();
}

}  // namespace normd::bench
