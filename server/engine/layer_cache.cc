#include "server/engine/layer_cache.h"

#include <utility>
#include <vector>

#include "server/base/status_macros.h"

namespace normd {

namespace {

// Counted for the entry, its key and its places in list and map.
constexpr int64_t kEntryOverheadBytes = 256;

int64_t SizeOfLayer(const Layer& layer) {
  const size_t wide = layer.weight.size() + layer.bias.size();
  const size_t narrow = layer.weight32.size() + layer.bias32.size();
  return static_cast<int64_t>(wide * sizeof(double) + narrow * sizeof(float));
}

}  // namespace

int64_t BytesOfLayer(const NormPlan& plan, const ParameterViews& parameters) {
  if (plan.elements == 0) return 0;  // nothing to apply parameters to
  constexpr int64_t kBytesAnElement = sizeof(double) + sizeof(float);
  int64_t bytes = 0;
  for (const TensorView* view : {&parameters.weight, &parameters.bias}) {
    if (view->present()) bytes += kBytesAnElement * ElementCount(view->shape);
  }
  return bytes;
}

absl::StatusOr<std::shared_ptr<const Layer>> PrepareLayer(const Backend& backend, const NormSpec& spec,
                                                          const NormPlan& plan, const ParameterViews& parameters) {
  if (!parameters.weight.present() && !parameters.bias.present()) return nullptr;
  ParameterViews ordered = parameters;
  ordered.order = plan.parameter_order;
  return backend.Prepare(ordered, spec.weight_offset);
}

LayerCache::LayerCache(const Backend* backend, int64_t max_bytes) : backend_(backend), max_bytes_(max_bytes) {}

absl::StatusOr<std::shared_ptr<const Layer>> LayerCache::Get(const Session& session, const NormPlan& plan) {
  const OwnedParameters& owned = *session.parameters;
  if (!owned.weight.has_value() && !owned.bias.has_value()) return nullptr;
  Key key = {session.epoch, session.parameters_version, plan.parameter_order};
  if (std::shared_ptr<const Layer> layer = Find(key); layer != nullptr) return layer;

  ParameterViews views;
  if (owned.weight.has_value()) views.weight = owned.weight->View();
  if (owned.bias.has_value()) views.bias = owned.bias->View();
  NORMD_ASSIGN_OR_RETURN(std::shared_ptr<const Layer> layer, PrepareLayer(*backend_, session.spec, plan, views));
  Insert({std::move(key), layer, SizeOfLayer(*layer) + kEntryOverheadBytes});
  return layer;
}

int64_t LayerCache::bytes() const {
  MutexLock lock(mu_);
  return bytes_;
}

std::shared_ptr<const Layer> LayerCache::Find(const Key& key) {
  MutexLock lock(mu_);
  const auto found = index_.find(key);
  if (found == index_.end()) return nullptr;
  recent_.splice(recent_.begin(), recent_, found->second);
  return found->second->layer;
}

void LayerCache::Insert(Entry entry) {
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
