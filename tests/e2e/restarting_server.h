// A server that stops and comes back at the same Unix socket with the same sessions, as one with a durable store does.
#ifndef NORMD_TESTS_E2E_RESTARTING_SERVER_H_
#define NORMD_TESTS_E2E_RESTARTING_SERVER_H_

#include <memory>
#include <string>
#include <utility>

#include "client/cpp/client.h"
#include "tests/e2e/test_server.h"

namespace normd::e2e {

class RestartingServer {
 public:
  RestartingServer() { Start(); }

  const std::string& target() const { return target_; }

  void Start() {
    RpcOptions options;
    options.listeners = {target_};
    options.queues = 2;
    options.transport = TestedTransport();
    auto server = RpcServer::Start(std::move(options), &engine_, &resources_);
    if (!server.ok()) ADD_FAILURE() << server.status().ToString();
    if (!server.ok()) std::abort();  // nothing in a test makes sense without its server
    server_ = *std::move(server);
  }
  void Stop() { server_.reset(); }

  // A client that tries again soon after the server has come back.
  std::unique_ptr<Client> NewClient() const {
    ClientOptions options;
    options.deadline = absl::Seconds(10);
    options.retry.initial_backoff = options.retry.max_backoff = absl::Milliseconds(10);
    options.retry.budget_tokens = 0;
    return Client::Connect(target_, options).value();
  }

 private:
  TemporaryFolder folder_;
  const std::string target_ = "unix:" + folder_.path() + "/s";
  SystemClock clock_;
  MemoryStore store_{{}, &clock_};
  const std::unique_ptr<Backend> cpu_ = MakeCpuBackend({.threads = 2});
  SteadyClock steady_clock_;
  DeviceScheduler scheduler_{cpu_.get(), {}, {}, &steady_clock_, {}};
  Resources resources_;
  Engine engine_{&scheduler_, &store_, &resources_, {.max_large_calls = 1 << 20}};
  std::unique_ptr<RpcServer> server_;
};

}  // namespace normd::e2e

#endif  // NORMD_TESTS_E2E_RESTARTING_SERVER_H_
