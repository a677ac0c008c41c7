// PyTorch as a contestant: torch_peer.py runs in the Python named, a child of this process that maps the same buffers.
#ifndef NORMD_TESTS_BENCH_KERNELS_TORCH_PEER_H_
#define NORMD_TESTS_BENCH_KERNELS_TORCH_PEER_H_

#include <memory>
#include <string>

#include "tests/bench/kernels/contestant.h"

namespace normd::bench {

// Starts the child on `buffers`, whose file it inherits; `text` gets its version and settings. Ends it when destroyed.
std::unique_ptr<Contestant> StartTorch(const std::string& python, const Buffers& buffers, std::string* text);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_KERNELS_TORCH_PEER_H_
