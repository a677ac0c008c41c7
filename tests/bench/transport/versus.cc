#include "tests/bench/transport/versus.h"

#include <cstddef>

#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "tests/bench/comparison.h"
#include "tests/bench/transport/messages.h"

namespace normd::bench {
namespace {

struct Round {
  double per_second = 0;
  double cpu_micros = 0;
};

}  // namespace

absl::StatusOr<Servers> StartServers(const Flags& flags, const std::string& service) {
  Servers servers;
  if (flags.before.empty()) {
    NORMD_ASSIGN_OR_RETURN(servers.processes[kGrpc], ServerProcess::Start(service + "_grpc", "tcp"));
  } else {
    NORMD_ASSIGN_OR_RETURN(servers.processes[kGrpc], ServerProcess::Start(service + "_native", "tcp", flags.before));
  }
  NORMD_ASSIGN_OR_RETURN(servers.processes[kNative], ServerProcess::Start(service + "_native", "tcp"));
  return servers;
}

absl::StatusOr<Costs> Measure(const Flags& flags, const Servers& servers, const Load& load) {
  const absl::Duration longest = flags.Pick(absl::Milliseconds(300), absl::Milliseconds(100), absl::Milliseconds(2));
  const auto run = [&](size_t server, bool warm_up) -> absl::StatusOr<Round> {
    const ServerProcess& process = *servers.processes[server];
    NORMD_ASSIGN_OR_RETURN(const absl::Duration before, process.CpuTime());
    NORMD_ASSIGN_OR_RETURN(const LoadResult result, load(server, longest * (warm_up ? 0.25 : 1)));
    NORMD_ASSIGN_OR_RETURN(const absl::Duration after, process.CpuTime());
    return Round{.per_second = result.per_second,
                 .cpu_micros = absl::ToDoubleMicroseconds(after - before) / result.calls};
  };
  NORMD_ASSIGN_OR_RETURN(const std::vector<std::vector<Round>> rounds,
                         Interleave<Round>(std::size(kTransports), flags.Pick(7, 5, 1), run));
  Costs costs;
  for (const size_t server : {kGrpc, kNative}) {
    costs.per_second[server] = Median(ValuesOf(rounds[server], &Round::per_second));
    costs.cpu_micros[server] = Median(ValuesOf(rounds[server], &Round::cpu_micros));
  }
  costs.rate_ratio =
      MedianRatio(ValuesOf(rounds[kNative], &Round::per_second), ValuesOf(rounds[kGrpc], &Round::per_second));
  costs.cpu_ratio =
      MedianRatio(ValuesOf(rounds[kNative], &Round::cpu_micros), ValuesOf(rounds[kGrpc], &Round::cpu_micros));
  return costs;
}

std::string Shape::Name() const {
  const std::string name = Concat(service, " ", kind, " ", SizeText(bytes), " n=", in_flight);
  return connections == 1 ? name : Concat(name, " c=", connections);
}

Limits LimitsOf(const Shape& shape) {
  const bool small_calls = shape.bytes == kSmall && !shape.stream();
  Limits limits;
  if (shape.service == "echo") {
    limits.least_rate = 1;
    if (shape.bytes >= kLarge) limits.most_cpu = 0.9;
    if (small_calls && shape.kind == "unary" && shape.in_flight == 1) limits.most_cpu = 0.5;
    if (small_calls && shape.in_flight == 16) limits.most_cpu = shape.kind == "h2load" ? 0.25 : 0.85;
  } else if (small_calls && shape.in_flight == 16) {
    limits.least_rate = 1.5;
  }
  return limits;
}

std::vector<std::string> CostColumns(const Flags& flags) {
  const std::string base = flags.before.empty() ? "grpc" : "before";
  return {base + "/s", "native/s", "rate", base + " CPU us", "native CPU", "CPU"};
}

void AddRow(const std::string& name, const Costs& costs, const Limits& limits, const Flags& flags, Report* report) {
  const Limits kept = flags.before.empty() ? limits : Limits();
  report->Row(name, {Amount(costs.per_second[kGrpc]), Amount(costs.per_second[kNative]),
                     Ratio(costs.rate_ratio, kept.least_rate), Amount(costs.cpu_micros[kGrpc]),
                     Amount(costs.cpu_micros[kNative]), Ratio(costs.cpu_ratio, {}, kept.most_cpu)});
}

}  // namespace normd::bench
