// An array of counters that many threads add to without waiting for each other: each processor has a copy of the array
// in cache lines of its own, and a reader adds the copies up.
// In the path: below metric_set.h. Threads: Add and Sum are safe from any thread; Add takes no lock.
#ifndef NORMD_SERVER_OBS_SHARDED_CELLS_H_
#define NORMD_SERVER_OBS_SHARDED_CELLS_H_

#include <sched.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace normd {

class ShardedCells {
 public:
  // `cells` counters that are 0.
  explicit ShardedCells(size_t cells);
  ShardedCells(const ShardedCells&) = delete;
  ShardedCells& operator=(const ShardedCells&) = delete;

  // Where the calling thread adds. A thread that has moved to another processor since then is correct with its old
  // shard, too, so one Shard serves several additions.
  size_t Shard() const { return static_cast<size_t>(sched_getcpu()) & shard_mask_; }
  // REQUIRES: `cell` is less than the number of cells, and `shard` is a result of Shard() of any ShardedCells.
  void Add(size_t shard, size_t cell, int64_t amount) {
    lines_[shard * lines_per_shard_ + cell / kCellsPerLine].cells[cell % kCellsPerLine].fetch_add(
        amount, std::memory_order_relaxed);
  }

  // What was added to the cell on all processors so far.
  int64_t Sum(size_t cell) const;

 private:
  static constexpr size_t kLineBytes = 64;
  static constexpr size_t kCellsPerLine = kLineBytes / sizeof(int64_t);
  struct alignas(kLineBytes) Line {
    std::array<std::atomic<int64_t>, kCellsPerLine> cells{};
  };

  const size_t shard_mask_;  // the number of shards is a power of two
  const size_t lines_per_shard_;
  std::vector<Line> lines_;
};

}  // namespace normd

#endif  // NORMD_SERVER_OBS_SHARDED_CELLS_H_
