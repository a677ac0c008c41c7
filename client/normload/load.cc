#include "client/normload/load.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/normload/interrupt.h"
#include "client/normload/socket_watchdog.h"

namespace normd::client {
namespace {

// A steady clock, because latencies must not jump when the time of day is set.
using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

// The time for a call to return by itself, after its deadline or after a signal.
constexpr absl::Duration kGrace = absl::Seconds(1);

Time After(Time time, absl::Duration duration) { return time + absl::ToChronoNanoseconds(duration); }
int64_t Nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

struct Turn {
  size_t entry;
  Time due;  // in a closed loop: the time when the turn was taken
};

// Hands the calls of a measurement to its workers, in the order in which the calls are due.
class Pace {
 public:
  Pace(const LoadOptions& options, Time start)
      : measure_from_(After(start, options.warmup)),
        stop_at_(After(measure_from_, options.duration)),
        start_(start),
        open_(options.rate.has_value()),
        picker_(options.entries, options.seed + 1),
        arrivals_(options.arrivals, options.rate.value_or(1), options.seed),
        calls_left_(options.requests > 0 ? options.requests : std::numeric_limits<int64_t>::max()) {}

  bool open() const { return open_; }
  Time measure_from() const { return measure_from_; }
  // When no call is sent any more: as planned, or when a signal came.
  Time stop_at() const { return std::min(stop_at_, InterruptedAt().value_or(stop_at_)); }

  // Returns nullopt when the measurement is over.
  std::optional<Turn> Take() {
    const Time now = Clock::now();
    if (now >= stop_at()) return std::nullopt;
    const std::lock_guard<std::mutex> lock(mu_);
    return Draw(now);
  }

  // Counts the calls that were due but that no worker took.
  int64_t CountLeft() {
    const std::lock_guard<std::mutex> lock(mu_);
    int64_t count = 0;
    while (open_) {
      const std::optional<Turn> turn = Draw(stop_at());
      if (!turn.has_value()) break;
      if (turn->due >= measure_from_) ++count;
    }
    return count;
  }

 private:
  // REQUIRES: mu_ is held. A call belongs to the measurement if it is due during the measurement.
  std::optional<Turn> Draw(Time now) {
    const Time due = open_ ? After(start_, arrivals_.Next()) : now;
    if (open_ && due >= stop_at()) return std::nullopt;
    if (due >= measure_from_ && calls_left_-- <= 0) {
      calls_left_ = 0;
      return std::nullopt;
    }
    return Turn{picker_.Next(), due};
  }

  const Time measure_from_, stop_at_, start_;
  const bool open_;
  std::mutex mu_;
  // Guarded by mu_:
  MixPicker picker_;
  Arrivals arrivals_;
  int64_t calls_left_;
};

// One finished call.
struct Sample {
  size_t entry = 0;
  int64_t rows = 0;  // of one tensor
  int64_t latency_ns = 0;
  absl::Status status;
  CallOutcome outcome;
};

// Collects the samples of all workers. A few parts have a lock each, because one histogram for each of 4096 workers
// would take gigabytes.
class Record {
 public:
  Record(size_t entries, absl::Duration slo) : slo_ns_(absl::ToInt64Nanoseconds(slo)) {
    for (Part& part : parts_) part.result.entries.resize(entries);
  }

  void Add(int worker, const Sample& sample) {
    Part& part = PartOf(worker);
    const std::lock_guard<std::mutex> lock(part.mu);
    EntryResult& to = part.result.entries[sample.entry];
    if (!sample.status.ok()) {
      ++to.errors[absl::StatusCodeToString(sample.status.code())];
      if (to.first_error.empty()) to.first_error = std::string(sample.status.message());
      return;
    }
    part.last_answer = Clock::now();
    to.latency.Record(sample.latency_ns);
    if (sample.latency_ns <= slo_ns_) ++to.good;
    to.items += sample.outcome.items;
    to.rows += sample.outcome.items * sample.rows;
    to.bytes_sent += sample.outcome.bytes_sent;
    to.bytes_received += sample.outcome.bytes_received;
    if (to.kernel.empty()) to.kernel = sample.outcome.kernel;
  }

  void AddLateness(int worker, int64_t late_ns, bool waited) {
    Part& part = PartOf(worker);
    const std::lock_guard<std::mutex> lock(part.mu);
    part.result.lateness.Record(late_ns);
    if (waited) ++part.result.waited;
  }

  void AddUnsent(int worker) {
    Part& part = PartOf(worker);
    const std::lock_guard<std::mutex> lock(part.mu);
    ++part.result.unsent;
  }

  void AddCutOff(int worker) {
    Part& part = PartOf(worker);
    const std::lock_guard<std::mutex> lock(part.mu);
    ++part.result.cut_off;
  }

  // REQUIRES: all workers have ended. Moves `last_answer` to the last answer that was counted, if that is later.
  LoadResult Take(Time& last_answer) {
    LoadResult out = std::move(parts_[0].result);
    last_answer = std::max(last_answer, parts_[0].last_answer);
    for (size_t i = 1; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      for (size_t entry = 0; entry < out.entries.size(); ++entry) {
        out.entries[entry].Merge(part.result.entries[entry]);
      }
      out.lateness.Merge(part.result.lateness);
      out.waited += part.result.waited;
      out.unsent += part.result.unsent;
      out.cut_off += part.result.cut_off;
      last_answer = std::max(last_answer, part.last_answer);
    }
    return out;
  }

 private:
  struct Part {
    std::mutex mu;
    // Guarded by mu:
    LoadResult result;
    Time last_answer = Time::min();
  };
  Part& PartOf(int worker) { return parts_[static_cast<size_t>(worker) % parts_.size()]; }

  const int64_t slo_ns_;
  std::array<Part, 8> parts_;
};

// Keeps a closed loop from spinning when it is refused, and from asking a thousand times a second when its server is
// gone.
absl::Duration Backoff(int failures) { return absl::Milliseconds(1 << std::min(failures, 6)); }

// Sends one call after another until the measurement is over.
class Worker {
 public:
  Worker(int index, const LoadTarget& target, absl::Time streams_end, Pace& pace, Record& record)
      : index_(index),
        calls_(target.calls()),
        caller_(calls_, target.client(index), streams_end, target.step_client(index)),
        pace_(pace),
        record_(record) {}

  void Run() {
    // 1 us; the usual 50 us would show as lateness of this generator.
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    while (const std::optional<Turn> turn = pace_.Take()) {
      const Time ready = Clock::now();
      const bool waited = turn->due < ready;
      if (pace_.open() && !waited) SleepUntilOrInterrupt(turn->due);
      if (turn->due >= pace_.stop_at()) return;  // a signal came while the call was not due yet
      const Time sent = Clock::now();
      const bool measured = turn->due >= pace_.measure_from();
      // A worker that was free in time sends its call, even if the worker woke a little late.
      if (pace_.open() && waited && sent >= pace_.stop_at()) {
        if (measured) record_.AddUnsent(index_);
        continue;
      }
      if (pace_.open() && measured) record_.AddLateness(index_, Nanoseconds(sent - turn->due), waited);
      const Time from = pace_.open() ? turn->due : sent;
      CallOnce(turn->entry, from, measured);
    }
  }

 private:
  void CallOnce(size_t entry, Time from, bool measured) {
    Sample sample;
    sample.entry = entry;
    sample.rows = calls_[entry].entry.rows();
    sample.status = caller_.Call(entry, sample.outcome);
    sample.latency_ns = Nanoseconds(Clock::now() - from);
    const std::optional<Time> interrupted = InterruptedAt();
    const bool cut_off = !sample.status.ok() && interrupted.has_value() && Clock::now() >= After(*interrupted, kGrace);
    if (measured && cut_off) record_.AddCutOff(index_);
    if (measured && !cut_off) record_.Add(index_, sample);
    failures_ = sample.status.ok() ? 0 : failures_ + 1;
    if (failures_ > 0 && !pace_.open()) absl::SleepFor(Backoff(failures_ - 1));
  }

  const int index_;
  const absl::Span<const PreparedCall> calls_;
  Caller caller_;
  Pace& pace_;
  Record& record_;
  int failures_ = 0;  // consecutive
};

}  // namespace

void EntryResult::Merge(const EntryResult& other) {
  latency.Merge(other.latency);
  good += other.good;
  for (const auto& [code, count] : other.errors) errors[code] += count;
  if (first_error.empty()) first_error = other.first_error;
  items += other.items;
  rows += other.rows;
  bytes_sent += other.bytes_sent;
  bytes_received += other.bytes_received;
  if (kernel.empty()) kernel = other.kernel;
}

int64_t EntryResult::failed() const {
  int64_t sum = 0;
  for (const auto& [code, count] : errors) sum += count;
  return sum;
}

absl::StatusOr<std::unique_ptr<LoadTarget>> LoadTarget::Connect(const LoadOptions& options) {
  auto target = std::make_unique<LoadTarget>();
  target->calls_ = PrepareCalls(options.entries);
  target->step_prefix_ = absl::StrCat("normload-", getpid(), "-", absl::ToUnixMicros(absl::Now()));
  ClientOptions client_options;
  client_options.deadline = options.deadline;
  client_options.security = options.security;
  client_options.balance = options.balance;
  // A load generator counts failures instead of hiding them, unless it is told otherwise.
  if (!options.retry) client_options.retry.max_attempts = 1;
  client_options.shared_memory = std::any_of(options.entries.begin(), options.entries.end(), IsShared);
  for (int i = 0; i < std::max(options.connections, 1); ++i) {
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(options.server, client_options);
    if (!client.ok()) return client.status();
    target->clients_.push_back(*std::move(client));
    Caller caller(target->calls_, *target->clients_.back(), absl::Now() + options.deadline,
                  target->step_client(i % options.concurrency));
    // The first connection sends every entry, which shows mistakes. The other connections only need to be established.
    const size_t count = i == 0 ? target->calls_.size() : 1;
    for (size_t entry = 0; entry < count; ++entry) {
      const SocketWatchdog watchdog(options.deadline + kGrace);
      CallOutcome outcome;
      if (absl::Status status = caller.Call(entry, outcome); !status.ok()) return status;
    }
  }
  return target;
}

std::string LoadTarget::step_client(int worker) const { return absl::StrCat(step_prefix_, "-", worker); }

LoadResult RunLoad(const LoadOptions& options, const LoadTarget& target) {
  const absl::Duration until_stop = options.warmup + options.duration;
  const absl::Duration until_end = until_stop + options.deadline;
  const absl::Time streams_end = absl::Now() + until_end;
  const SocketWatchdog watchdog(until_end + kGrace, [] {
    const std::optional<Time> interrupted = InterruptedAt();
    return interrupted.has_value() && Clock::now() >= After(*interrupted, kGrace);
  });
  Pace pace(options, Clock::now());
  Record record(options.entries.size(), options.slo);
  std::vector<std::thread> workers;
  workers.reserve(static_cast<size_t>(options.concurrency));
  for (int i = 0; i < options.concurrency; ++i) {
    workers.emplace_back(
        [i, &target, streams_end, &pace, &record] { Worker(i, target, streams_end, pace, record).Run(); });
  }
  for (std::thread& worker : workers) worker.join();
  // A measurement that --requests ended was as long as it took. Any other was as long as planned or as a signal let it
  // be, or until the last answer if that came later. A call that was never answered does not stretch the time.
  const bool is_counted = options.requests > 0 && !InterruptedAt().has_value();
  Time last = is_counted ? pace.measure_from() : std::max(pace.measure_from(), pace.stop_at());
  LoadResult out = record.Take(last);
  out.unsent += pace.CountLeft();
  out.interrupted = InterruptedAt().has_value();
  out.elapsed = absl::Nanoseconds(std::max<int64_t>(1, Nanoseconds(last - pace.measure_from())));
  return out;
}

}  // namespace normd::client
