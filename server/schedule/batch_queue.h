// Submissions that wait for a launch, and which of them make up the next one.
// In the path: inside DeviceQueue, under its lock. Owns what waits.
// Order: a submission gets a turn, the one after its caller's last waiting turn, or the current turn where the caller
// has none waiting. Launches take the lowest turn first, and of equal turns the oldest. So callers take turns, whatever
// one of them piles up, each caller's own order is kept, and no shape waits for another shape's launch to fill.
// Not thread-safe.
#ifndef NORMD_SERVER_SCHEDULE_BATCH_QUEUE_H_
#define NORMD_SERVER_SCHEDULE_BATCH_QUEUE_H_

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "server/schedule/work.h"

namespace normd {

// What jobs must share to travel in one launch: rows of one length, reduced in one way.
struct BatchKey {
  Statistic statistic;
  DType dtype;
  Precision precision;
  int64_t row_elements;
  int64_t statistic_elements;  // of a row

  auto operator<=>(const BatchKey&) const = default;
};

// The key of a whole list; nothing where it is to be launched alone: jobs that differ, that are no plain rows, or that
// could not be run again by themselves if the launch failed.
std::optional<BatchKey> BatchKeyOf(absl::Span<const Job> jobs);

struct BatchLimits {
  int64_t max_jobs = 1024;
  int64_t max_bytes = int64_t{64} << 20;
  absl::Duration max_delay = absl::ZeroDuration();
};

// One Submit on its way. REQUIRES: at least one job.
struct Submission {
  Submission(std::vector<Job> job_list, const RequestContext& request, Backend::Done when_done)
      : jobs(std::move(job_list)), context(request), done(std::move(when_done)) {}

  std::vector<Job> jobs;
  RequestContext context;
  Backend::Done done;
  // Set by the queue.
  std::optional<BatchKey> key = std::nullopt;
  uint64_t turn = 0, sequence = 0;
  int64_t bytes = 0;
  absl::Time due = absl::InfinitePast();  // launched by then if there is room
};

using Submissions = std::vector<std::unique_ptr<Submission>>;

class BatchQueue {
 public:
  explicit BatchQueue(const BatchLimits& limits) : limits_(limits) {}

  void Push(std::unique_ptr<Submission> submission, absl::Time now);
  // Takes back one of a launch that failed: it keeps its turn, and is launched alone.
  void Return(std::unique_ptr<Submission> submission);

  // The next launch, in order of turns; empty where nothing is due.
  Submissions Take(absl::Time now);
  // When Take will have something that it did not have `now`; InfiniteFuture where nothing waits.
  absl::Time NextDue() const;
  // Nothing waits for company any more.
  void StopDelaying() { limits_.max_delay = absl::ZeroDuration(); }

  bool empty() const { return workers_.empty(); }

 private:
  using Place = std::pair<uint64_t, uint64_t>;  // turn, sequence
  struct Lane {
    std::map<Place, std::unique_ptr<Submission>> waiting;  // never empty
    int64_t jobs = 0;
    int64_t bytes = 0;
  };
  using Lanes = std::map<std::optional<BatchKey>, Lane>;  // the one without a key: launched alone
  struct CallerTurns {
    uint64_t last_turn = 0;
    int64_t waiting = 0;
  };

  void Insert(std::unique_ptr<Submission> submission);
  absl::Time DueOf(const Lane& lane) const;
  Lanes::iterator NextLane(absl::Time now);
  // Takes the lane's first one out.
  std::unique_ptr<Submission> Remove(Lane& lane);

  BatchLimits limits_;
  Lanes workers_;
  std::unordered_map<uint64_t, CallerTurns> callers_;  // those who have something waiting
  uint64_t now_turn_ = 0;                              // of the last launch
  uint64_t next_sequence_ = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_SCHEDULE_BATCH_QUEUE_H_
