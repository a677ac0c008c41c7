// Delays the reading of messages until there is room for them. Reading takes in a whole message; until then, the
// message waits in the client. A call that announced its message's size waits for a limited time, instead of being
// refused and having to send again. For other calls, the size is predicted from earlier messages of the same
// connection; a prediction delays a call but never refuses it.
// In the path: at a call's headers, before its message is read.
// Threads: safe from any thread. Callbacks run with no lock held, on the calling thread or on the one that made room.
#ifndef NORMD_SERVER_RPC_EDGE_READ_LIMITER_H_
#define NORMD_SERVER_RPC_EDGE_READ_LIMITER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/base/wait_stats.h"
#include "server/rpc/edge/admission.h"
#include "server/rpc/edge/connection.h"

namespace normd::rpc {

class ReadLimiter {
 public:
  // Bytes reserved while a message is being read; released on destruction.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(ReadLimiter* limiter, int64_t bytes) : limiter_(limiter), bytes_(bytes) {}
    Ticket(Ticket&& other) noexcept
        : limiter_(std::exchange(other.limiter_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Ticket& operator=(Ticket&& other) noexcept {
      std::swap(limiter_, other.limiter_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Ticket() {
      if (limiter_ != nullptr) limiter_->Leave(bytes_);
    }

   private:
    ReadLimiter* limiter_ = nullptr;
    int64_t bytes_ = 0;
  };
  using Start = absl::AnyInvocable<void(Ticket)>;

  // How long announced messages wait.
  struct Patience {
    absl::Duration longest;         // of one message
    int64_t max_message_bytes = 0;  // limit on all waiting messages together, as far as the transport may hold them
    int64_t most_held_bytes = std::numeric_limits<int64_t>::max();  // what the transport may hold of one that waits
  };

  // The admission must outlive the limiter, and must have no other listener for released bytes.
  ReadLimiter(Admission* admission, const Patience& patience);

  // Runs `start` when there is room for about `bytes`. Runs it at once where they are few, or where `connection` reads
  // nothing else, so that no connection waits for ever behind others.
  void Enter(const Connection& connection, int64_t bytes, Start start);

  // Runs `start` for a message of `message_bytes`, for which `bytes` must be reserved, when there is room, in the order
  // of arrival. Also runs `start`, with an empty ticket and perhaps without room, when the call has waited for
  // `Patience::longest`, or at once when too many bytes wait. So `start` must make the reservation, and refuse the call
  // if that fails.
  void EnterAnnounced(int64_t bytes, int64_t message_bytes, Start start);

  // Runs the calls that have waited long enough. Call this at intervals.
  void Expire(absl::Time now);

  // The calls that wait now.
  WaitStats wait_stats() const;

  // Runs all waiting calls, and from now on every call at once, because the server shuts down.
  void Open();

 private:
  struct Waiting {
    int64_t bytes = 0;
    int64_t transport_bytes = 0;  // what the transport may hold of the message
    absl::Time since;
    absl::Time until;
    Start start;
  };

  bool Fits(int64_t bytes) const;
  void Push(Waiting call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteRemoved(const Waiting& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Leave(int64_t bytes);
  void Wake();

  Admission* const admission_;
  const Patience patience_;
  std::atomic<int64_t> reading_bytes_{0};
  std::atomic<int> waiting_count_{0};
  mutable Mutex mu_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);  // in order of arrival
  int64_t transport_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // of all waiting calls
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_READ_LIMITER_H_
