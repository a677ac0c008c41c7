#include "server/engine/parameter_cache.h"

#include <memory>
#include <utility>

namespace normd {

namespace {

// Counted for the entry, its key and its places in list and map.
constexpr int64_t kEntryOverheadBytes = 256;

}  // namespace

int64_t BytesToPrepare(const NormPlan& plan, const ParameterViews& parameters) {
  if (plan.elements == 0) return 0;  // nothing to apply parameters to
  constexpr int64_t kBytesAnElement = sizeof(double) + sizeof(float);
  int64_t bytes = 0;
  for (const TensorView* view : {&parameters.weight, &parameters.bias}) {
    if (view->present()) bytes += kBytesAnElement * ElementCount(view->shape);
  }
  return bytes;
}

std::shared_ptr<const PreparedParameters> PrepareParameters(const DeviceScheduler& scheduler, const NormSpec& spec,
                                                            const NormPlan& plan, const ParameterViews& parameters) {
  if (!parameters.weight.present() && !parameters.bias.present()) return nullptr;
  ParameterViews ordered = parameters;
  ordered.order = plan.parameter_order;
  return scheduler.Prepare(std::make_shared<const HostParameters>(ConvertParameters(ordered, spec.weight_offset)));
}

ParameterCache::ParameterCache(const DeviceScheduler* scheduler, int64_t max_bytes)
    : scheduler_(scheduler), max_bytes_(max_bytes) {}

std::shared_ptr<const PreparedParameters> ParameterCache::Get(const Session& session, const NormPlan& plan) {
  const OwnedParameters& owned = *session.parameters;
  if (!owned.weight.has_value() && !owned.bias.has_value()) return nullptr;
  Key key = {session.epoch, session.parameters_version, plan.parameter_order};
  if (std::shared_ptr<const PreparedParameters> found = Find(key); found != nullptr) return found;

  ParameterViews views;
  if (owned.weight.has_value()) views.weight = owned.weight->View();
  if (owned.bias.has_value()) views.bias = owned.bias->View();
  std::shared_ptr<const PreparedParameters> parameters = PrepareParameters(*scheduler_, session.spec, plan, views);
  Insert({std::move(key), parameters, parameters->host().size_bytes() + kEntryOverheadBytes});
  return parameters;
}

int64_t ParameterCache::bytes() const {
  MutexLock lock(mu_);
  return bytes_;
}

std::shared_ptr<const PreparedParameters> ParameterCache::Find(const Key& key) {
  MutexLock lock(mu_);
  const auto found = index_.find(key);
  if (found == index_.end()) return nullptr;
  recent_.splice(recent_.begin(), recent_, found->second);
  return found->second->parameters;
}

void ParameterCache::Insert(Entry entry) {
  Recent dropped;  // freed without the lock
  MutexLock lock(mu_);
  if (index_.find(entry.key) != index_.end()) return;  // another thread was first
  bytes_ += entry.bytes;
  recent_.push_front(std::move(entry));
  index_.emplace(recent_.front().key, recent_.begin());
  while (bytes_ > max_bytes_ && recent_.size() > 1) {
    bytes_ -= recent_.back().bytes;
    index_.erase(recent_.back().key);
    dropped.splice(dropped.begin(), recent_, std::prev(recent_.end()));
  }
}

}  // namespace normd
