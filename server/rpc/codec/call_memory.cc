#include "server/rpc/codec/call_memory.h"

namespace normd::rpc {

TensorSource::SharedMemory SharedMemoryOf(const RouteContext& context, const RpcCall& stream) {
  if (context.regions == nullptr) return {nullptr, "shared memory is off on this server"};
  TensorSource::SharedMemory allowed = {context.regions, {}, stream.identity()->tenant};
  if (stream.is_local()) return allowed;
  if (!context.shared_memory_anywhere) return {nullptr, "shared memory is for callers of the Unix socket"};
  if (IsLoopback(stream.peer())) return allowed;
  return {nullptr, "shared memory is for callers on this host, over its loopback interface"};
}

void GiveMemory(const RouteContext& context, const RpcCall& stream, TensorSource* tensors) {
  tensors->SetBuffers(context.buffers);
  tensors->SetSharedMemory(SharedMemoryOf(context, stream));
}

}  // namespace normd::rpc
