// The resources that the parts of one server share: pooled memory for tensors, and a pool of threads for work other
// than kernels that takes time in proportion to bytes.
// In the path: the wiring makes one Resources and hands it to the engine and to rpc.
// Threads: both pools are safe from any thread.
#ifndef NORMD_SERVER_BASE_RESOURCES_H_
#define NORMD_SERVER_BASE_RESOURCES_H_

#include <cstdint>
#include <memory>

#include "server/base/buffer.h"
#include "server/base/work_pool.h"

namespace normd {

struct Resources {
  // `max_idle_buffer_bytes` bounds the idle blocks that are kept for the next calls.
  explicit Resources(int64_t max_idle_buffer_bytes = int64_t{64} << 20)
      : buffers(BufferPool::Create(max_idle_buffer_bytes)) {}

  const std::shared_ptr<BufferPool> buffers;
  WorkPool work_pool{WorkPool::DefaultThreads()};
};

}  // namespace normd

#endif  // NORMD_SERVER_BASE_RESOURCES_H_
