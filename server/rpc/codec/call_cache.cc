#include "server/rpc/codec/call_cache.h"

#include <iterator>
#include <utility>

namespace normd::rpc {

TensorView& ViewOf(Call& call, TensorField field) {
  switch (field) {
    case TensorField::kWeight:
      return call.parameters.weight;
    case TensorField::kBias:
      return call.parameters.bias;
    case TensorField::kRunningMean:
      return call.running_mean;
    case TensorField::kRunningVar:
      return call.running_var;
    case TensorField::kResidual:
      return call.residual;
    case TensorField::kMask:
      return call.mask;
    case TensorField::kX:
      break;
  }
  return call.x;
}

std::shared_ptr<const KnownCall> CallCache::Find(std::string_view key) {
  if (key.size() > kMaxKeyBytes) return nullptr;
  MutexLock lock(mu_);
  const auto found = index_.find(key);
  if (found == index_.end()) return nullptr;
  recent_.splice(recent_.begin(), recent_, found->second);
  return found->second->call;
}

void CallCache::Put(std::string key, std::shared_ptr<const KnownCall> call) {
  if (key.size() > kMaxKeyBytes) return;
  Recent dropped;  // freed without the lock, as what is replaced
  MutexLock lock(mu_);
  if (const auto found = index_.find(key); found != index_.end()) {
    recent_.splice(recent_.begin(), recent_, found->second);
    found->second->call.swap(call);
    return;
  }
  recent_.push_front({std::move(key), std::move(call)});
  index_.emplace(recent_.front().key, recent_.begin());
  if (recent_.size() <= max_calls_) return;
  index_.erase(recent_.back().key);
  dropped.splice(dropped.begin(), recent_, std::prev(recent_.end()));
}

}  // namespace normd::rpc
