#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "tests/bench/datapath/driver.h"
#include "tests/bench/transport/messages.h"
#include "tests/bench/transport/sections.h"
#include "tests/bench/transport/versus.h"

namespace normd::bench {
namespace {

constexpr double kStreamFloor = 1;  // calls/s of streams beside those of unary calls

std::vector<Shape> GrpcShapes(const std::string& service, const Flags& flags) {
  std::vector<Shape> shapes;
  const auto add = [&](Shape shape) {
    if (flags.Chosen(shape.Name())) shapes.push_back(std::move(shape));
  };
  for (const char* const kind : {"unary", "stream"}) {
    for (const int64_t bytes : flags.Pick<std::vector<int64_t>>({64, kSmall, 64 << 10, kLarge, 16 << 20},
                                                                {kSmall, kLarge, 16 << 20}, {kSmall, kLarge})) {
      for (const int in_flight : flags.Pick<std::vector<int>>({1, 4, 16}, {1, 16}, {4})) {
        add({service, kind, bytes, in_flight, 1});
      }
      if (bytes == kSmall || (bytes == kLarge && !flags.quick)) {
        add({service, kind, bytes, kManyConnections, kManyConnections});
      }
    }
  }
  return shapes;
}

class GrpcClient {
 public:
  explicit GrpcClient(const Servers* servers) : servers_(*servers) {}

  Load LoadOf(const Shape& shape) {
    for (const size_t server : {kGrpc, kNative}) {
      targets_[server] = TargetOf(shape.service, shape.stream(), shape.bytes);
      targets_[server].channels = ChannelsTo(server, shape.connections);
    }
    return [this, in_flight = shape.in_flight](size_t server, absl::Duration duration) -> absl::StatusOr<LoadResult> {
      NORMD_ASSIGN_OR_RETURN(const LoopResult result, RunClosedLoop(targets_[server], in_flight, duration));
      return LoadResult{.per_second = result.PerSecond(), .calls = static_cast<double>(result.requests)};
    };
  }

 private:
  std::vector<std::shared_ptr<grpc::Channel>> ChannelsTo(size_t server, int connections) {
    auto& known = channels_[{server, connections}];
    if (known.empty()) known = NewChannels(servers_.processes[server]->address(), connections);
    return known;
  }

  const Servers& servers_;
  std::map<std::pair<size_t, int>, std::vector<std::shared_ptr<grpc::Channel>>> channels_;
  Target targets_[2];
};

absl::Status MeasureService(const std::string& service, const Flags& flags, Report* report) {
  const std::vector<Shape> shapes = GrpcShapes(service, flags);
  if (shapes.empty()) return absl::OkStatus();
  NORMD_ASSIGN_OR_RETURN(const Servers servers, StartServers(flags, service));
  report->Table(Concat(service, " with a gRPC client over TCP, n in flight, c connections; native's share of gRPC's"),
                CostColumns(flags));
  GrpcClient client(&servers);
  std::map<int, double> unary_rates;  // of kSmall, by what is in flight
  std::vector<std::pair<int, double>> stream_rates;
  for (const Shape& shape : shapes) {
    const absl::StatusOr<Costs> costs = Measure(flags, servers, client.LoadOf(shape));
    NORMD_RETURN_IF_ERROR(WithContext(costs.status(), shape.Name()));
    AddRow(shape.Name(), *costs, LimitsOf(shape), flags, report);
    if (shape.bytes != kSmall || shape.connections != 1) continue;
    if (shape.stream()) stream_rates.emplace_back(shape.in_flight, costs->per_second[kNative]);
    if (!shape.stream()) unary_rates[shape.in_flight] = costs->per_second[kNative];
  }
  for (const auto& [in_flight, rate] : stream_rates) {
    if (service != "normd" || !unary_rates.contains(in_flight)) continue;
    report->Row(Concat("normd stream / unary n=", in_flight),
                {Cell(), Cell(), Ratio(rate / unary_rates[in_flight], kStreamFloor)});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureGrpcClient(const Flags& flags, Report* report) {
  NORMD_RETURN_IF_ERROR(MeasureService("echo", flags, report));
  return MeasureService("normd", flags, report);
}

}  // namespace normd::bench
