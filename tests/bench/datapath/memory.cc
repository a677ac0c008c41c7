#include "tests/bench/datapath/memory.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"
#include "kernels/base/status_macros.h"
#include "server/base/mutex.h"
#include "tests/bench/datapath/exchange.h"
#include "tests/bench/datapath/server_process.h"
#include "tests/bench/machine.h"

namespace normd::bench {

namespace {

constexpr double kCeilingMib = 512;
// Of a call with all its retries: a server that is dead or stuck is found.
constexpr absl::Duration kDeadline = absl::Seconds(60);

// Whose requests were answered right, and one reason why not.
class Answers {
 public:
  void Add(const absl::StatusOr<v1::NormalizeResponse>& response, const std::string& y) {
    if (response.ok() && response->outputs_size() == 1 && response->outputs(0).tensor().data() == y) {
      ++right_;
      return;
    }
    MutexLock lock(mu_);
    error_ = response.ok() ? absl::InternalError("a wrong result") : response.status();
  }

  int right() const { return right_; }
  absl::Status error() {
    MutexLock lock(mu_);
    return error_;
  }

 private:
  std::atomic<int> right_ = 0;
  Mutex mu_;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
};

absl::Status SendAll(const MemoryOptions& options, const Rows& rows, const std::string& address, int connections,
                     Answers* answers) {
  std::vector<std::unique_ptr<Client>> clients(static_cast<size_t>(connections));
  for (std::unique_ptr<Client>& client : clients) {
    NORMD_ASSIGN_OR_RETURN(client, Client::Connect(address, {.deadline = kDeadline}));
  }
  const v1::NormalizeRequest request = MakeNormalizeRequest(rows.x);
  std::vector<std::thread> threads;
  for (int i = 0; i < options.requests; ++i) {
    Client* const client = clients[static_cast<size_t>(i % connections)].get();
    threads.emplace_back([&, client] { answers->Add(client->Normalize(request), rows.y); });
  }
  for (std::thread& thread : threads) thread.join();
  return absl::OkStatus();
}

absl::Status MeasureOver(const MemoryOptions& options, const Rows& rows, int connections, Report* report) {
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<ServerProcess> server,
                         ServerProcess::Start("normd_default", "127.0.0.1:0"));
  Answers answers;
  const absl::Time begin = SteadyNow();
  NORMD_RETURN_IF_ERROR(SendAll(options, rows, server->address(), connections, &answers));
  const double seconds = absl::ToDoubleSeconds(SteadyNow() - begin);
  NORMD_ASSIGN_OR_RETURN(const int64_t peak_bytes, server->PeakResidentBytes());
  const double mib = static_cast<double>(peak_bytes) / (1 << 20);
  const std::string name = absl::StrCat("memory over ", connections, connections == 1 ? " connection" : " connections");
  report->Add({name, mib, "MiB", {}, kCeilingMib});
  report->Add({name + " answered", static_cast<double>(answers.right()) / options.requests, "of all", 1, {}});
  report->Row({name, std::to_string(answers.right()), Fixed(mib, 0), Fixed(kCeilingMib, 0), Fixed(seconds, 2)});
  if (!answers.error().ok()) report->Note(name, "not all were answered: " + answers.error().ToString());
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureMemory(const MemoryOptions& options, Report* report) {
  report->Table(absl::StrCat("the server's resident memory at most, in MiB: ", options.requests, " requests of ",
                             options.payload >> 20, " MiB at one time, through normd::Client"),
                {"", "answered", "MiB", "at most", "seconds"});
  NORMD_ASSIGN_OR_RETURN(const Rows rows, MakeRows(options.payload));
  for (const int connections : options.connections) {
    NORMD_RETURN_IF_ERROR(MeasureOver(options, rows, connections, report));
  }
  return absl::OkStatus();
}

}  // namespace normd::bench
