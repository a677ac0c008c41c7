// What the parts of one server share besides its engine: pooled memory for tensors, and threads for work that takes
// time in proportion to bytes and is no kernel. In the path: made once by the wiring, handed to the engine and to the
// transport. Both are safe from any thread.
#ifndef NORMD_SERVER_BASE_RESOURCES_H_
#define NORMD_SERVER_BASE_RESOURCES_H_

#include <cstdint>
#include <memory>

#include "server/base/buffer.h"
#include "server/base/work_pool.h"

namespace normd {

struct Resources {
  // `max_idle_buffer_bytes`: of blocks kept for the next calls.
  explicit Resources(int64_t max_idle_buffer_bytes = int64_t{64} << 20)
      : buffers(BufferPool::Create(max_idle_buffer_bytes)) {}

  const std::shared_ptr<BufferPool> buffers;
  WorkPool work_pool{WorkPool::DefaultThreads()};
};

}  // namespace normd

#endif  // NORMD_SERVER_BASE_RESOURCES_H_
