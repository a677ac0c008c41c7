#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/cpp/shared_arena.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "tests/bench/comparison.h"
#include "tests/bench/datapath/exchange.h"
#include "tests/bench/datapath/rms_rows.h"
#include "tests/bench/datapath/sections.h"
#include "tests/bench/datapath/server_process.h"

namespace normd::bench {

namespace {

using client::SharedArena;
using client::SharedBlock;

constexpr double kRpcsAllowed = 1.3;

// One row: its calls, and what its ratio is held to.
struct Load {
  int64_t payload;
  int in_flight;
  std::optional<double> of_kernel = {}, of_kernel_and_rpcs_at_most = {}, of_rpc = {};
};
constexpr Load kLoads[] = {{.payload = 4 << 10, .in_flight = 1, .of_rpc = 0.85},
                           {.payload = 1 << 20, .in_flight = 1, .of_kernel_and_rpcs_at_most = 1.0},
                           {.payload = 1 << 20, .in_flight = 4, .of_kernel = 0.85},
                           {.payload = 16 << 20, .in_flight = 1, .of_kernel = 0.85}};

std::string NameOf(const Load& load) { return Concat("shared ", BytesText(load.payload), " n=", load.in_flight); }

// What one call reads and writes.
struct CallBuffers {
  SharedBlock x, y;
};

// What takes turns; a round is the microseconds of a call, or, of several in flight, the time divided by their number.
enum Candidate : size_t { kKernel, kNormd, kEmptyRpc, kCandidates };

grpc::ByteBuffer MakeSharedRequest(int64_t bytes, const CallBuffers& buffers) {
  v1::NormalizeRequest request = MakeRequestHead(bytes);
  v1::OutputRequest* const output = request.add_outputs();
  output->set_kind(v1::OUTPUT_KIND_Y);
  const std::pair<const SharedBlock*, v1::SharedRange*> ranges[] = {{&buffers.x, request.mutable_x()->mutable_shared()},
                                                                    {&buffers.y, output->mutable_shared()}};
  for (const auto& [block, range] : ranges) {
    range->set_region(block->region());
    range->set_offset(static_cast<uint64_t>(block->offset()));
    range->set_size_bytes(static_cast<uint64_t>(bytes));
  }
  return Serialize(request);
}

class SharedComparison {
 public:
  SharedComparison(const Flags& flags, Report* report) : flags_(flags), report_(report) {}

  absl::Status Start() {
    NORMD_ASSIGN_OR_RETURN(echo_, ServerProcess::Start("echo", "unix"));
    NORMD_ASSIGN_OR_RETURN(normd_, ServerProcess::Start("normd", "unix"));
    NORMD_ASSIGN_OR_RETURN(arena_, SharedArena::Create(normd_->address(), {}));
    grpc::Slice nothing;
    empty_.method = "/normd.bench.Echo/Empty";
    empty_.requests = {grpc::ByteBuffer(&nothing, 1)};
    empty_.channels = NewChannels(echo_->address(), 1);
    return absl::OkStatus();
  }

  absl::Status Measure(const Load& load) {
    NORMD_RETURN_IF_ERROR(Prepare(load));
    const absl::Duration duration = flags_.Pick(absl::Milliseconds(150), absl::Milliseconds(60), absl::Milliseconds(5));
    const auto run = [&](size_t candidate, bool) -> absl::StatusOr<double> {
      if (candidate == kKernel) return RunKernel(load, duration);
      NORMD_ASSIGN_OR_RETURN(const LoopResult result,
                             RunClosedLoop(candidate == kNormd ? target_ : empty_, load.in_flight, duration));
      return result.Micros();
    };
    NORMD_ASSIGN_OR_RETURN(const auto rounds, Interleave<double>(kCandidates, flags_.Pick(7, 3, 1), run));
    const std::vector<double>&kernel = rounds[kKernel], &normd = rounds[kNormd], &rpc = rounds[kEmptyRpc];
    std::vector<double> allowed = kernel;
    for (size_t i = 0; i < allowed.size(); ++i) allowed[i] += kRpcsAllowed * rpc[i];
    report_->Row(NameOf(load), {Amount(Median(kernel)), Amount(Median(normd)), Amount(Median(rpc)),
                                Ratio(MedianRatio(kernel, normd), load.of_kernel),
                                Ratio(MedianRatio(normd, allowed), {}, load.of_kernel_and_rpcs_at_most),
                                Ratio(MedianRatio(rpc, normd), load.of_rpc)});
    return absl::OkStatus();
  }

 private:
  // Buffers, a pair for each call in flight, requests, and one reply's y that is looked at.
  absl::Status Prepare(const Load& load) {
    NORMD_ASSIGN_OR_RETURN(const Rows rows, MakeRows(load.payload));
    buffers_.clear();
    target_ = {
        .channels = NewChannels(normd_->address(), 1), .method = "/normd.v1.Normalizer/Normalize", .requests = {}};
    for (int i = 0; i < load.in_flight; ++i) {
      CallBuffers& buffers = buffers_.emplace_back();
      NORMD_ASSIGN_OR_RETURN(buffers.x, arena_->Allocate(load.payload));
      NORMD_ASSIGN_OR_RETURN(buffers.y, arena_->Allocate(load.payload));
      std::memcpy(buffers.x.data(), rows.x.data(), rows.x.size());
      std::memset(buffers.y.data(), 0, rows.y.size());
      target_.requests.push_back(MakeSharedRequest(load.payload, buffers));
    }
    NORMD_RETURN_IF_ERROR(RunClosedLoop(target_, load.in_flight, absl::ZeroDuration()).status());
    for (const CallBuffers& buffers : buffers_) {
      if (std::memcmp(buffers.y.data(), rows.y.data(), rows.y.size()) != 0) return absl::InternalError("a wrong y");
    }
    return absl::OkStatus();
  }

  // Micros of the kernel in this process at its best: as many calls at once as there are cores.
  absl::StatusOr<double> RunKernel(const Load& load, absl::Duration duration) {
    const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    const auto count = static_cast<size_t>(std::min(load.in_flight, cores));
    std::vector<absl::StatusOr<absl::Duration>> times(count, absl::ZeroDuration());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < count; ++i) {
      threads.emplace_back(
          [&, i] { times[i] = kernel_.TimeOfOne(buffers_[i].x.data(), load.payload, buffers_[i].y.data(), duration); });
    }
    for (std::thread& thread : threads) thread.join();
    double per_micro = 0;
    for (const absl::StatusOr<absl::Duration>& time : times) {
      if (!time.ok()) return time.status();
      per_micro += 1 / absl::ToDoubleMicroseconds(*time);
    }
    return 1 / per_micro;
  }

  const Flags& flags_;
  Report* const report_;
  std::unique_ptr<ServerProcess> echo_, normd_;
  std::unique_ptr<SharedArena> arena_;
  RmsRows kernel_;
  Target empty_, target_;
  std::vector<CallBuffers> buffers_;
};

}  // namespace

absl::Status MeasureShared(const Flags& flags, Report* report) {
  report->Table(
      "x and y in shared memory, n in flight: us a call; speed beside the kernel and the empty RPC (floor), "
      "time beside the kernel and 1.3 empty RPCs (at most)",
      {"kernel", "normd", "empty RPC", "of kernel", "of both", "of RPC"});
  std::optional<SharedComparison> comparison;
  for (const Load& load : kLoads) {
    if (!flags.Chosen(NameOf(load))) continue;
    if (!comparison.has_value()) {
      comparison.emplace(flags, report);
      NORMD_RETURN_IF_ERROR(WithContext(comparison->Start(), "shared"));
    }
    NORMD_RETURN_IF_ERROR(WithContext(comparison->Measure(load), NameOf(load)));
  }
  return absl::OkStatus();
}

}  // namespace normd::bench
