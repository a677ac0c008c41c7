// The bench of the transports; tests/bench/run.sh transport starts it. Its command line is that of suite.h and
// --before=PROGRAM, this program of an earlier build, whose native transport then stands in the place of gRPC's. --only
// takes names as sections.h gives them.
// With --serve=KIND --listen=ADDRESS it is one of the servers that it measures.
#include <grpcpp/grpcpp.h>
#include <nghttp2/nghttp2.h>

#include <optional>

#include "kernels/base/status_macros.h"
#include "server/process_setup.h"
#include "tests/bench/datapath/server_process.h"
#include "tests/bench/transport/sections.h"
#include "tests/bench/transport/servers.h"

namespace normd::bench {
namespace {

absl::Status MeasureAll(const Flags& flags, Report* report) {
  report->Note("grpc", grpc::Version());
  report->Note("nghttp2", nghttp2_version(0)->version_str);
  report->Note("servers", "each a process; the echo has one queue, normd as many as it takes by itself");
  report->Note("rounds", "interleaved, medians; 7 of 300 ms; --quick: 5 of 100 ms");
  NORMD_RETURN_IF_ERROR(MeasureGrpcClient(flags, report));
  NORMD_RETURN_IF_ERROR(MeasureH2load(flags, report));
  NORMD_RETURN_IF_ERROR(MeasureUnfinished(flags, report));
  NORMD_RETURN_IF_ERROR(MeasureIdleConnections(flags, report));
  return MeasureSmallBesideLarge(flags, report);
}

}  // namespace
}  // namespace normd::bench

int main(int argc, char** argv) {
  if (const auto command = normd::bench::ParseServeCommand(argc, argv); command.has_value()) {
    return normd::bench::Serve(command->kind, command->listen);
  }
  const std::optional<normd::bench::Flags> flags = normd::bench::ParseFlags(argc, argv, {"--before"});
  if (!flags.has_value()) return 2;
  normd::TuneAllocator();  // the client pays no page faults either
  normd::TuneTransport();
  normd::RaiseDescriptorLimit();
  return normd::bench::RunSuite("transport", *flags,
                                [&](normd::bench::Report* report) { return normd::bench::MeasureAll(*flags, report); });
}
