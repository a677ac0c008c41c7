// The streams that exist: a server waits for the last one, looks at how they get on, and ends their reading in a drain.
// In the path: beside every stream from its making to its end. Must outlive them. Threads: safe from any thread.
#ifndef NORMD_SERVER_RPC_TRANSPORT_LIVE_STREAMS_H_
#define NORMD_SERVER_RPC_TRANSPORT_LIVE_STREAMS_H_

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace normd::rpc {

class Stream;

class LiveStreams {
 public:
  using Place = std::list<Stream*>::iterator;

  // From now on Collect finds it, and after Remove no more; it exists until Leave. REQUIRES: a shared_ptr owns the
  // stream, which is whole.
  Place Add(Stream* stream);
  void Remove(Place place);
  void Leave();

  // Leaves when the last member of a stream is gone.
  class LeaveAtEnd {
   public:
    explicit LeaveAtEnd(LiveStreams* live) : live_(live) {}
    ~LeaveAtEnd() { live_->Leave(); }
    LeaveAtEnd(const LeaveAtEnd&) = delete;
    LeaveAtEnd& operator=(const LeaveAtEnd&) = delete;

   private:
    LiveStreams* const live_;
  };

  // Calls that have arrived and are not over; the others wait for one to arrive.
  void CallArrived() { calls_.fetch_add(1, std::memory_order_relaxed); }
  void CallOver();
  int calls() const { return calls_.load(std::memory_order_relaxed); }

  // Those of which `wanted` says so. It runs with a lock held, and must take none.
  std::vector<std::shared_ptr<Stream>> Collect(const std::function<bool(const Stream&)>& wanted);

  // Whether no call was left within `limit`.
  bool WaitForNoCalls(absl::Duration limit);
  // Waits until no stream exists.
  void WaitForNone();

 private:
  std::atomic<int> calls_{0};
  Mutex mu_;
  CondVar changed_;
  int present_ ABSL_GUARDED_BY(mu_) = 0;
  std::list<Stream*> streams_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_LIVE_STREAMS_H_
