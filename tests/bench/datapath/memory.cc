#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "tests/bench/datapath/exchange.h"
#include "tests/bench/datapath/sections.h"
#include "tests/bench/datapath/server_process.h"
#include "tests/bench/machine.h"

namespace normd::bench {

namespace {

constexpr double kCeilingMib = 512;
// Of a call with all its retries: a server that is dead or stuck is found.
constexpr absl::Duration kDeadline = absl::Seconds(60);

// Sends `count` requests at one time, each on a thread; what became of each.
absl::StatusOr<std::vector<absl::Status>> SendAll(const Rows& rows, const std::string& address, size_t connections,
                                                  size_t count) {
  std::vector<std::unique_ptr<Client>> clients(connections);
  for (std::unique_ptr<Client>& client : clients) {
    NORMD_ASSIGN_OR_RETURN(client, Client::Connect(address, {.deadline = kDeadline}));
  }
  const v1::NormalizeRequest request = MakeNormalizeRequest(rows.x);
  std::vector<absl::Status> results(count);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      const auto response = clients[i % connections]->Normalize(request);
      const bool right =
          response.ok() && response->outputs_size() == 1 && response->outputs(0).tensor().data() == rows.y;
      if (!right) results[i] = response.ok() ? absl::InternalError("a wrong result") : response.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

// On a fresh server.
absl::Status MeasureOver(const Rows& rows, size_t connections, size_t requests, Report* report) {
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<ServerProcess> server, ServerProcess::Start("normd_default", "tcp"));
  const absl::Time begin = SteadyNow();
  NORMD_ASSIGN_OR_RETURN(const std::vector<absl::Status> results,
                         SendAll(rows, server->address(), connections, requests));
  const double seconds = absl::ToDoubleSeconds(SteadyNow() - begin);
  const std::string name = Concat("memory, connections: ", connections);
  double right = 0;
  for (const absl::Status& result : results) {
    if (result.ok()) ++right;
    if (!result.ok()) report->Note(name, "a request was not answered: " + result.ToString());
  }
  const double mib = static_cast<double>(MemoryOf(server->pid(), "VmHWM")) / (1 << 20);
  report->Row(name, {Ratio(right / static_cast<double>(requests), 1),
                     {.value = mib, .decimals = 0, .floor = {}, .ceiling = kCeilingMib},
                     Ratio(seconds)});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureMemory(const Flags& flags, Report* report) {
  if (!flags.Chosen("memory")) return absl::OkStatus();
  const size_t requests = flags.smoke ? 8 : 64;
  report->Table(
      "requests of 16 MiB at one time, through normd::Client: the share that is answered (floor), and the "
      "server's resident memory at most",
      {"answered", "MiB", "seconds"});
  NORMD_ASSIGN_OR_RETURN(const Rows rows, MakeRows(flags.smoke ? 1 << 20 : 16 << 20));
  for (const size_t connections : {1, 8}) {
    NORMD_RETURN_IF_ERROR(WithContext(MeasureOver(rows, connections, requests, report), "memory"));
  }
  return absl::OkStatus();
}

}  // namespace normd::bench
