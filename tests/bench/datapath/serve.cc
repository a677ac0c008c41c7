#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>

#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/clock.h"
#include "server/obs/log.h"
#include "server/options/config.h"
#include "server/process_setup.h"
#include "server/rpc/edge/rpc_options.h"
#include "server/rpc/grpc/grpc_transport.h"
#include "server/server.h"
#include "tests/bench/datapath/opponents.h"
#include "tests/bench/datapath/server_process.h"

namespace normd::bench {

namespace {

void Announce(const std::string& address) {
  std::printf("%s\n", address.c_str());
  std::fflush(stdout);
}

[[noreturn]] void WaitToBeKilled() {
  while (true) pause();
}

absl::Status ServeNormd(const std::string& listen, const std::vector<std::string>& more_args) {
  std::vector<std::string> args = {"--listen=" + listen, "--admin_listen=", "--session_store=memory"};
  args.insert(args.end(), more_args.begin(), more_args.end());
  NORMD_ASSIGN_OR_RETURN(const Config config, ParseConfig(args, {}));
  SystemClock clock;
  Log log({.level = LogLevel::kError}, &clock);
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Start(config, &log));
  Announce(server->listeners().front().substr(sizeof("grpc=") - 1));
  WaitToBeKilled();
}

// The echo and the generated services, with the channel arguments and queues of normd.
absl::Status ServeOpponent(const std::string& kind, const std::string& listen) {
  RmsRows rows;
  EchoServer echo;
  std::unique_ptr<grpc::Service> generated;
  grpc::ServerBuilder builder;
  rpc::SetTransportLimits({}, builder);
  if (kind == "echo") {
    echo.AddTo(builder, DefaultQueues());
  } else if (kind == "bytes" || kind == "floats") {
    generated = kind == "bytes" ? MakeBytesService(&rows) : MakeFloatsService(&rows);
    builder.RegisterService(generated.get());
  } else {
    return absl::InvalidArgumentError(Concat("no kind of server: ", kind));
  }
  int port = 0;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) return absl::UnavailableError(Concat("cannot listen on ", listen));
  Announce(listen.starts_with("unix:") ? listen : Concat("127.0.0.1:", port));
  if (kind == "echo") echo.Serve();
  WaitToBeKilled();
}

}  // namespace

int Serve(const std::string& kind, const std::string& listen) {
  // Should the parent have ended before this, the pipe tells.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  TuneAllocator();
  TuneTransport();
  absl::Status status;
  if (kind == "normd_default") {
    status = ServeNormd(listen, {});
  } else if (kind == "normd") {
    // The echo admits everything; and a reply holds its room a moment longer than its client takes to send the next
    // request, so that 16 calls of 16 MiB in flight can be 18 that are held.
    status = ServeNormd(listen, {"--max_in_flight_bytes=1GiB"});
  } else {
    status = ServeOpponent(kind, listen);
  }
  std::fprintf(stderr, "bench_datapath --serve=%s: %s\n", kind.c_str(), status.ToString().c_str());
  return 1;
}

}  // namespace normd::bench
