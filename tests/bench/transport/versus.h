// The two transports, or the native one of two builds, under the same load, in rounds that take turns.
// Threads: one.
#ifndef NORMD_TESTS_BENCH_TRANSPORT_VERSUS_H_
#define NORMD_TESTS_BENCH_TRANSPORT_VERSUS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/bench/datapath/server_process.h"
#include "tests/bench/report.h"
#include "tests/bench/suite.h"

namespace normd::bench {

inline constexpr const char* kTransports[] = {"grpc", "native"};
inline constexpr size_t kGrpc = 0, kNative = 1;

// The servers of one service: gRPC's, or with --before=PROGRAM the native one of that build, and the native one.
struct Servers {
  std::unique_ptr<ServerProcess> processes[2];
};
absl::StatusOr<Servers> StartServers(const Flags& flags, const std::string& service);

// Loads one of the servers for about `duration`; returns calls/s and the number of calls.
struct LoadResult {
  double per_second = 0;
  double calls = 0;
};
using Load = std::function<absl::StatusOr<LoadResult>(size_t server, absl::Duration duration)>;

// What one load costs; medians of the rounds.
struct Costs {
  double per_second[2] = {};
  double cpu_micros[2] = {};  // of the server, a call
  // Medians of the ratios of each round of the native transport to the one of gRPC's beside it.
  double rate_ratio = 0;
  double cpu_ratio = 0;
};
absl::StatusOr<Costs> Measure(const Flags& flags, const Servers& servers, const Load& load);

inline constexpr int64_t kSmall = 4 << 10, kLarge = 1 << 20;
inline constexpr int kManyConnections = 64;

// One load of one service.
struct Shape {
  std::string service;  // "echo", "normd"
  std::string kind;     // of calls: "unary" or "stream" of gRPC's client, or "h2load"
  int64_t bytes = 0;
  int in_flight = 1;
  int connections = 1;

  bool stream() const { return kind == "stream"; }
  // "echo unary 4 KiB n=16", with several connections "echo unary 4 KiB n=64 c=64".
  std::string Name() const;
};

// The limits of a row: what the native transport may cost beside gRPC's.
struct Limits {
  std::optional<double> least_rate;
  std::optional<double> most_cpu;
};
Limits LimitsOf(const Shape& shape);
std::vector<std::string> CostColumns(const Flags& flags);
// The limits are those beside gRPC; an earlier build has none.
void AddRow(const std::string& name, const Costs& costs, const Limits& limits, const Flags& flags, Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_TRANSPORT_VERSUS_H_
