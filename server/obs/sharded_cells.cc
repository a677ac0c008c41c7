#include "server/obs/sharded_cells.h"

#include <unistd.h>

#include <algorithm>
#include <bit>

namespace normd {
namespace {

// More processors than this share shards: by default the server has at most 8 queues, and a shard is some 100 KiB.
constexpr size_t kMaxShards = 16;

size_t ShardCount() {
  const int64_t processors = std::max<int64_t>(1, sysconf(_SC_NPROCESSORS_CONF));
  return std::min(kMaxShards, std::bit_ceil(static_cast<size_t>(processors)));
}

}  // namespace

// A line between the shards keeps the prefetcher of adjacent lines away from the next shard.
ShardedCells::ShardedCells(size_t cells)
    : shard_mask_(ShardCount() - 1),
      lines_per_shard_((cells + kCellsPerLine - 1) / kCellsPerLine + 1),
      lines_(lines_per_shard_ * (shard_mask_ + 1)) {}

int64_t ShardedCells::Sum(size_t cell) const {
  int64_t sum = 0;
  for (size_t line = cell / kCellsPerLine; line < lines_.size(); line += lines_per_shard_) {
    sum += lines_[line].cells[cell % kCellsPerLine].load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace normd
