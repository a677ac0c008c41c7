#include "server/engine/parameter_cache.h"

#include <memory>
#include <utility>

namespace normd {

namespace {

// Estimated bytes of an entry, its key and its places in the cache's list and map.
constexpr int64_t kEntryOverheadBytes = 256;

}  // namespace

int64_t BytesToPrepare(const NormPlan& plan, const ParameterViews& parameters) {
  if (plan.elements == 0) return 0;  // there is nothing to apply parameters to
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
    : scheduler_(scheduler), recent_(max_bytes) {}

std::shared_ptr<const PreparedParameters> ParameterCache::Get(const Session& session, const NormPlan& plan) {
  const OwnedParameters& owned = *session.parameters;
  if (!owned.weight.has_value() && !owned.bias.has_value()) return nullptr;
  Key key = {session.uid, session.parameters_version, plan.parameter_order};
  if (std::shared_ptr<const PreparedParameters> found = Find(key); found != nullptr) return found;

  ParameterViews views;
  if (owned.weight.has_value()) views.weight = owned.weight->View();
  if (owned.bias.has_value()) views.bias = owned.bias->View();
  std::shared_ptr<const PreparedParameters> parameters = PrepareParameters(*scheduler_, session.spec, plan, views);
  Insert(std::move(key), parameters);
  return parameters;
}

int64_t ParameterCache::bytes() const {
  MutexLock lock(mu_);
  return recent_.cost();
}

std::shared_ptr<const PreparedParameters> ParameterCache::Find(const Key& key) {
  MutexLock lock(mu_);
  const std::shared_ptr<const PreparedParameters>* const found = recent_.Find(key);
  return found == nullptr ? nullptr : *found;
}

void ParameterCache::Insert(Key key, std::shared_ptr<const PreparedParameters> parameters) {
  const int64_t bytes = parameters->host().size_bytes() + kEntryOverheadBytes;
  Recent::Entries dropped;  // destroyed after the lock is released
  MutexLock lock(mu_);
  if (recent_.Find(key) != nullptr) return;  // another thread was first
  dropped = recent_.Insert(std::move(key), &parameters, bytes);
}

}  // namespace normd
