#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "tests/bench/datapath/driver.h"
#include "tests/bench/datapath/server_process.h"
#include "tests/bench/machine.h"
#include "tests/bench/transport/messages.h"
#include "tests/bench/transport/sections.h"
#include "tests/bench/transport/versus.h"
#include "tests/support/raw_http2.h"

namespace normd::bench {
namespace {

constexpr int kMessages = 24;
constexpr int64_t kBudgetMib = 288;  // --max_in_flight_bytes by default
constexpr int64_t kAllowanceMib = 16;

// The prefix of a message, and all of it but the last byte.
std::string MessageWithoutEnd(uint32_t bytes) {
  std::string text(1, '\0');
  for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(bytes >> shift);
  return text + std::string(bytes - 1, 'x');
}

// Sends as much of one message as the server lets through within `limit`; returns how much that was.
size_t SendWithoutEnd(RawHttp2* peer, std::string_view message, std::chrono::milliseconds limit) {
  if (!peer->SendPreface() || !peer->SendHeaders(1, "/normd.v1.Normalizer/Normalize")) return 0;
  return peer->SendData(1, message, limit);
}

absl::Status MeasureServer(size_t transport, const std::string& message, const Flags& flags, Report* report) {
  const std::chrono::milliseconds limit(flags.smoke ? 200 : 4000);
  const std::string name = kTransports[transport];
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<ServerProcess> server, ServerProcess::Start("limited_" + name, "tcp"));
  const int64_t before = MemoryOf(server->pid(), "VmRSS");
  std::vector<std::unique_ptr<RawHttp2>> peers;
  std::vector<std::thread> threads;
  std::vector<size_t> sent(kMessages);
  for (size_t i = 0; i < kMessages; ++i) {
    // Threads that run already must not look into `peers`, which grows.
    RawHttp2* const peer = peers.emplace_back(std::make_unique<RawHttp2>(server->address())).get();
    threads.emplace_back([&, i, peer] { sent[i] = SendWithoutEnd(peer, message, limit); });
  }
  for (std::thread& thread : threads) thread.join();
  double sent_mib = 0;
  for (const size_t bytes : sent) sent_mib += static_cast<double>(bytes) / (1 << 20);
  const double grown = static_cast<double>(MemoryOf(server->pid(), "VmHWM") - before) / (1 << 20);
  // Others are served while all of this is held.
  Target target = TargetOf("normd", /*stream=*/false, 4 << 10);
  target.channels = NewChannels(server->address(), 1);
  const bool serves = RunClosedLoop(target, 1, absl::ZeroDuration()).ok();
  Cell memory = {.value = grown, .decimals = 0, .floor = {}, .ceiling = {}};
  if (transport == kNative) memory.ceiling = kBudgetMib + kAllowanceMib;
  report->Row("unfinished " + name, {Amount(sent_mib), memory, Ratio(serves ? 1 : 0, 1)});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureUnfinished(const Flags& flags, Report* report) {
  if (!flags.Chosen("unfinished")) return absl::OkStatus();
  const uint32_t mib = flags.smoke ? 2 : 60;
  report->Table(Concat(kMessages, " messages of ", mib,
                       " MiB that never end, each on a connection of its own: what the "
                       "server has taken, its memory beyond that of an idle one (at most), whether a small call is "
                       "answered (floor)"),
                {"sent MiB", "memory MiB", "served"});
  const std::string message = MessageWithoutEnd(mib << 20);
  for (const size_t transport : {kGrpc, kNative}) {
    NORMD_RETURN_IF_ERROR(WithContext(MeasureServer(transport, message, flags, report), "unfinished"));
  }
  return absl::OkStatus();
}

}  // namespace normd::bench
