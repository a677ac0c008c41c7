// A server with one session that counts samples, and what contributors send to it.
// Threads: a CountingServer belongs to one thread, which must outlive it; the free functions are safe from any.
#ifndef NORMD_TESTS_BENCH_STATISTICS_COUNTING_SESSION_H_
#define NORMD_TESTS_BENCH_STATISTICS_COUNTING_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "normd/v1/sessions.pb.h"
#include "tests/bench/datapath/server_process.h"

namespace normd::bench {

inline constexpr char kSessionName[] = "sessions/statistics";

// normd with a SQLite store in a folder of its own, at power level. Both end with the object.
class CountingServer {
 public:
  // With the session, of `channels`. 10,000 calls of one address need more room than the default.
  static absl::StatusOr<std::unique_ptr<CountingServer>> Start(int64_t channels);
  ~CountingServer();
  CountingServer(const CountingServer&) = delete;
  CountingServer& operator=(const CountingServer&) = delete;

  const std::string& address() const { return process_->address(); }
  Client& client() { return *client_; }
  absl::StatusOr<absl::Duration> CpuTime() const { return process_->CpuTime(); }
  int64_t ResidentBytes() const;

 private:
  CountingServer();

  std::string folder_;
  std::unique_ptr<ServerProcess> process_;
  std::unique_ptr<Client> client_;
};

// Serves with its store in `folder`, until the process is killed; see datapath/server_process.h. Returns, with an exit
// status, only when it cannot. REQUIRES: the process has done nothing else.
int ServeCounting(const std::string& folder, const std::string& listen);

// 2,048 samples of each channel; the reply carries the state.
v1::CommitMomentsRequest FlushOf(int64_t channels, int contributor, uint64_t sequence);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_STATISTICS_COUNTING_SESSION_H_
