// The set of existing streams, with which a server waits for the last one, watches their progress, and ends their
// reading in a drain.
// In the path: beside every stream, from its making to its end.
// Ownership: must outlive all streams, which it does not own. Threads: safe from any thread.
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

  // Collect finds the stream from Add until Remove, and WaitForNone waits for it until Leave. REQUIRES: the stream is
  // fully constructed and owned by a shared_ptr.
  Place Add(Stream* stream);
  void Remove(Place place);
  void Leave();

  // Calls Leave on destruction. A stream's first member is one, so that Leave comes after all others are destroyed.
  class LeaveAtEnd {
   public:
    explicit LeaveAtEnd(LiveStreams* live) : live_(live) {}
    ~LeaveAtEnd() { live_->Leave(); }
    LeaveAtEnd(const LeaveAtEnd&) = delete;
    LeaveAtEnd& operator=(const LeaveAtEnd&) = delete;

   private:
    LiveStreams* const live_;
  };

  // The number of streams whose call has arrived and is not over. The other streams still wait for a call.
  void CallArrived() { calls_.fetch_add(1, std::memory_order_relaxed); }
  void CallOver();
  int calls() const { return calls_.load(std::memory_order_relaxed); }

  // Returns the streams for which `wanted` is true. `wanted` runs with a lock held and must not lock anything.
  std::vector<std::shared_ptr<Stream>> Collect(const std::function<bool(const Stream&)>& wanted);

  // Waits until no call is left, or for `limit`. Returns whether none is left.
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
