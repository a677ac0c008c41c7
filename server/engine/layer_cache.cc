#include "server/engine/layer_cache.h"

#include <utility>
#include <vector>

#include "server/base/status_macros.h"

namespace normd {

namespace {

// Counted for the entry, its key and its places in list and map.
constexpr int64_t kEntryOverheadBytes = 256;

bool NeedsOnes(const NormSpec& spec, bool has_weight) { return !has_weight && spec.weight_offset != 0; }

int64_t SizeOfLayer(const Layer& layer) {
  return static_cast<int64_t>((layer.weight.size() + layer.bias.size()) * sizeof(double));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Layer>> PrepareLayer(const Backend& backend, const NormSpec& spec,
                                                          const NormPlan& plan, const ParameterViews& parameters) {
  if (!NeedsOnes(spec, parameters.weight.present())) {
    if (!parameters.weight.present() && !parameters.bias.present()) return nullptr;
    return backend.Prepare(parameters, spec.weight_offset);
  }
  if (plan.parameter_length == 0) return nullptr;
  const std::vector<double> ones(static_cast<size_t>(plan.parameter_length), 1.0);
  ParameterViews views = parameters;
  views.weight = {.dtype = DType::kF64,
                  .shape = {plan.parameter_length},
                  .data = ones.data(),
                  .size_bytes = plan.parameter_length * SizeOf(DType::kF64)};
  return backend.Prepare(views, spec.weight_offset);
}

LayerCache::LayerCache(const Backend* backend, int64_t max_bytes) : backend_(backend), max_bytes_(max_bytes) {}

absl::StatusOr<std::shared_ptr<const Layer>> LayerCache::Get(const Session& session, const NormPlan& plan) {
  const OwnedParameters& owned = *session.parameters;
  const bool needs_ones = NeedsOnes(session.spec, owned.weight.has_value());
  if (!needs_ones && !owned.weight.has_value() && !owned.bias.has_value()) return nullptr;
  Key key = {session.epoch, session.parameters_version, needs_ones ? plan.parameter_length : 0};
  if (std::shared_ptr<const Layer> layer = Find(key); layer != nullptr) return layer;

  ParameterViews views;
  if (owned.weight.has_value()) views.weight = owned.weight->View();
  if (owned.bias.has_value()) views.bias = owned.bias->View();
  NORMD_ASSIGN_OR_RETURN(std::shared_ptr<const Layer> layer, PrepareLayer(*backend_, session.spec, plan, views));
  if (layer != nullptr) Insert({std::move(key), layer, SizeOfLayer(*layer) + kEntryOverheadBytes});
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
