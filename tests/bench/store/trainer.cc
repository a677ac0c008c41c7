#include "tests/bench/store/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "tests/bench/machine.h"
#include "tests/bench/report.h"
#include "tests/bench/store/in_flight.h"
#include "tests/bench/store/or_die.h"

namespace normd::bench {

namespace {

// Counters start here, three bytes long in a record, so that they need no fourth while the bench runs: rows of one
// size, which the bare loop writes, too.
constexpr uint64_t kFirstCount = 1 << 20;
constexpr int64_t kPrepareInFlight = 256;

Moments RandomMoments(int64_t channels, std::mt19937_64* random) {
  std::normal_distribution<double> normal;
  Moments moments(static_cast<size_t>(channels));
  for (Moment& m : moments) m = {.count = 512, .mean = normal(*random), .m2 = 512 * (0.5 + std::abs(normal(*random)))};
  return moments;
}

}  // namespace

std::string SessionId(int64_t number) {
  char text[32];
  std::snprintf(text, sizeof(text), "session-%07lld", static_cast<long long>(number));
  return text;
}

Session NewBatchNormSession(std::string id, int64_t channels) {
  Session session;
  session.id = std::move(id);
  session.version = kFirstCount;
  session.spec.attributes = BatchNormSpec{.layout = Layout::kChannelsFirst};
  session.num_channels = channels;
  session.state.num_batches = kFirstCount;
  return session;
}

std::vector<size_t> ShuffledOrder(int64_t count) {
  std::vector<size_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937_64(7));
  return order;
}

Trainer::Trainer(SessionStore* store, int64_t sessions, int64_t channels)
    : store_(store), channels_(channels), sequences_(static_cast<size_t>(sessions), kFirstCount) {
  for (int64_t i = 0; i < sessions; ++i) ids_.push_back(SessionId(i));
  std::mt19937_64 random(11);
  for (int i = 0; i < 7; ++i) batches_.push_back(RandomMoments(channels, &random));
}

void Trainer::Prepare() {
  BatchExecution flight(kPrepareInFlight);
  size_t made = 0;
  while (made < ids_.size()) {
    int64_t free = flight.Take();
    for (; free > 0 && made < ids_.size(); --free, ++made) {
      store_->Create(NewBatchNormSession(ids_[made], channels_),
                     [&flight, start = SteadyNow()](const absl::StatusOr<SessionPtr>& created) {
                       OrDie(created.status());
                       flight.Finish(start);
                     });
    }
    flight.Return(free);
  }
  flight.Land();
  const auto sessions = static_cast<int64_t>(ids_.size());
  const int64_t steps = (store_->limits().replay_window + 1) * sessions;
  Train(ShuffledOrder(sessions), kPrepareInFlight, steps, absl::InfiniteFuture());
}

Round Trainer::Run(int64_t sessions, int64_t in_flight, absl::Duration duration) {
  const std::vector<size_t> order = ShuffledOrder(sessions);
  const int64_t groups = store_->stats().groups;
  const absl::Time start = SteadyNow();
  const std::vector<float> micros = Train(order, in_flight, std::numeric_limits<int64_t>::max(), start + duration);
  const double seconds = absl::ToDoubleSeconds(SteadyNow() - start);
  const auto updates = static_cast<double>(micros.size());
  const auto written = static_cast<double>(store_->stats().groups - groups);
  const std::vector<double> latencies(micros.begin(), micros.end());
  return {.updates_per_s = updates / seconds,
          .group = written > 0 ? updates / written : 0,
          .p50_micros = Percentile(latencies, 0.5),
          .p99_micros = Percentile(latencies, 0.99)};
}

std::vector<float> Trainer::Train(const std::vector<size_t>& order, int64_t in_flight, int64_t count, absl::Time end) {
  BatchExecution flight(in_flight);
  int64_t issued = 0;
  while (issued < count && SteadyNow() < end) {
    int64_t free = flight.Take();
    for (; free > 0 && issued < count; --free, ++issued) {
      StateUpdate step = NextStep(order[static_cast<size_t>(issued) % order.size()]);
      store_->Commit(std::move(step), [&flight, start = SteadyNow()](const absl::StatusOr<CommitResult>& result) {
        OrDie(result.status());
        if (!result->applied || result->replayed) Die("a step was not applied");
        flight.Finish(start);
      });
    }
    flight.Return(free);
  }
  return flight.Land();
}

StateUpdate Trainer::NextStep(size_t session) {
  StateUpdate update;
  update.id = ids_[session];
  update.moments = batches_[steps_++ % batches_.size()];
  update.step = StepId{"trainer-0", ++sequences_[session]};
  return update;
}

}  // namespace normd::bench
