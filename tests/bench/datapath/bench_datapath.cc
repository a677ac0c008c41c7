// The bench of the data path; tests/bench/run.sh datapath starts it. Its command line is that of suite.h and
// --before=PROGRAM, this program of an earlier build, which small calls are compared with, too. --only takes names as
// sections.h gives them.
// With --serve=KIND --listen=ADDRESS it is one of the servers that it measures.
#include <grpcpp/grpcpp.h>

#include <optional>

#include "kernels/base/status_macros.h"
#include "server/process_setup.h"
#include "tests/bench/datapath/opponents.h"
#include "tests/bench/datapath/sections.h"
#include "tests/bench/datapath/server_process.h"

namespace normd::bench {

namespace {

absl::Status Measure(const Flags& flags, Report* report) {
  report->Note("grpc", grpc::Version());
  report->Note("opponents", "each a process, same channel arguments, queues and malloc as normd");
  report->Note("client", "one thread, one connection; streams: one for each in flight, a message at a time");
  report->Note("rounds",
               "interleaved, medians; 7 of 400 ms (bytes half, floats a quarter), shared 7 of 150 ms; "
               "--quick: 5 of 80 ms, shared 3 of 60 ms");
  NORMD_RETURN_IF_ERROR(MeasureInline(flags, report));
  NORMD_RETURN_IF_ERROR(MeasureCalls(flags, report));
  NORMD_RETURN_IF_ERROR(MeasureIdle(flags, report));
  NORMD_RETURN_IF_ERROR(MeasureMemory(flags, report));
  NORMD_RETURN_IF_ERROR(MeasureOverload(flags, report));
  return MeasureShared(flags, report);
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
  return normd::bench::RunSuite("datapath", *flags,
                                [&](normd::bench::Report* report) { return normd::bench::Measure(*flags, report); });
}
