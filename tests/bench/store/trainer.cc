#include "tests/bench/store/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "server/base/mutex.h"
#include "tests/bench/machine.h"
#include "tests/bench/or_die.h"

namespace normd::bench {

namespace {

// Counters start here, three bytes long in a record, so that they need no fourth while the bench runs: rows of one
// size, which the bare loop writes, too.
constexpr uint64_t kFirstCount = 1 << 20;
constexpr int64_t kSetUpInFlight = 256;

// A fixed number of calls on their way at any time. Threads: one begins calls and waits, any thread ends them.
class ClosedLoop {
 public:
  explicit ClosedLoop(int64_t limit) : limit_(limit) {}

  // Waits until a call may begin.
  void Begin() {
    MutexLock lock(mu_);
    WaitUntilAtMost(limit_ - 1);
    ++in_flight_;
  }
  void End() {
    MutexLock lock(mu_);
    --in_flight_;
    if (waiting_) ended_.Signal();
  }
  void WaitForAll() {
    MutexLock lock(mu_);
    WaitUntilAtMost(0);
  }

 private:
  void WaitUntilAtMost(int64_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    while (in_flight_ > count) {
      waiting_ = true;
      ended_.Wait(mu_);
      waiting_ = false;
    }
  }

  const int64_t limit_;
  Mutex mu_;
  CondVar ended_;
  int64_t in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;
};

Moments RandomMoments(int64_t channels, std::mt19937_64* random) {
  std::normal_distribution<double> normal;
  Moments moments(static_cast<size_t>(channels));
  for (Moment& m : moments) m = {.count = 512, .mean = normal(*random), .m2 = 512 * (0.5 + std::abs(normal(*random)))};
  return moments;
}

}  // namespace

std::string SessionId(int64_t number) { return absl::StrFormat("session-%07d", number); }

void CreateSessions(SessionStore* store, int64_t from, int64_t to, int64_t channels) {
  Session session;
  session.version = kFirstCount;
  session.spec.attributes = BatchNormSpec{.layout = Layout::kChannelsFirst};
  session.num_channels = channels;
  session.state.num_batches = kFirstCount;
  ClosedLoop loop(kSetUpInFlight);
  for (; from < to; ++from) {
    session.id = SessionId(from);
    loop.Begin();
    store->Create(session, [&loop](const absl::StatusOr<SessionPtr>& created) {
      OrDie(created.status());
      loop.End();
    });
  }
  loop.WaitForAll();
}

std::vector<size_t> ShuffledOrder(int64_t count) {
  std::vector<size_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937_64(7));
  return order;
}

Trainer::Trainer(SessionStore* store, int64_t sessions, int64_t channels)
    : store_(store), sequences_(static_cast<size_t>(sessions), kFirstCount) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 7; ++i) batches_.push_back(RandomMoments(channels, &random));
  CreateSessions(store, 0, sessions, channels);
  Train(sessions, kSetUpInFlight, (store->limits().replay_window + 1) * sessions, absl::InfiniteFuture());
}

double Trainer::Run(int64_t sessions, int64_t in_flight, absl::Duration duration) {
  const absl::Time start = SteadyNow();
  const int64_t steps = Train(sessions, in_flight, std::numeric_limits<int64_t>::max(), start + duration);
  return static_cast<double>(steps) / absl::ToDoubleSeconds(SteadyNow() - start);
}

int64_t Trainer::Train(int64_t sessions, int64_t in_flight, int64_t count, absl::Time end) {
  const std::vector<size_t> order = ShuffledOrder(sessions);
  ClosedLoop loop(in_flight);
  int64_t issued = 0;
  for (; issued < count && SteadyNow() < end; ++issued) {
    StateUpdate step = NextStep(order[static_cast<size_t>(issued) % order.size()]);
    loop.Begin();
    store_->Commit(std::move(step), [&loop](const absl::StatusOr<CommitResult>& result) {
      OrDie(result.status());
      if (!result->applied || result->replayed) Die("a step was not applied");
      loop.End();
    });
  }
  loop.WaitForAll();
  return issued;
}

StateUpdate Trainer::NextStep(size_t session) {
  StateUpdate update;
  update.id = SessionId(static_cast<int64_t>(session));
  update.moments = batches_[steps_++ % batches_.size()];
  update.step = StepId{"trainer-0", ++sequences_[session]};
  return update;
}

}  // namespace normd::bench
