// Caches the prepared parameters of sessions, so that a call to a session converts nothing.
// In the path: PrepareTask asks the cache once per call to a session. The key is uid, parameters_version and the plan's
// parameter order: new parameters get a new key, and the least recently used entries are dropped first.
// Ownership: returned parameters are shared and immutable, and stay valid after the cache drops them.
// Threads: safe from any thread.
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

// Converts `parameters` to the order of `plan` and prepares them for every device; null if there are none.
// REQUIRES: CheckParameters(plan, parameters) is ok.
std::shared_ptr<const PreparedParameters> PrepareParameters(const DeviceScheduler& scheduler, const NormSpec& spec,
                                                            const NormPlan& plan, const ParameterViews& parameters);

// Upper bound on the bytes that PrepareParameters allocates for `parameters`.
int64_t BytesToPrepare(const NormPlan& plan, const ParameterViews& parameters);

class ParameterCache {
 public:
  // Borrows `scheduler`, which must outlive the cache. Holds at most `max_bytes`; the newest entry stays even if it
  // alone takes more.
  ParameterCache(const DeviceScheduler* scheduler, int64_t max_bytes);

  // The parameters of `session`, prepared for `plan`; null if it has none. REQUIRES: as PrepareParameters.
  std::shared_ptr<const PreparedParameters> Get(const Session& session, const NormPlan& plan);

  int64_t bytes() const;

 private:
  // Most sessions have one order for all calls. Orders differ if axes count from the front and the rank of x varies, or
  // if parameters are flat and the extents vary.
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
