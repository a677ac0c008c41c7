// Prepared parameters of sessions, so that a call to a session converts nothing.
// In the path: the engine asks it once per call to a session. Keyed by epoch, parameters_version and the order of the
// plan: new parameters are a new key, and what is no longer asked for falls out, least recently used first. Threads:
// safe from any thread.
// What it hands out is shared and immutable.
#ifndef NORMD_SERVER_ENGINE_PARAMETER_CACHE_H_
#define NORMD_SERVER_ENGINE_PARAMETER_CACHE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "kernels/parameters.h"
#include "kernels/plan.h"
#include "server/base/lru.h"
#include "server/base/mutex.h"
#include "server/schedule/device_scheduler.h"
#include "server/session/session_store.h"

namespace normd {

// Converts and prepares `parameters` for `plan`; null where there are none.
// REQUIRES: CheckParameters(plan, parameters) is ok.
std::shared_ptr<const PreparedParameters> PrepareParameters(const DeviceScheduler& scheduler, const NormSpec& spec,
                                                            const NormPlan& plan, const ParameterViews& parameters);

// What PrepareParameters allocates for that, at most.
int64_t BytesToPrepare(const NormPlan& plan, const ParameterViews& parameters);

class ParameterCache {
 public:
  // Borrows `scheduler`. Holds at most `max_bytes` of converted parameters, and at most one session's over that.
  ParameterCache(const DeviceScheduler* scheduler, int64_t max_bytes);

  // The parameters of `session`, prepared for `plan`; null where it has none. REQUIRES: as PrepareParameters.
  std::shared_ptr<const PreparedParameters> Get(const Session& session, const NormPlan& plan);

  int64_t bytes() const;

 private:
  // The order is the same for every call to most sessions; axes that count from the front may differ with x's rank, and
  // extents where parameters are flat.
  struct Key {
    std::string uid;
    uint64_t parameters_version;
    ParameterOrder order;

    bool operator<(const Key& other) const {
      return std::tie(uid, parameters_version, order.extents, order.strides) <
             std::tie(other.uid, other.parameters_version, other.order.extents, other.order.strides);
    }
  };
  using Recent = Lru<Key, std::shared_ptr<const PreparedParameters>>;

  std::shared_ptr<const PreparedParameters> Find(const Key& key);
  void Insert(Key key, std::shared_ptr<const PreparedParameters> parameters);

  const DeviceScheduler* const scheduler_;
  mutable Mutex mu_;
  Recent recent_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_PARAMETER_CACHE_H_
