#include "tests/bench/statistics/counting_session.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "client/cpp/tensor.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/clock.h"
#include "server/obs/log.h"
#include "server/options/config.h"
#include "server/process_setup.h"
#include "server/server.h"
#include "tests/bench/machine.h"
#include "tests/bench/or_die.h"

namespace normd::bench {
namespace {

absl::Status ServeFrom(const std::string& folder, const std::string& listen) {
  NORMD_ASSIGN_OR_RETURN(
      const Config config,
      ParseConfig({"--listen=" + listen, "--admin_listen=", "--data_dir=" + folder, "--durability=power",
                   "--audit_log=" + folder + "/audit", "--max_in_flight_bytes=1GiB", "--max_connections=16384",
                   "--max_connections_per_peer=16384"},
                  {}));
  SystemClock clock;
  Log log({.level = LogLevel::kError}, &clock);
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Start(config, &log));
  std::printf("%s\n", server->listeners().front().substr(sizeof("grpc=") - 1).c_str());
  std::fflush(stdout);
  while (true) pause();
}

}  // namespace

int ServeCounting(const std::string& folder, const std::string& listen) {
  // Should the parent have ended before this, the pipe tells.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  TuneAllocator();
  TuneTransport();
  RaiseDescriptorLimit();
  std::fprintf(stderr, "bench_statistics --serve=%s: %s\n", folder.c_str(),
               ServeFrom(folder, listen).ToString().c_str());
  return 1;
}

CountingServer::CountingServer() : folder_(std::filesystem::temp_directory_path() / "normd-bench-XXXXXX") {
  if (mkdtemp(folder_.data()) == nullptr) Die("cannot make " + folder_);
}

CountingServer::~CountingServer() {
  client_.reset();
  process_.reset();
  std::filesystem::remove_all(folder_);
}

absl::StatusOr<std::unique_ptr<CountingServer>> CountingServer::Start(int64_t channels) {
  std::unique_ptr<CountingServer> server(new CountingServer);
  NORMD_ASSIGN_OR_RETURN(server->process_, ServerProcess::Start(server->folder_, "tcp"));
  NORMD_ASSIGN_OR_RETURN(server->client_, Client::Connect(server->address()));
  v1::CreateSessionRequest request;
  request.set_session_id(std::string(kSessionName).substr(sizeof("sessions/") - 1));
  v1::BatchNorm* const batch_norm = request.mutable_session()->mutable_spec()->mutable_batch_norm();
  batch_norm->set_layout(v1::LAYOUT_CHANNELS_LAST);
  batch_norm->mutable_running()->set_weighting(v1::WEIGHTING_SAMPLES);
  request.mutable_session()->set_num_channels(channels);
  NORMD_RETURN_IF_ERROR(server->client_->CreateSession(request).status());
  return server;
}

int64_t CountingServer::ResidentBytes() const { return MemoryOf(process_->pid(), "VmRSS"); }

v1::CommitMomentsRequest FlushOf(int64_t channels, int contributor, uint64_t sequence) {
  constexpr double kSamples = 2048;
  const auto tensor = [channels](double value) {
    return client::Tensor::F64({channels}, std::vector<double>(static_cast<size_t>(channels), value)).ToProto();
  };
  v1::CommitMomentsRequest request;
  request.set_session(kSessionName);
  request.mutable_step()->set_client_id(Concat("contributor-", contributor));
  request.mutable_step()->set_sequence(sequence);
  request.set_want_state(true);
  v1::Moments* const moments = request.add_moments();
  *moments->mutable_count() = tensor(kSamples);
  *moments->mutable_mean() = tensor(1.0 / static_cast<double>(sequence));
  *moments->mutable_m2() = tensor(kSamples * contributor);
  return request;
}

}  // namespace normd::bench
