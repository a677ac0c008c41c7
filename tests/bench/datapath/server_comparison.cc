#include "tests/bench/datapath/server_comparison.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"
#include "tests/bench/comparison.h"

namespace normd::bench {

namespace {

absl::StatusOr<ServerRound> RunRound(const ServerProcess& server, const Target& target, int in_flight,
                                     absl::Duration duration) {
  NORMD_ASSIGN_OR_RETURN(const absl::Duration before, server.CpuTime());
  NORMD_ASSIGN_OR_RETURN(const LoopResult result, RunClosedLoop(target, in_flight, duration));
  NORMD_ASSIGN_OR_RETURN(const absl::Duration after, server.CpuTime());
  return ServerRound{.per_second = result.PerSecond(),
                     .cpu_micros = absl::ToDoubleMicroseconds(after - before) / static_cast<double>(result.requests)};
}

}  // namespace

std::optional<double> ServerRounds::Median(const std::string& name, double ServerRound::*field) const {
  const auto rounds = by_name_.find(name);
  if (rounds == by_name_.end()) return std::nullopt;
  return bench::Median(ValuesOf(rounds->second, field));
}

std::optional<double> ServerRounds::MedianRatio(const std::string& name, const std::string& base,
                                                double ServerRound::*field) const {
  const auto over = by_name_.find(name);
  const auto under = by_name_.find(base);
  if (over == by_name_.end() || under == by_name_.end()) return std::nullopt;
  return bench::MedianRatio(ValuesOf(over->second, field), ValuesOf(under->second, field));
}

absl::Status ServerComparison::Start(const std::string& name, const std::string& kind, const std::string& transport,
                                     double share, const std::string& program) {
  Server server = {.name = name, .process = nullptr, .target = {}, .share = share};
  NORMD_ASSIGN_OR_RETURN(server.process, ServerProcess::Start(kind, transport, program));
  server.target.channels = NewChannels(server.process->address(), 1);
  servers_.push_back(std::move(server));
  return absl::OkStatus();
}

const std::shared_ptr<grpc::Channel>& ServerComparison::channel(const std::string& name) const {
  const auto named = [&](const Server& server) { return server.name == name; };
  return std::find_if(servers_.begin(), servers_.end(), named)->target.channels.front();
}

absl::Status ServerComparison::Prepare(
    absl::FunctionRef<Target(const std::string& name)> make_target,
    absl::FunctionRef<absl::Status(const std::string& name, const grpc::ByteBuffer& reply)> check) {
  for (Server& server : servers_) {
    Target target = make_target(server.name);
    target.channels = std::move(server.target.channels);
    server.target = std::move(target);
    const absl::StatusOr<LoopResult> first = RunClosedLoop(server.target, 1, absl::ZeroDuration());
    const absl::Status status = first.ok() ? check(server.name, first->reply) : first.status();
    NORMD_RETURN_IF_ERROR(WithContext(status, server.name));
  }
  return absl::OkStatus();
}

absl::StatusOr<ServerRounds> ServerComparison::Run(int in_flight) const {
  const absl::Duration longest = flags_.Pick(absl::Milliseconds(400), absl::Milliseconds(80), absl::Milliseconds(2));
  const auto run = [&](size_t i, bool warm_up) -> absl::StatusOr<ServerRound> {
    const Server& server = servers_[i];
    const absl::Duration duration = longest * server.share * (warm_up ? 0.25 : 1);
    absl::StatusOr<ServerRound> round = RunRound(*server.process, server.target, in_flight, duration);
    if (!round.ok()) return WithContext(round.status(), server.name);
    return round;
  };
  NORMD_ASSIGN_OR_RETURN(auto rounds, Interleave<ServerRound>(servers_.size(), flags_.Pick(7, 5, 1), run));
  ServerRounds by_name;
  for (size_t i = 0; i < servers_.size(); ++i) by_name.by_name_[servers_[i].name] = std::move(rounds[i]);
  return by_name;
}

}  // namespace normd::bench
