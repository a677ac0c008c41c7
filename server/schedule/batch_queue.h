// Submissions that wait for a launch, and the choice of those that make up the next launch.
// In the path: inside DeviceQueue, under its lock. Ownership: the queue owns the waiting submissions.
// Order: a submission gets a turn: the one after its caller's last waiting turn, or the current turn if its caller has
// none waiting. A launch takes the lowest turn first and, among equal turns, the oldest submission. So callers take
// turns however much one of them submits, each caller's own order is kept, and no shape waits for another shape's
// launch to fill.
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
#include "server/base/wait_stats.h"
#include "server/schedule/work.h"

namespace normd {

// What jobs must have in common to share one launch: rows of one length, reduced in one way.
struct BatchKey {
  Statistic statistic;
  DType dtype;
  Precision precision;
  int64_t row_elements;
  int64_t statistic_elements;  // elements of a row that enter the statistic

  auto operator<=>(const BatchKey&) const = default;
};

// The key of a whole job list; nothing if the list must be launched alone: its jobs differ, are not plain rows, or
// could not be run again by themselves if the launch failed.
std::optional<BatchKey> BatchKeyOf(absl::Span<const Job> jobs);

// Limits of one launch. `max_delay` is how long a submission may wait for others.
struct BatchLimits {
  int64_t max_jobs = 1024;
  int64_t max_bytes = int64_t{64} << 20;
  absl::Duration max_delay = absl::ZeroDuration();
};

// One call of DeviceQueue::Submit, with its place in the queue. REQUIRES: at least one job.
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
  absl::Time since = absl::InfinitePast();
  absl::Time due = absl::InfinitePast();  // launched by then, if there is room
};

using Submissions = std::vector<std::unique_ptr<Submission>>;

class BatchQueue {
 public:
  explicit BatchQueue(const BatchLimits& limits) : limits_(limits) {}

  // Adds a submission, and sets its key, turn, bytes and times.
  void Push(std::unique_ptr<Submission> submission, absl::Time now);
  // Puts back a submission whose launch failed: it keeps its turn and is launched alone.
  void Return(std::unique_ptr<Submission> submission);

  // Takes the next launch, in order of turns; empty if nothing is due.
  Submissions Take(absl::Time now);
  // When Take will find something due; InfiniteFuture if nothing waits.
  absl::Time NextDue() const;
  // From now on no submission waits for others.
  void StopDelaying() { limits_.max_delay = absl::ZeroDuration(); }

  bool empty() const { return queues_.empty(); }
  WaitStats wait_stats(absl::Time now) const;

 private:
  using Place = std::pair<uint64_t, uint64_t>;  // turn, sequence
  // The waiting submissions of one key.
  struct KeyQueue {
    std::map<Place, std::unique_ptr<Submission>> waiting;  // never empty
    int64_t jobs = 0;
    int64_t bytes = 0;
  };
  using Queues = std::map<std::optional<BatchKey>, KeyQueue>;  // submissions without a key are launched alone
  struct CallerTurns {
    uint64_t last_turn = 0;
    int64_t waiting = 0;
  };

  void Insert(std::unique_ptr<Submission> submission);
  absl::Time DueOf(const KeyQueue& queue) const;
  Queues::iterator NextQueue(absl::Time now);
  // Takes the first submission out of the queue.
  std::unique_ptr<Submission> Remove(KeyQueue& queue);

  BatchLimits limits_;
  Queues queues_;
  std::unordered_map<uint64_t, CallerTurns> callers_;  // those with waiting submissions
  uint64_t now_turn_ = 0;                              // of the last launch
  uint64_t next_sequence_ = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_SCHEDULE_BATCH_QUEUE_H_
