// The bench of the transports; tests/bench/run.sh transport starts it. Its command line is that of suite.h and
// --before=PROGRAM, this program of an earlier build, whose native transport then stands in the place of gRPC's. --only
// takes names as sections.h gives them.
// With --serve=KIND --listen=ADDRESS it is one of the servers that it measures.
#include <grpcpp/grpcpp.h>
#include <nghttp2/nghttp2.h>

#include <optional>
#include <string_view>

#include "kernels/base/status_macros.h"
#include "server/process_setup.h"
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
  constexpr std::string_view kServe = "--serve=", kListen = "--listen=";
  if (argc == 3 && std::string_view(argv[1]).starts_with(kServe) && std::string_view(argv[2]).starts_with(kListen)) {
    return normd::bench::Serve(argv[1] + kServe.size(), argv[2] + kListen.size());
  }
  const std::optional<normd::bench::Flags> flags = normd::bench::ParseFlags(argc, argv, {"--before"});
  if (!flags.has_value()) return 2;
  normd::TuneAllocator();  // the client pays no page faults either
  normd::TuneTransport();
  normd::RaiseDescriptorLimit();
  return normd::bench::RunSuite("transport", *flags,
                                [&](normd::bench::Report* report) { return normd::bench::MeasureAll(*flags, report); });
}
