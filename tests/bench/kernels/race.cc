#include "tests/bench/kernels/race.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "tests/bench/report.h"
#include "tests/bench/store/or_die.h"
#include "tests/support/case.h"

namespace normd::bench {

namespace {

// libgomp's workers spin for about 300,000 pauses before they sleep: 10 to 20 ms.
constexpr absl::Duration kSpin = absl::Milliseconds(20);

struct Entry {
  Contestant* contestant;
  size_t index;
  int64_t iterations = 1;
  std::vector<Batch> batches = {};
  int quiet = 0;  // batches that others hardly disturbed
};

Batch RunOnce(const Entry& entry, int threads) {
  const Batch batch = entry.contestant->Run(entry.iterations);
  if (entry.contestant->Spins() && threads > 1) absl::SleepFor(kSpin);
  return batch;
}

// A few hundred elements from all over y, which is zeroed there.
std::vector<oracle::Wide> TakeSamples(const Workload& workload, const Buffers& buffers) {
  constexpr int64_t kSamples = 251;
  const int64_t size = SizeOf(workload.dtype);
  const int64_t step = std::max<int64_t>(1, workload.Elements() / kSamples);
  std::string bytes;
  for (int64_t i = 0; i < workload.Elements(); i += step) {
    auto* const element = reinterpret_cast<char*>(buffers.y() + i * size);
    bytes.append(element, static_cast<size_t>(size));
    std::memset(element, 0, static_cast<size_t>(size));
  }
  return OracleValues(workload.dtype, bytes);
}

// Who is fast at something else is no opponent. Coarse: a bf16 has 8 bits, and none of this judges accuracy.
void CheckSame(const Workload& workload, std::string_view name, const std::vector<oracle::Wide>& expected,
               const std::vector<oracle::Wide>& samples) {
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto a = static_cast<double>(expected[i]);
    const auto b = static_cast<double>(samples[i]);
    if (!(std::abs(a - b) <= 0.02 * (1 + std::abs(a)))) {
      Die(workload.Name() + ": sample " + std::to_string(i) + " is " + std::to_string(b) + " by " + std::string(name) +
          " and " + std::to_string(a) + " by EXACT");
    }
  }
}

// Of the `rounds` quietest batches.
Time Summary(Entry entry, size_t rounds) {
  std::stable_sort(entry.batches.begin(), entry.batches.end(), [](const Batch& a, const Batch& b) {
    return std::max(a.stolen, kDisturbed) < std::max(b.stolen, kDisturbed);
  });
  std::vector<double> seconds;
  // What every call takes is in the median; a thread that first grows its heap in one batch is not.
  std::vector<double> page_faults;
  for (const Batch& batch : entry.batches) {
    if (seconds.size() < rounds) seconds.push_back(batch.seconds);
    page_faults.push_back(batch.page_faults / static_cast<double>(entry.iterations));
  }
  return {.took_part = true,
          .min_seconds = *std::min_element(seconds.begin(), seconds.end()),
          .median_seconds = Median(seconds),
          .page_faults = Median(page_faults),
          .disturbed = entry.quiet < static_cast<int>(rounds)};
}

}  // namespace

std::string Time::GbText(int64_t bytes) const {
  if (!took_part) return "-";
  const double median = static_cast<double>(bytes) / median_seconds * 1e-9;
  const double best = static_cast<double>(bytes) / min_seconds * 1e-9;
  const int digits = best < 99.95 ? 1 : 0;
  return Fixed(median, digits) + "/" + Fixed(best, digits);
}

std::vector<Time> Race(const Workload& workload, const Buffers& buffers, int threads, const RaceOptions& options,
                       const std::vector<std::unique_ptr<Contestant>>& contestants) {
  std::vector<Entry> entries;
  std::vector<oracle::Wide> expected;  // by the first that writes it
  for (size_t i = 0; i < contestants.size(); ++i) {
    if (!contestants[i]->Prepare(workload, buffers, threads)) continue;
    Entry entry = {.contestant = contestants[i].get(), .index = i};
    contestants[i]->Run(1);
    if (contestants[i]->WritesResult()) {
      const std::vector<oracle::Wide> samples = TakeSamples(workload, buffers);
      if (expected.empty()) expected = samples;
      CheckSame(workload, contestants[i]->name(), expected, samples);
    }
    const double once = contestants[i]->Run(1).seconds;
    entry.iterations =
        std::clamp<int64_t>(static_cast<int64_t>(absl::ToDoubleSeconds(options.batch) / once), 1, 1'000'000);
    if (entry.iterations > 1) RunOnce(entry, threads);
    entries.push_back(std::move(entry));
  }
  const absl::Time patience_ends = SteadyNow() + options.patience;
  bool missing = true;
  for (int round = 0; missing && (round < options.rounds || SteadyNow() < patience_ends); ++round) {
    missing = false;
    // Another one begins each time: none always runs in the caches that a certain other one leaves.
    for (size_t i = 0; i < entries.size(); ++i) {
      Entry& entry = entries[(i + static_cast<size_t>(round)) % entries.size()];
      if (entry.quiet >= options.rounds) continue;
      entry.batches.push_back(RunOnce(entry, threads));
      if (entry.batches.back().stolen <= kDisturbed) ++entry.quiet;
      missing = missing || entry.quiet < options.rounds;
    }
  }
  std::vector<Time> times(contestants.size());
  for (Entry& entry : entries) {
    const size_t index = entry.index;
    times[index] = Summary(std::move(entry), static_cast<size_t>(options.rounds));
  }
  return times;
}

}  // namespace normd::bench
