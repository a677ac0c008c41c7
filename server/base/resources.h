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
  static constexpr int64_t kMaxIdleBufferBytes = int64_t{64} << 20;

  // The arguments bound the idle blocks that are kept for the next calls; see BufferPool::Create.
  explicit Resources(int64_t max_idle_buffer_bytes = kMaxIdleBufferBytes, int64_t max_total_buffer_bytes = 0)
      : buffers(BufferPool::Create(max_idle_buffer_bytes, max_total_buffer_bytes)) {}

  const std::shared_ptr<BufferPool> buffers;
  WorkPool work_pool{WorkPool::DefaultThreads()};
};

}  // namespace normd

#endif  // NORMD_SERVER_BASE_RESOURCES_H_
