#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "tests/bench/datapath/driver.h"
#include "tests/bench/datapath/server_process.h"
#include "tests/bench/machine.h"
#include "tests/bench/transport/sections.h"
#include "tests/bench/transport/versus.h"
#include "tests/support/raw_http2.h"

namespace normd::bench {
namespace {

constexpr double kMostKilobytes = 20;  // of 1,000 bytes, a connection
constexpr std::chrono::milliseconds kSilence(10000);

// Connects, and waits for the server's SETTINGS.
absl::StatusOr<std::unique_ptr<RawHttp2>> ConnectTo(const std::string& address) {
  auto peer = std::make_unique<RawHttp2>(address);
  if (!peer->connected() || !peer->SendPreface()) return absl::UnavailableError("the server takes no connection");
  const std::optional<Http2Frame> first = peer->Receive(kSilence);
  if (!first.has_value() || first->type != RawHttp2::kSettings) return absl::UnavailableError("no settings have come");
  peer->SendFrame(RawHttp2::kSettings, /*flags: ACK=*/1, 0, "");
  return peer;
}

absl::Status MeasureServer(size_t transport, int connections, Report* report) {
  const std::string name = kTransports[transport];
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<ServerProcess> server, ServerProcess::Start("limited_" + name, "tcp"));
  std::vector<std::unique_ptr<RawHttp2>> peers;
  // What the first connections leave behind is not theirs alone.
  for (int i = 0; i < 16; ++i) {
    NORMD_ASSIGN_OR_RETURN(peers.emplace_back(), ConnectTo(server->address()));
  }
  const int64_t before = MemoryOf(server->pid(), "VmRSS");
  const absl::Time begin = SteadyNow();
  for (int i = 0; i < connections; ++i) {
    NORMD_ASSIGN_OR_RETURN(peers.emplace_back(), ConnectTo(server->address()));
  }
  const double seconds = absl::ToDoubleSeconds(SteadyNow() - begin);
  absl::SleepFor(absl::Milliseconds(200));  // until the acknowledgements are read
  const double bytes = static_cast<double>(MemoryOf(server->pid(), "VmRSS") - before);
  const std::optional<double> most = transport == kNative ? std::optional(kMostKilobytes) : std::nullopt;
  report->Row("idle connections " + name,
              {Amount(connections), Amount(connections / seconds), Ratio(bytes / connections / 1000, {}, most)});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureIdleConnections(const Flags& flags, Report* report) {
  if (!flags.Chosen("idle connections")) return absl::OkStatus();
  report->Table("idle connections: how many, how many a second one after another, resident memory of each (at most)",
                {"connections", "per second", "kB each"});
  for (const size_t transport : {kGrpc, kNative}) {
    NORMD_RETURN_IF_ERROR(
        WithContext(MeasureServer(transport, flags.Pick(10000, 2000, 20), report), "idle connections"));
  }
  return absl::OkStatus();
}

}  // namespace normd::bench
