#include "server/schedule/device_queue.h"

#include <utility>

#include "server/base/errors.h"

namespace normd {
namespace {

// Why nobody waits for a submission any more; OK if somebody does.
absl::Status WhyGone(const RequestContext& context, absl::Time now) {
  if (context.deadline <= now) return DeadlinePassedError();
  return context.cancelled != nullptr && (*context.cancelled)() ? CallerGoneError() : absl::OkStatus();
}

// Copies the jobs of several submissions, which keep their own for another try.
std::vector<Job> Concatenated(const Submissions& submissions) {
  std::vector<Job> jobs;
  for (const auto& submission : submissions) {
    jobs.insert(jobs.end(), submission->jobs.begin(), submission->jobs.end());
  }
  return jobs;
}

}  // namespace

DeviceQueue::DeviceQueue(Backend* device, const QueueOptions& options, Clock* clock, QueueObserver observer)
    : device_(device), options_(options), clock_(clock), observer_(std::move(observer)), queue_(options.limits) {
  if (options_.limits.max_delay > absl::ZeroDuration()) timer_ = std::thread([this] { RunTimer(); });
}

DeviceQueue::~DeviceQueue() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    queue_.StopDelaying();
    timer_wake_.SignalAll();
  }
  Pump();
  {
    MutexLock lock(mu_);
    while (unfinished_ > 0 || pumping_) idle_.Wait(mu_);
  }
  if (timer_.joinable()) timer_.join();
}

void DeviceQueue::Submit(std::vector<Job> jobs, const RequestContext& context, Done done) {
  if (jobs.empty()) return std::move(done)(absl::OkStatus());
  auto submission = std::make_unique<Submission>(std::move(jobs), context, std::move(done));
  const absl::Time now = clock_->Now();
  {
    MutexLock lock(mu_);
    unfinished_ += 2;  // the submission, and this call, which may outlast it
    queue_.Push(std::move(submission), now);
  }
  Pump();
  End(1);
}

WaitStats DeviceQueue::wait_stats() const {
  const absl::Time now = clock_->Now();
  MutexLock lock(mu_);
  return queue_.wait_stats(now);
}

void DeviceQueue::Pump() {
  {
    MutexLock lock(mu_);
    if (pumping_) return;  // the thread that pumps will see the change
    pumping_ = true;
  }
  while (true) {
    Submissions next = NextLaunch();
    if (next.empty()) return;
    Launch(std::move(next));
  }
}

Submissions DeviceQueue::NextLaunch() {
  const absl::Time now = clock_->Now();
  MutexLock lock(mu_);
  Submissions next;
  if (in_flight_ < options_.max_in_flight) next = queue_.Take(now);
  if (!next.empty()) {
    ++in_flight_;
    return next;
  }
  pumping_ = false;
  // While every place in the device is taken, the end of a launch comes before any timer.
  wake_at_ = in_flight_ < options_.max_in_flight ? queue_.NextDue() : absl::InfiniteFuture();
  timer_wake_.SignalAll();
  idle_.SignalAll();
  return next;
}

void DeviceQueue::Launch(Submissions submissions) {
  const absl::Time now = clock_->Now();
  Submissions launched;
  std::vector<Dropped> dropped;
  for (auto& submission : submissions) {
    absl::Status why = WhyGone(submission->context, now);
    if (why.ok()) {
      launched.push_back(std::move(submission));
    } else {
      dropped.push_back({std::move(submission), std::move(why)});
    }
  }
  if (launched.empty()) {
    MutexLock lock(mu_);
    --in_flight_;
  } else {
    if (observer_.on_launch != nullptr) observer_.on_launch(static_cast<int64_t>(launched.size()));
    std::vector<Job> jobs = launched.size() == 1 ? std::move(launched.front()->jobs) : Concatenated(launched);
    device_->Submit(std::move(jobs), [this, launched = std::move(launched)](absl::Status status) mutable {
      Finish(std::move(launched), status);
    });
  }
  Drop(std::move(dropped));
}

void DeviceQueue::Drop(std::vector<Dropped> dropped) {
  if (dropped.empty()) return;
  for (auto& [submission, why] : dropped) {
    if (observer_.on_dropped != nullptr) observer_.on_dropped(why.code());
    std::move(submission->done)(std::move(why));
  }
  End(dropped.size());
}

void DeviceQueue::Finish(Submissions submissions, const absl::Status& status) {
  const bool again = !status.ok() && !absl::IsUnavailable(status) && submissions.size() > 1;
  size_t ended = submissions.size();
  {
    MutexLock lock(mu_);
    --in_flight_;
    if (again) {
      for (auto& submission : submissions) queue_.Return(std::move(submission));
      ++unfinished_;  // this call, for which the returned submissions no longer count
      ended = 1;
    }
  }
  // The device is supplied first, because callers encode their replies on this thread.
  Pump();
  if (!again) {
    for (auto& submission : submissions) std::move(submission->done)(status);
  }
  submissions.clear();
  End(ended);
}

void DeviceQueue::End(size_t count) {
  MutexLock lock(mu_);
  unfinished_ -= count;
  if (unfinished_ == 0) idle_.SignalAll();
}

void DeviceQueue::RunTimer() {
  mu_.Lock();
  while (!stopping_) {
    const absl::Time now = clock_->Now();
    if (wake_at_ == absl::InfiniteFuture()) {
      timer_wake_.Wait(mu_);
    } else if (wake_at_ > now) {
      timer_wake_.WaitFor(mu_, wake_at_ - now);
    } else {
      wake_at_ = absl::InfiniteFuture();
      mu_.Unlock();
      Pump();
      mu_.Lock();
    }
  }
  mu_.Unlock();
}

}  // namespace normd
