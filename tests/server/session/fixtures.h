// What the session tests share: specs, moments, a clock that stands still, and calls that wait for Done.
#ifndef NORMD_TESTS_SERVER_SESSION_FIXTURES_H_
#define NORMD_TESTS_SERVER_SESSION_FIXTURES_H_

#include <atomic>
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

inline NormSpec BatchNormSpec(RunningSpec running = {}) {
  NormSpec spec;
  spec.method = Method::kBatchNorm;
  spec.layout = Layout::kChannelsFirst;
  spec.running = running;
  return spec;
}

inline NormSpec PowerNormSpec(int64_t warmup_iters) {
  NormSpec spec;
  spec.method = Method::kPowerNorm;
  spec.warmup_iters = warmup_iters;
  return spec;
}

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
  return {
      .id = std::move(id), .epoch = {}, .moments = std::move(moments), .step = std::move(step), .expected_version = {}};
}

// The result that `call(done)` hands to done. The memory store calls it before returning.
template <typename T, typename Call>
absl::StatusOr<T> Wait(Call call) {
  std::optional<absl::StatusOr<T>> result;
  int calls = 0;
  call([&](absl::StatusOr<T> r) {
    result = std::move(r);
    ++calls;
  });
  EXPECT_EQ(calls, 1) << "Done must run exactly once";
  return *std::move(result);
}

inline absl::StatusOr<CommitResult> Commit(SessionStore& store, StateUpdate update) {
  return Wait<CommitResult>([&](auto done) { store.Commit(std::move(update), std::move(done)); });
}

inline absl::StatusOr<SessionPtr> Create(SessionStore& store, Session session) {
  return Wait<SessionPtr>([&](auto done) { store.Create(std::move(session), std::move(done)); });
}

inline absl::StatusOr<SessionPtr> Import(SessionStore& store, std::string id, std::string record) {
  return Wait<SessionPtr>([&](auto done) { store.Import(std::move(id), std::move(record), std::move(done)); });
}

}  // namespace normd::session_test

#endif  // NORMD_TESTS_SERVER_SESSION_FIXTURES_H_
