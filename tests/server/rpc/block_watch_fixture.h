// Sees the large blocks that this program allocates and the bytes that it copies, libraries included: the program has
// malloc and its family, memcpy and memmove of its own, which note what they do while a BlockWatch lives and pass on.
// What the compiler copies in line is not seen, and neither is a loop. Every thread is watched.
#ifndef NORMD_TESTS_SERVER_RPC_BLOCK_WATCH_FIXTURE_H_
#define NORMD_TESTS_SERVER_RPC_BLOCK_WATCH_FIXTURE_H_

#include <cstddef>
#include <vector>

namespace normd {

class BlockWatch {
 public:
  // Watches for blocks of `at_least_bytes`. REQUIRES: no other one lives.
  explicit BlockWatch(size_t at_least_bytes);
  ~BlockWatch();
  BlockWatch(const BlockWatch&) = delete;
  BlockWatch& operator=(const BlockWatch&) = delete;

  // False where malloc belongs to somebody else: under a sanitizer.
  static bool Works();

  // The sizes of the blocks seen until now; of many, the first.
  std::vector<size_t> Allocations() const;
  size_t CopiedBytes() const;
};

}  // namespace normd

#endif  // NORMD_TESTS_SERVER_RPC_BLOCK_WATCH_FIXTURE_H_
