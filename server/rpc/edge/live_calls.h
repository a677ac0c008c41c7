// The set of existing calls, with which a server waits for the last one, watches their progress, and ends their
// reading in a drain.
// In the path: beside every call, from its making to its end.
// Ownership: must outlive all calls, which it does not own. Threads: safe from any thread. The calls are kept in
// several parts with a lock each, so that the queues' threads do not wait for each other.
#ifndef NORMD_SERVER_RPC_EDGE_LIVE_CALLS_H_
#define NORMD_SERVER_RPC_EDGE_LIVE_CALLS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace normd::rpc {

class RpcCall;

class LiveCalls {
 public:
  using Place = std::list<RpcCall*>::iterator;

 private:
  struct alignas(64) Part {
    Mutex mu;
    CondVar changed;
    int present ABSL_GUARDED_BY(mu) = 0;
    std::list<RpcCall*> calls ABSL_GUARDED_BY(mu);
  };

 public:
  // WaitForNone waits for a call from the construction of its Presence to its destruction. A call's first member is
  // one, so that it is destroyed after all others. Collect finds the call from Add until Remove.
  class Presence {
   public:
    explicit Presence(LiveCalls* live);
    ~Presence();
    Presence(const Presence&) = delete;
    Presence& operator=(const Presence&) = delete;

    // REQUIRES: the call is fully constructed and owned by a shared_ptr.
    Place Add(RpcCall* call) const;
    void Remove(Place place) const;

   private:
    Part* const part_;
  };

  // The number of calls that have arrived and are not over. The others still wait for an RPC.
  void CallArrived() { calls_.fetch_add(1, std::memory_order_relaxed); }
  void CallOver();
  int calls() const { return calls_.load(std::memory_order_relaxed); }

  // Returns the calls for which `wanted` is true. `wanted` runs with a lock held and must not lock anything.
  std::vector<std::shared_ptr<RpcCall>> Collect(const std::function<bool(const RpcCall&)>& wanted);

  // Waits until no call is left, or for `limit`. Returns whether none is left.
  bool WaitForNoCalls(absl::Duration limit);
  // Waits until no call exists. REQUIRES: only calls that exist make new ones.
  void WaitForNone();

 private:
  static constexpr size_t kParts = 16;

  std::atomic<int> calls_{0};
  Mutex calls_mu_;
  CondVar no_calls_;
  std::array<Part, kParts> parts_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_LIVE_CALLS_H_
