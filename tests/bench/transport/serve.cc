#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/clock.h"
#include "server/obs/log.h"
#include "server/options/config.h"
#include "server/process_setup.h"
#include "server/server.h"
#include "tests/bench/transport/echo_server.h"
#include "tests/bench/transport/servers.h"

namespace normd::bench {
namespace {

void AnnounceAndWait(const std::string& address) {
  std::printf("%s\n", address.c_str());
  std::fflush(stdout);
  while (true) pause();
}

absl::Status ServeEcho(TransportKind transport, const std::string& listen) {
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<EchoServer> server, EchoServer::Start(transport, listen));
  AnnounceAndWait(Concat("127.0.0.1:", server->port()));
  return absl::OkStatus();
}

absl::Status ServeNormd(const std::string& transport, const std::string& listen, std::vector<std::string> args) {
  args.insert(args.end(),
              {"--listen=" + listen, "--transport=" + transport, "--admin_listen=", "--session_store=memory"});
  NORMD_ASSIGN_OR_RETURN(const Config config, ParseConfig(args, {}));
  SystemClock clock;
  Log log({.level = LogLevel::kError}, &clock);
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Start(config, &log));
  AnnounceAndWait(server->listeners().front().substr(sizeof("grpc=") - 1));
  return absl::OkStatus();
}

}  // namespace

int Serve(const std::string& kind, const std::string& listen) {
  // Should the parent have ended before this, the pipe tells.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  TuneAllocator();
  TuneTransport();
  RaiseDescriptorLimit();
  const size_t split = kind.find('_');
  const std::string service = kind.substr(0, split);
  const std::string transport = split == std::string::npos ? "" : kind.substr(split + 1);
  absl::Status status;
  if (service == "load") return LoadStreams(transport);
  if (service == "echo") {
    status = ServeEcho(transport == "native" ? TransportKind::kNative : TransportKind::kGrpc, listen);
  } else if (service == "normd") {
    // As many calls of a connection are served at one time as are in flight, and all of them are admitted.
    status = ServeNormd(transport, listen, {"--max_in_flight_bytes=1GiB", "--max_concurrent_streams=16"});
  } else {
    status = ServeNormd(transport, listen, {"--max_connections=16384", "--max_connections_per_peer=16384"});
  }
  std::fprintf(stderr, "bench_transport --serve=%s: %s\n", kind.c_str(), status.ToString().c_str());
  return 1;
}

}  // namespace normd::bench
