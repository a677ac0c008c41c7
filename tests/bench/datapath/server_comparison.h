// Compares servers under the same load: rounds of closed loops that take turns.
// Threads: one.
#ifndef NORMD_TESTS_BENCH_DATAPATH_SERVER_COMPARISON_H_
#define NORMD_TESTS_BENCH_DATAPATH_SERVER_COMPARISON_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/datapath/driver.h"
#include "tests/bench/datapath/server_process.h"
#include "tests/bench/suite.h"

namespace normd::bench {

// One round of one server.
struct ServerRound {
  double per_second = 0;
  double cpu_micros = 0;  // of the server, a request
};

// The rounds of all servers under one load.
class ServerRounds {
 public:
  std::optional<double> Median(const std::string& name, double ServerRound::*field) const;
  // The median of the ratios of each round of normd to the one of `base` beside it; absent where there is no `base`.
  std::optional<double> NormdTo(const std::string& base, double ServerRound::*field) const {
    return MedianRatio("normd", base, field);
  }
  std::optional<double> MedianRatio(const std::string& name, const std::string& base, double ServerRound::*field) const;

 private:
  friend class ServerComparison;
  std::map<std::string, std::vector<ServerRound>> by_name_;
};

class ServerComparison {
 public:
  explicit ServerComparison(const Flags& flags) : flags_(flags) {}

  // Starts a server of `kind`. `share` of the longest round is what it gets: less where nothing is asked of it.
  absl::Status Start(const std::string& name, const std::string& kind, const std::string& transport, double share,
                     const std::string& program = "/proc/self/exe");
  const std::shared_ptr<grpc::Channel>& channel(const std::string& name) const;

  // Sets what each server is sent, by its name, and looks at one reply of each.
  absl::Status Prepare(absl::FunctionRef<Target(const std::string& name)> make_target,
                       absl::FunctionRef<absl::Status(const std::string& name, const grpc::ByteBuffer& reply)> check);

  // All take turns with `in_flight` requests.
  absl::StatusOr<ServerRounds> Run(int in_flight) const;

 private:
  struct Server {
    std::string name;
    std::unique_ptr<ServerProcess> process;
    Target target;
    double share = 1;
  };

  const Flags& flags_;
  std::vector<Server> servers_;
};

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_DATAPATH_SERVER_COMPARISON_H_
