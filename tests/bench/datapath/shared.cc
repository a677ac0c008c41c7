#include "tests/bench/datapath/shared.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/shared_arena.h"
#include "kernels/base/status_macros.h"
#include "tests/bench/datapath/driver.h"
#include "tests/bench/datapath/exchange.h"
#include "tests/bench/datapath/inline.h"
#include "tests/bench/datapath/rms_rows.h"
#include "tests/bench/datapath/server_process.h"

namespace normd::bench {

namespace {

using client::SharedArena;
using client::SharedBlock;

enum class Bound { kShareOfKernel, kKernelAndRpc, kShareOfRpc };
constexpr double kShareFloor = 0.85;
constexpr double kRpcsAllowed = 1.3;

struct Cell {
  int64_t payload;
  int in_flight;
  Bound bound;
};
constexpr Cell kCells[] = {{4 << 10, 1, Bound::kShareOfRpc},
                           {1 << 20, 1, Bound::kKernelAndRpc},
                           {1 << 20, 4, Bound::kShareOfKernel},
                           {16 << 20, 1, Bound::kShareOfKernel}};

// What one call reads and writes.
struct Buffers {
  SharedBlock x, y;
};

// Times of one call: of several in flight, the time divided by the number of calls.
struct Times {
  double kernel = 0, normd = 0, empty = 0;  // us
};

absl::StatusOr<double> MicrosOf(const Target& target, int in_flight, absl::Duration duration) {
  NORMD_ASSIGN_OR_RETURN(const LoopResult result, RunClosedLoop(target, in_flight, duration));
  return absl::ToDoubleMicroseconds(result.time) / static_cast<double>(result.requests);
}

class SharedRace {
 public:
  SharedRace(const SharedOptions& options, Report* report) : options_(options), report_(report) {}

  absl::Status Run() {
    NORMD_ASSIGN_OR_RETURN(place_, ListenPlace::Make("unix"));
    NORMD_ASSIGN_OR_RETURN(echo_, ServerProcess::Start("echo", place_->Address("echo")));
    NORMD_ASSIGN_OR_RETURN(normd_, ServerProcess::Start("normd", place_->Address("normd")));
    NORMD_ASSIGN_OR_RETURN(arena_, SharedArena::Create(normd_->address(), {}));
    empty_ = MakeEmptyTarget();
    empty_.channels = NewChannels(echo_->address(), 1);
    for (const Cell& cell : kCells) NORMD_RETURN_IF_ERROR(RunCell(cell));
    return absl::OkStatus();
  }

 private:
  absl::Status RunCell(const Cell& cell) {
    NORMD_RETURN_IF_ERROR(Prepare(cell));
    std::vector<double> kernel, normd, empty, ratios;
    for (int i = -1; i < options_.rounds; ++i) {
      NORMD_ASSIGN_OR_RETURN(const Times times, RunRound(cell, i % 2 == 0));
      if (i < 0) continue;  // warm-up
      kernel.push_back(times.kernel);
      normd.push_back(times.normd);
      empty.push_back(times.empty);
      ratios.push_back(RatioOf(cell, times));
    }
    const std::string name = absl::StrCat("shared ", BytesText(cell.payload), " n=", cell.in_flight);
    report_->Add({name + " kernel", Median(kernel), "us"});
    report_->Add({name + " normd", Median(normd), "us"});
    report_->Add({name + " empty RPC", Median(empty), "us"});
    AddRatio(cell, name, {Median(kernel), Median(normd), Median(empty)}, Median(ratios));
    return absl::OkStatus();
  }

  // Buffers, requests, and one reply's y that is looked at.
  absl::Status Prepare(const Cell& cell) {
    NORMD_ASSIGN_OR_RETURN(const Rows rows, MakeRows(cell.payload));
    buffers_.clear();
    target_ = {};
    target_.method = "/normd.v1.Normalizer/Normalize";
    target_.channels = NewChannels(normd_->address(), 1);
    for (int i = 0; i < cell.in_flight; ++i) {
      Buffers buffers;
      NORMD_ASSIGN_OR_RETURN(buffers.x, arena_->Allocate(cell.payload));
      NORMD_ASSIGN_OR_RETURN(buffers.y, arena_->Allocate(cell.payload));
      if (buffers.x.region() != buffers.y.region()) return absl::InternalError("x and y in two regions");
      std::memcpy(buffers.x.data(), rows.x.data(), rows.x.size());
      std::memset(buffers.y.data(), 0, rows.y.size());
      target_.requests.push_back(
          MakeSharedRequest(cell.payload, {buffers.x.region(), buffers.x.offset(), buffers.y.offset()}));
      buffers_.push_back(std::move(buffers));
    }
    NORMD_RETURN_IF_ERROR(RunClosedLoop(target_, cell.in_flight, absl::ZeroDuration()).status());
    for (const Buffers& buffers : buffers_) {
      if (std::memcmp(buffers.y.data(), rows.y.data(), rows.y.size()) != 0) return absl::InternalError("a wrong y");
    }
    return absl::OkStatus();
  }

  // The opponents take turns, so that a slow moment of the machine hits all.
  absl::StatusOr<Times> RunRound(const Cell& cell, bool kernel_first) {
    Times times;
    if (kernel_first) {
      NORMD_ASSIGN_OR_RETURN(times.kernel, KernelMicros(cell));
    }
    NORMD_ASSIGN_OR_RETURN(times.normd, MicrosOf(target_, cell.in_flight, options_.round));
    NORMD_ASSIGN_OR_RETURN(times.empty, MicrosOf(empty_, cell.in_flight, options_.round));
    if (!kernel_first) {
      NORMD_ASSIGN_OR_RETURN(times.kernel, KernelMicros(cell));
    }
    return times;
  }

  // At its best: as many calls at once as there are cores.
  absl::StatusOr<double> KernelMicros(const Cell& cell) {
    const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    const auto count = static_cast<size_t>(std::min(cell.in_flight, cores));
    std::vector<absl::StatusOr<absl::Duration>> times(count, absl::ZeroDuration());
    std::vector<std::thread> threads;
    const auto run = [&](size_t i) {
      const Buffers& buffers = buffers_[i];
      times[i] = kernel_.TimeOfOne(buffers.x.data(), cell.payload, buffers.y.data(), options_.round);
    };
    for (size_t i = 1; i < count; ++i) threads.emplace_back(run, i);
    run(0);
    for (std::thread& thread : threads) thread.join();
    double per_micro = 0;
    for (const absl::StatusOr<absl::Duration>& time : times) {
      if (!time.ok()) return time.status();
      per_micro += 1 / absl::ToDoubleMicroseconds(*time);
    }
    return 1 / per_micro;
  }

  static double RatioOf(const Cell& cell, const Times& times) {
    switch (cell.bound) {
      case Bound::kShareOfKernel:
        return times.kernel / times.normd;
      case Bound::kKernelAndRpc:
        return times.normd / (times.kernel + kRpcsAllowed * times.empty);
      case Bound::kShareOfRpc:
        break;
    }
    return times.empty / times.normd;
  }

  void AddRatio(const Cell& cell, const std::string& name, const Times& times, double ratio) {
    std::string bound = "at least 0.85 of the kernel";
    if (cell.bound == Bound::kKernelAndRpc) {
      report_->Add({name, ratio, "of the kernel and 1.3 empty RPCs", {}, 1.0});
      bound = "at most 1 of the kernel and 1.3 empty RPCs";
    } else {
      const bool rpc = cell.bound == Bound::kShareOfRpc;
      if (rpc) bound = "at least 0.85 of the empty RPC";
      report_->Add({name, ratio, rpc ? "of the empty RPC" : "of the kernel", kShareFloor, {}});
    }
    report_->Row({name, Short(times.kernel), Short(times.normd), Short(times.empty), Fixed(ratio, 2), bound});
  }

  const SharedOptions& options_;
  Report* const report_;
  std::unique_ptr<ListenPlace> place_;
  std::unique_ptr<ServerProcess> echo_, normd_;
  std::unique_ptr<SharedArena> arena_;
  RmsRows kernel_;
  Target empty_, target_;
  std::vector<Buffers> buffers_;
};

}  // namespace

absl::Duration EstimateShared(const SharedOptions& options) {
  return options.round * 3 * (options.rounds + 1) * static_cast<double>(std::size(kCells));
}

absl::Status MeasureShared(const SharedOptions& options, Report* report) {
  report->Table("x and y in shared memory, n in flight over the Unix socket: us a call, medians of rounds",
                {"", "kernel", "normd", "empty RPC", "ratio", "asked"});
  return WithContext(SharedRace(options, report).Run(), "shared");
}

}  // namespace normd::bench
