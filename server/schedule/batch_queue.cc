#include "server/schedule/batch_queue.h"

#include <algorithm>

#include "server/schedule/job_list.h"

namespace normd {
namespace {

bool IsPlainRows(const Job& job) {
  const NormPlan& plan = *job.plan;
  return plan.pattern == Pattern::kRows && plan.reduce0 == 1 && plan.permutation.empty() && plan.power_groups == 0 &&
         !plan.given_statistics && job.mask == nullptr;
}

BatchKey KeyOf(const NormPlan& plan) {
  return {.statistic = plan.statistic,
          .dtype = plan.dtype,
          .precision = plan.precision,
          .row_elements = plan.reduce1,
          .statistic_elements = plan.statistic_reduce1};
}

}  // namespace

std::optional<BatchKey> BatchKeyOf(absl::Span<const Job> jobs) {
  const BatchKey key = KeyOf(*jobs.front().plan);
  const bool shared = std::all_of(jobs.begin(), jobs.end(), [&key](const Job& job) {
    return IsPlainRows(job) && !ReplacesInput(job) && KeyOf(*job.plan) == key;
  });
  return shared ? std::optional(key) : std::nullopt;
}

void BatchQueue::Push(std::unique_ptr<Submission> submission, absl::Time now) {
  submission->key = BatchKeyOf(submission->jobs);
  submission->bytes = BytesMoved(submission->jobs);
  submission->sequence = next_sequence_++;
  CallerTurns& turns = callers_[submission->context.caller];
  submission->turn = turns.waiting == 0 ? now_turn_ : std::max(now_turn_, turns.last_turn + 1);
  turns.last_turn = submission->turn;
  // Half of the time until the deadline is left for running.
  const absl::Duration half = std::max(absl::ZeroDuration(), (submission->context.deadline - now) / 2);
  submission->since = now;
  submission->due = now + std::min(limits_.max_delay, half);
  Insert(std::move(submission));
}

WaitStats BatchQueue::wait_stats(absl::Time now) const {
  WaitStats stats;
  for (const auto& [key, queue] : queues_) {
    stats.waiting += static_cast<int64_t>(queue.waiting.size());
    for (const auto& [place, submission] : queue.waiting)
      stats.oldest = std::max(stats.oldest, now - submission->since);
  }
  return stats;
}

void BatchQueue::Return(std::unique_ptr<Submission> submission) {
  submission->key = std::nullopt;
  Insert(std::move(submission));
}

void BatchQueue::Insert(std::unique_ptr<Submission> submission) {
  ++callers_[submission->context.caller].waiting;
  KeyQueue& queue = queues_[submission->key];
  queue.jobs += static_cast<int64_t>(submission->jobs.size());
  queue.bytes += submission->bytes;
  const Place place = {submission->turn, submission->sequence};
  queue.waiting.emplace(place, std::move(submission));
}

absl::Time BatchQueue::DueOf(const KeyQueue& queue) const {
  const bool waits_for_company = queue.waiting.begin()->second->key.has_value();
  const bool full = queue.jobs >= limits_.max_jobs || queue.bytes >= limits_.max_bytes;
  if (limits_.max_delay <= absl::ZeroDuration() || !waits_for_company || full) return absl::InfinitePast();
  absl::Time due = absl::InfiniteFuture();
  for (const auto& [place, submission] : queue.waiting) due = std::min(due, submission->due);
  return due;
}

absl::Time BatchQueue::NextDue() const {
  absl::Time due = absl::InfiniteFuture();
  for (const auto& [key, queue] : queues_) due = std::min(due, DueOf(queue));
  return due;
}

BatchQueue::Queues::iterator BatchQueue::NextQueue(absl::Time now) {
  auto next = queues_.end();
  for (auto it = queues_.begin(); it != queues_.end(); ++it) {
    if (DueOf(it->second) > now) continue;
    if (next == queues_.end() || it->second.waiting.begin()->first < next->second.waiting.begin()->first) next = it;
  }
  return next;
}

Submissions BatchQueue::Take(absl::Time now) {
  Submissions launch;
  const auto it = NextQueue(now);
  if (it == queues_.end()) return launch;
  KeyQueue& queue = it->second;
  now_turn_ = std::max(now_turn_, queue.waiting.begin()->first.first);
  int64_t jobs = 0, bytes = 0;
  while (!queue.waiting.empty()) {
    const Submission& next = *queue.waiting.begin()->second;
    jobs += static_cast<int64_t>(next.jobs.size());
    bytes += next.bytes;
    // The first submission goes however large it is. One that does not fit is not overtaken by a smaller one of its
    // queue.
    if (!launch.empty() && (jobs > limits_.max_jobs || bytes > limits_.max_bytes)) break;
    launch.push_back(Remove(queue));
    if (!it->first.has_value()) break;
  }
  if (queue.waiting.empty()) queues_.erase(it);
  return launch;
}

std::unique_ptr<Submission> BatchQueue::Remove(KeyQueue& queue) {
  std::unique_ptr<Submission> submission = std::move(queue.waiting.begin()->second);
  queue.waiting.erase(queue.waiting.begin());
  queue.jobs -= static_cast<int64_t>(submission->jobs.size());
  queue.bytes -= submission->bytes;
  const auto turns = callers_.find(submission->context.caller);
  if (--turns->second.waiting == 0) callers_.erase(turns);
  return submission;
}

}  // namespace normd
