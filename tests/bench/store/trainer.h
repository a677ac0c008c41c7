// The load on a session store: BatchNorm steps with step ids, one client a session, a fixed number in flight. One
// thread of its own issues them, as an RPC thread would.
// Threads: one calls; the store's callbacks come on any.
#ifndef NORMD_TESTS_BENCH_STORE_TRAINER_H_
#define NORMD_TESTS_BENCH_STORE_TRAINER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/session/session_store.h"

namespace normd::bench {

// "session-0000042"
std::string SessionId(int64_t number);
// Creates BatchNorm sessions of the numbers in [from, to), as a training client creates them.
void CreateSessions(SessionStore* store, int64_t from, int64_t to, int64_t channels);

// The first `count` numbers in an order that has nothing to do with the order of rows; the same at every call.
std::vector<size_t> ShuffledOrder(int64_t count);

class Trainer {
 public:
  // Creates the sessions and fills their replay windows: from here on a row keeps its size. Borrows `store`.
  Trainer(SessionStore* store, int64_t sessions, int64_t channels);

  // Steps over the first `sessions` sessions in ShuffledOrder, again and again, `in_flight` at a time. Returns steps a
  // second.
  double Run(int64_t sessions, int64_t in_flight, absl::Duration duration);

 private:
  // Steps until `count` were issued or `end` has come, and waits for all; returns how many were issued.
  int64_t Train(int64_t sessions, int64_t in_flight, int64_t count, absl::Time end);
  StateUpdate NextStep(size_t session);

  SessionStore* const store_;
  std::vector<uint64_t> sequences_;  // by session
  std::vector<Moments> batches_;     // what batches of real data might have: all different
  size_t steps_ = 0;
};

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_STORE_TRAINER_H_
