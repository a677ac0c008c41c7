#include "tests/bench/kernels/kernel_comparison.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>

#include "absl/time/clock.h"
#include "kernels/base/strings.h"
#include "tests/bench/comparison.h"
#include "tests/bench/machine.h"
#include "tests/bench/or_die.h"
#include "tests/support/case.h"

namespace normd::bench {

namespace {

// libgomp's workers spin for about 300,000 pauses before they sleep: 10 to 20 ms.
constexpr absl::Duration kSpin = absl::Milliseconds(20);

// The share of a batch's time for which its threads may have waited for a core that others had.
constexpr double kDisturbed = 0.05;

// How long threads of a process were ready to run and had no core, so far.
double WaitedForCoreSeconds(pid_t pid) {
  double nanoseconds = 0;
  std::error_code error;  // threads come and go
  for (const auto& task : std::filesystem::directory_iterator(Concat("/proc/", pid, "/task"), error)) {
    std::ifstream file(task.path() / "schedstat");  // time on a core, time waiting for one, slices
    double ran = 0;
    double waited = 0;
    file >> ran >> waited;
    nanoseconds += waited;
  }
  return nanoseconds * 1e-9;
}

int64_t PageFaults() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

// A few hundred elements from all over y, which is zeroed there.
std::vector<double> TakeSamples(const Workload& workload, const Buffers& buffers) {
  constexpr int64_t kSamples = 251;
  const int64_t size = SizeOf(workload.dtype);
  const int64_t step = std::max<int64_t>(1, workload.Elements() / kSamples);
  std::string bytes;
  for (int64_t i = 0; i < workload.Elements(); i += step) {
    auto* const element = reinterpret_cast<char*>(buffers.y() + i * size);
    bytes.append(element, static_cast<size_t>(size));
    std::memset(element, 0, static_cast<size_t>(size));
  }
  std::vector<double> samples;
  for (const oracle::Wide& value : OracleValues(workload.dtype, bytes)) samples.push_back(static_cast<double>(value));
  return samples;
}

}  // namespace

Batch Candidate::Run(int64_t calls) {
  const int64_t faults = PageFaults();
  const absl::Time begin = SteadyNow();
  for (int64_t i = 0; i < calls; ++i) Call();
  const double seconds = absl::ToDoubleSeconds(SteadyNow() - begin);
  const auto count = static_cast<double>(calls);
  return {.seconds = seconds / count, .page_faults = static_cast<double>(PageFaults() - faults) / count};
}

KernelComparison::KernelComparison(const Flags& flags, int64_t bytes)
    : rounds_(flags.Pick(7, 5, 1)),
      batch_(flags.Pick(absl::Milliseconds(6), absl::Milliseconds(2), absl::Microseconds(1))),
      patience_(flags.Pick(absl::Seconds(1), absl::Milliseconds(100), absl::ZeroDuration())),
      buffers_(bytes) {}

std::vector<Timing> KernelComparison::Run(const Workload& workload, int threads, const Candidates& candidates) {
  std::vector<Entry> entries;
  for (const auto& candidate : candidates) entries.push_back({candidate.get(), workload, threads});
  return Run(entries);
}

std::vector<Timing> KernelComparison::Run(const std::vector<Entry>& entries) {
  buffers_.Lay(entries.front().workload);
  std::vector<size_t> present;
  std::vector<int64_t> calls;
  std::map<std::string, std::vector<double>> expected;  // by workload; of the first that writes it
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (!entry.candidate->Prepare(entry.workload, buffers_, entry.threads)) continue;
    RunAndCheck(entry, &expected[entry.workload.Name()]);
    const double in_batch = absl::ToDoubleSeconds(batch_) / RunBatch(entry, 1, absl::InfinitePast()).seconds;
    present.push_back(i);
    calls.push_back(static_cast<int64_t>(std::clamp(in_batch, 1.0, 1e6)));
  }
  const absl::Time patience_ends = SteadyNow() + patience_;
  const auto run = [&](size_t i, bool) -> absl::StatusOr<Batch> {
    return RunBatch(entries[present[i]], calls[i], patience_ends);
  };
  const std::vector<std::vector<Batch>> batches = OrDie(Interleave<Batch>(present.size(), rounds_, run));
  std::vector<Timing> timings(entries.size());
  for (size_t i = 0; i < present.size(); ++i) {
    // A page fault that every call takes is in the median; a thread that first grows its heap in one batch is not.
    timings[present[i]] = Batch{.seconds = Median(ValuesOf(batches[i], &Batch::seconds)),
                                .page_faults = Median(ValuesOf(batches[i], &Batch::page_faults))};
  }
  return timings;
}

std::string KernelComparison::RoundsText() const {
  return Concat(rounds_, " of ", absl::FormatDuration(batch_),
                " or one call, interleaved, medians; batches in which others had a core for over ", 100 * kDisturbed,
                " % are repeated for up to ", absl::FormatDuration(patience_));
}

// Who is fast at something else is no opponent. Coarse: a bf16 has 8 bits, and none of this judges accuracy.
void KernelComparison::RunAndCheck(const Entry& entry, std::vector<double>* expected) const {
  entry.candidate->Run(1);
  if (!entry.candidate->WritesResult()) return;
  const std::vector<double> samples = TakeSamples(entry.workload, buffers_);
  if (expected->empty()) *expected = samples;
  for (size_t i = 0; i < samples.size(); ++i) {
    const double first = (*expected)[i];
    if (std::abs(first - samples[i]) <= 0.02 * (1 + std::abs(first))) continue;
    Die(Concat(entry.workload.Name(), ": sample ", i, " is ", samples[i], " by ", entry.candidate->name(), " and ",
               first, " by the first candidate"));
  }
}

Batch KernelComparison::RunBatch(const Entry& entry, int64_t calls, absl::Time patience_ends) const {
  while (true) {
    const double waited = WaitedForCoreSeconds(entry.candidate->pid());
    const Batch batch = entry.candidate->Run(calls);
    const double stolen = WaitedForCoreSeconds(entry.candidate->pid()) - waited;
    if (entry.candidate->Spins() && entry.threads > 1) absl::SleepFor(kSpin);
    const double seconds = batch.seconds * static_cast<double>(calls);
    if (stolen <= kDisturbed * seconds || SteadyNow() >= patience_ends) return batch;
  }
}

}  // namespace normd::bench
