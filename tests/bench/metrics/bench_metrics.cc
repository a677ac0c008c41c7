// The bench of recording a request in the metrics; tests/bench/run.sh metrics starts it. What normd does for a request
// runs beside the same counts in prometheus-cpp's own counters and histograms, which have a mutex each, in one thread
// and in several.
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "server/base/clock.h"
#include "server/base/steady_time.h"
#include "server/obs/log.h"
#include "server/wiring/metrics.h"
#include "server/wiring/telemetry.h"
#include "tests/bench/comparison.h"
#include "tests/bench/suite.h"

namespace normd::bench {
namespace {

// A small call as a queue's thread sees it: 5 phases and the total, as before the phases of the transport were known.
RequestRecord SmallCall() {
  RequestRecord record;
  record.rpc = "Normalizer/Normalize";
  record.norm_method = "rms_norm";
  record.request_bytes = 4200;
  record.response_bytes = 4150;
  record.rows = 1;
  record.decode = absl::Microseconds(3);
  record.compute = absl::Microseconds(2);
  record.commit = absl::Microseconds(1);
  record.encode = absl::Microseconds(1);
  record.total = absl::Microseconds(11);
  return record;
}

// The metrics of normd, as the rpc layer calls them.
class Sharded {
 public:
  void Record(const RequestRecord& record) {
    observer_.on_request_done(record);
    observer_.on_request_written(record);
  }

 private:
  SystemClock clock_;
  Log log_{{}, &clock_};
  Metrics metrics_{DefaultMetricsOptions()};
  const RpcObserver observer_ = MakeObserver(&metrics_, &log_);
};

// Four counters and six histograms of prometheus-cpp with their series at hand.
class Prometheus {
 public:
  void Record(const RequestRecord& record) {
    requests_.Increment();
    request_bytes_.Increment(static_cast<double>(record.request_bytes));
    response_bytes_.Increment(static_cast<double>(record.response_bytes));
    rows_.Increment(static_cast<double>(record.rows));
    const std::array<absl::Duration, 6> phases = {record.decode, record.compute, record.commit,
                                                  record.encode, record.queue,   record.total};
    for (size_t i = 0; i < phases.size(); ++i) phases_[i]->Observe(absl::ToDoubleSeconds(phases[i]));
  }

 private:
  static std::unique_ptr<prometheus::Histogram> Phase() {
    return std::make_unique<prometheus::Histogram>(std::vector<double>{
        1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10});
  }

  prometheus::Counter requests_, request_bytes_, response_bytes_, rows_;
  std::array<std::unique_ptr<prometheus::Histogram>, 6> phases_ = {Phase(), Phase(), Phase(),
                                                                   Phase(), Phase(), Phase()};
};

// Nanoseconds of wall time for each of `requests` that each of `threads` records.
template <typename Recorder>
double NanosPerRequest(Recorder* recorder, int threads, int requests) {
  std::atomic<bool> go{false};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([recorder, requests, &go] {
      const RequestRecord record = SmallCall();
      while (!go.load(std::memory_order_acquire)) {
      }
      for (int i = 0; i < requests; ++i) recorder->Record(record);
    });
  }
  const absl::Time begin = SteadyNow();
  go.store(true, std::memory_order_release);
  for (std::thread& worker : workers) worker.join();
  return absl::ToDoubleNanoseconds(SteadyNow() - begin) / requests / threads;
}

absl::Status Measure(const Flags& flags, Report* report) {
  Sharded sharded;
  Prometheus prometheus;
  report->Table("ns of wall time for each request recorded, all threads together",
                {"normd", "prometheus-cpp", "ratio"});
  for (const int threads : {1, 2, 8}) {
    const int requests = flags.Pick(400'000, 100'000, 100) / threads;
    const auto run = [&](size_t candidate, bool) -> absl::StatusOr<double> {
      return candidate == 0 ? NanosPerRequest(&sharded, threads, requests)
                            : NanosPerRequest(&prometheus, threads, requests);
    };
    const auto rounds = Interleave<double>(2, flags.Pick(15, 5, 1), run);
    if (!rounds.ok()) return rounds.status();
    report->Row(absl::StrCat(threads, " threads"), {Amount(Median((*rounds)[0])), Amount(Median((*rounds)[1])),
                                                    Ratio(MedianRatio((*rounds)[0], (*rounds)[1]))});
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace normd::bench

int main(int argc, char** argv) {
  const std::optional<normd::bench::Flags> flags = normd::bench::ParseFlags(argc, argv, {});
  if (!flags.has_value()) return 2;
  return normd::bench::RunSuite("metrics", *flags,
                                [&](normd::bench::Report* report) { return normd::bench::Measure(*flags, report); });
}
