// Decides which memory the tensors of a request may use: pooled blocks, and shared memory if the caller may name it.
// In the path: called after a request is parsed and before its tensors are resolved.
// Threads: the functions keep no state of their own.
#ifndef NORMD_SERVER_RPC_CODEC_CALL_MEMORY_H_
#define NORMD_SERVER_RPC_CODEC_CALL_MEMORY_H_

#include "server/rpc/codec/tensor_source.h"
#include "server/rpc/edge/route.h"

namespace normd::rpc {

// The shared memory that the caller of `stream` may name, or the reason why there is none.
TensorSource::SharedMemory SharedMemoryOf(const RouteContext& context, const RpcCall& stream);
// Gives `tensors`, of a call on `stream`, the buffer pool and the shared memory that they may use.
void GiveMemory(const RouteContext& context, const RpcCall& stream, TensorSource* tensors);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_CALL_MEMORY_H_
