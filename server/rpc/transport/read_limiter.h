// Who waits with a message until there is room for it. Reading lets a whole message in, so what has not been read waits
// in the client. Of a message that was announced the size is known: its call waits a moment rather than be refused and
// sent again. Of others it is guessed from those of the same connection before them, and a guess delays and never
// refuses.
// In the path: at a call's headers, before its message is asked for. Threads: safe from any thread; the callbacks run
// with no lock held, on the thread that made room.
#ifndef NORMD_SERVER_RPC_TRANSPORT_READ_LIMITER_H_
#define NORMD_SERVER_RPC_TRANSPORT_READ_LIMITER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/rpc/transport/admission.h"
#include "server/rpc/transport/connection.h"

namespace normd::rpc {

class ReadLimiter {
 public:
  // A message is being read; its room is given back on destruction.
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

  // For announced messages only.
  struct Patience {
    absl::Duration longest;         // how long one waits
    int64_t max_message_bytes = 0;  // of all that wait together: some of it has come and lies in gRPC
  };

  // The admission must outlive it, and have no other listener for released bytes.
  ReadLimiter(Admission* admission, const Patience& patience);

  // Runs `start` when there is room for about `bytes`: at once where they are few, or where `connection` reads nothing
  // else, so that nobody waits for ever behind others.
  void Enter(const Connection& connection, int64_t bytes, Start start);

  // For a message of `message_bytes` for which `bytes` must be held: runs `start` when there is room, in the order of
  // arrival. Also, with an empty ticket and perhaps without room, when it has waited long enough, and at once where too
  // many wait: so `start` makes the reservation and refuses the call if it fails.
  void EnterAnnounced(int64_t bytes, int64_t message_bytes, Start start);

  // Runs what has waited long enough. To be called at intervals.
  void Expire(absl::Time now);

  // Lets everybody in, now and from now on: the server shuts down.
  void Open();

 private:
  struct Waiting {
    int64_t bytes = 0;
    int64_t announced_bytes = 0;
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
  Mutex mu_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  int64_t announced_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // of those that wait
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_READ_LIMITER_H_
