// Which memory the tensors of a request may use: pooled blocks, and shared memory where the caller may name it.
// In the path: asked by whoever parses a request, before its tensors are resolved. Pure functions.
#ifndef NORMD_SERVER_RPC_CODEC_CALL_MEMORY_H_
#define NORMD_SERVER_RPC_CODEC_CALL_MEMORY_H_

#include "server/rpc/codec/tensor_source.h"
#include "server/rpc/transport/route.h"

namespace normd::rpc {

// What a caller of `stream` may name.
TensorSource::SharedMemory SharedMemoryOf(const RouteContext& context, const Stream& stream);
// What `tensors` of a call on `stream` may use: pooled blocks, and shared memory.
void GiveMemory(const RouteContext& context, const Stream& stream, TensorSource* tensors);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_CALL_MEMORY_H_
