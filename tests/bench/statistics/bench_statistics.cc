// The bench of shared statistics; tests/bench/run.sh statistics starts it. Its command line is that of suite.h; --only
// takes names as sections.h gives them.
// With --serve=FOLDER --listen=ADDRESS it is the server that it measures.
#include <optional>

#include "kernels/base/status_macros.h"
#include "server/process_setup.h"
#include "tests/bench/datapath/server_process.h"
#include "tests/bench/statistics/counting_session.h"
#include "tests/bench/statistics/sections.h"

namespace normd::bench {
namespace {

absl::Status MeasureStatistics(const Flags& flags, Report* report) {
  report->Note("server", "a process, SQLite at power level, default queues, in-flight budget 1 GiB");
  report->Note("client", "one thread; contributors share 8 connections of gRPC's client; watchers count frames");
  NORMD_RETURN_IF_ERROR(MeasureContributors(flags, report));
  return MeasureWatchers(flags, report);
}

}  // namespace
}  // namespace normd::bench

int main(int argc, char** argv) {
  if (const auto command = normd::bench::ParseServeCommand(argc, argv); command.has_value()) {
    return normd::bench::ServeCounting(command->kind, command->listen);
  }
  const std::optional<normd::bench::Flags> flags = normd::bench::ParseFlags(argc, argv, {});
  if (!flags.has_value()) return 2;
  normd::TuneAllocator();  // the client pays no page faults either
  normd::TuneTransport();
  normd::RaiseDescriptorLimit();
  return normd::bench::RunSuite("statistics", *flags, [&](normd::bench::Report* report) {
    return normd::bench::MeasureStatistics(*flags, report);
  });
}
