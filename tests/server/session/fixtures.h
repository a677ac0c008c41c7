// What the session tests share: specs, moments, a clock that stands still, and calls that wait for Done.
#ifndef NORMD_TESTS_SERVER_SESSION_FIXTURES_H_
#define NORMD_TESTS_SERVER_SESSION_FIXTURES_H_

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/session/session_store.h"

namespace normd::session_test {

// A clock that a test moves.
class ManualClock : public Clock {
 public:
  absl::Time Now() override { return absl::FromUnixSeconds(1'700'000'000) + absl::Nanoseconds(nanos_.load()); }
  void Advance(absl::Duration by) { nanos_ += absl::ToInt64Nanoseconds(by); }

 private:
  std::atomic<int64_t> nanos_{0};
};

inline NormSpec BatchSpec(const RunningSpec& running = {}) {
  return {.attributes = BatchNormSpec{.layout = Layout::kChannelsFirst, .running = running}};
}

// BatchNorm that counts samples; the wire's default variance.
inline NormSpec CountingSpec(const SampleSpec& samples = {}, RunningVariance variance = RunningVariance::kBiased) {
  return BatchSpec({.weighting = Weighting::kSamples, .samples = samples, .variance = variance});
}

inline NormSpec PowerSpec(int64_t warmup_iters) { return {.attributes = PowerNormSpec{.warmup_iters = warmup_iters}}; }

inline Session NewSession(std::string id, const NormSpec& spec, int64_t channels) {
  Session session;
  session.id = std::move(id);
  session.spec = spec;
  session.num_channels = channels;
  return session;
}

// Channels that all saw `values`, channel c shifted by c.
inline Moments MomentsOf(const std::vector<double>& values, int64_t channels) {
  Moments moments;
  for (int64_t c = 0; c < channels; ++c) {
    Moment m = {.count = static_cast<double>(values.size()), .mean = 0, .m2 = 0};
    for (const double v : values) m.mean += v / m.count;
    for (const double v : values) m.m2 += (v - m.mean) * (v - m.mean);
    m.mean += static_cast<double>(c);
    moments.push_back(m);
  }
  return moments;
}

inline StateUpdate Step(std::string id, Moments moments, std::optional<StepId> step = std::nullopt) {
  return {.id = std::move(id),
          .uid = {},
          .moments = std::move(moments),
          .step = std::move(step),
          .expected_version = {},
          .moments_hash = {},
          .cancelled = {}};
}

template <typename T>
using Answer = std::future<absl::StatusOr<T>>;

// Calls `call(done)`, and returns what it will hand to done, whenever that comes.
template <typename T, typename Call>
Answer<T> Start(Call call) {
  // Shared: a store that calls twice must not find it gone.
  struct Done {
    std::promise<absl::StatusOr<T>> promise;
    std::atomic<int> calls{0};
  };
  const auto done = std::make_shared<Done>();
  Answer<T> answer = done->promise.get_future();
  call([done](absl::StatusOr<T> r) {
    const int calls = ++done->calls;
    EXPECT_EQ(calls, 1) << "Done must run exactly once";
    if (calls == 1) done->promise.set_value(std::move(r));
  });
  return answer;
}

// The result that `call(done)` hands to done, whenever it comes.
template <typename T, typename Call>
absl::StatusOr<T> Wait(Call call) {
  return Start<T>(std::move(call)).get();
}

inline Answer<CommitResult> StartCommit(SessionStore& store, StateUpdate update) {
  return Start<CommitResult>([&](auto done) { store.Commit(std::move(update), std::move(done)); });
}

inline absl::StatusOr<SessionPtr> Get(SessionStore& store, std::string id,
                                      absl::Duration max_staleness = absl::ZeroDuration()) {
  return Wait<SessionPtr>([&](auto done) { store.Get(std::move(id), max_staleness, std::move(done)); });
}

inline absl::StatusOr<ListPage> ListOf(SessionStore& store, ListQuery query) {
  return Wait<ListPage>([&](auto done) { store.List(std::move(query), std::move(done)); });
}

inline absl::StatusOr<std::vector<SessionPtr>> List(SessionStore& store, ListQuery query) {
  absl::StatusOr<ListPage> page = ListOf(store, std::move(query));
  if (!page.ok()) return page.status();
  return std::move(page->sessions);
}

inline absl::StatusOr<std::string> Export(SessionStore& store, std::string id) {
  return Wait<std::string>([&](auto done) { store.Export(std::move(id), /*reserve=*/nullptr, std::move(done)); });
}

inline absl::StatusOr<SessionPtr> Update(SessionStore& store, std::string id, SessionPatch patch) {
  return Wait<SessionPtr>([&](auto done) { store.Update(std::move(id), std::move(patch), std::move(done)); });
}

inline absl::StatusOr<SessionPtr> Reset(SessionStore& store, std::string id,
                                        std::optional<uint64_t> version = std::nullopt) {
  return Wait<SessionPtr>([&](auto done) { store.Reset(std::move(id), version, std::move(done)); });
}

inline absl::StatusOr<SessionPtr> Delete(SessionStore& store, std::string id,
                                         std::optional<uint64_t> version = std::nullopt) {
  return Wait<SessionPtr>([&](auto done) { store.Delete(std::move(id), version, std::move(done)); });
}

inline absl::StatusOr<CommitResult> Commit(SessionStore& store, StateUpdate update) {
  return StartCommit(store, std::move(update)).get();
}

inline absl::StatusOr<SessionPtr> Create(SessionStore& store, Session session) {
  return Wait<SessionPtr>([&](auto done) { store.Create(std::move(session), std::move(done)); });
}

inline absl::StatusOr<SessionPtr> Import(SessionStore& store, std::string id, std::string record) {
  return Wait<SessionPtr>([&](auto done) { store.Import(std::move(id), std::move(record), std::move(done)); });
}

}  // namespace normd::session_test

#endif  // NORMD_TESTS_SERVER_SESSION_FIXTURES_H_
