// The load on a session store: BatchNorm steps with step ids, one client a session, a fixed number in flight. One
// thread of its own issues them, as an RPC thread would: a callback of the store only counts and wakes that thread.
// Threads: one calls; the store's callbacks come on any.
#ifndef NORMD_TESTS_BENCH_STORE_TRAINER_H_
#define NORMD_TESTS_BENCH_STORE_TRAINER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/session/session_store.h"

namespace normd::bench {

// What one measured round came to.
struct Round {
  double updates_per_s = 0;
  double group = 0;  // updates in a transaction
  double p50_micros = 0, p99_micros = 0;
};

// The first `count` numbers in an order that has nothing to do with the order of rows; the same at every call.
std::vector<size_t> ShuffledOrder(int64_t count);

class Trainer {
 public:
  // Borrows `store`.
  Trainer(SessionStore* store, int64_t sessions, int64_t channels);

  // Makes the sessions and fills their replay windows: from here on a row keeps its size.
  void Prepare();

  // Steps over the first `sessions` sessions in ShuffledOrder, again and again, `in_flight` at a time.
  Round Run(int64_t sessions, int64_t in_flight, absl::Duration duration);

  const std::vector<std::string>& ids() const { return ids_; }

 private:
  StateUpdate NextStep(size_t session);
  // Until `count` steps were issued or `end` has come.
  std::vector<float> Train(const std::vector<size_t>& order, int64_t in_flight, int64_t count, absl::Time end);

  SessionStore* const store_;
  const int64_t channels_;
  std::vector<std::string> ids_;
  std::vector<uint64_t> sequences_;
  std::vector<Moments> batches_;  // what batches of real data might have: all different
  size_t steps_ = 0;
};

// A session as a training client creates it.
Session NewBatchNormSession(std::string id, int64_t channels);
// "session-0000042"
std::string SessionId(int64_t number);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_STORE_TRAINER_H_
