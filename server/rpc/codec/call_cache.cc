#include "server/rpc/codec/call_cache.h"

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

std::shared_ptr<const RememberedCall> CallCache::Find(std::string_view key) {
  if (key.size() > kMaxKeyBytes) return nullptr;
  MutexLock lock(mu_);
  const std::shared_ptr<const RememberedCall>* const found = recent_.Find(key);
  return found == nullptr ? nullptr : *found;
}

void CallCache::Put(std::string key, std::shared_ptr<const RememberedCall> call) {
  if (key.size() > kMaxKeyBytes) return;
  Recent::Entries dropped;  // destroyed after the lock is released, as is the replaced call
  MutexLock lock(mu_);
  dropped = recent_.Insert(std::move(key), &call, 1);
}

}  // namespace normd::rpc
