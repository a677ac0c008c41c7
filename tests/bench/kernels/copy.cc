#include <algorithm>
#include <memory>

#include "kernels/cpu/parallel.h"
#include "tests/bench/kernels/candidate.h"
#include "tests/bench/kernels/vector_loops.h"

namespace normd::bench {

namespace {

// Whole pages a task: y is aligned at the start of each, and page boundaries are shared by no two threads.
constexpr int64_t kTask = 256 << 10;

class Copy final : public Candidate {
 public:
  explicit Copy(bool non_temporal) : non_temporal_(non_temporal) {}

  std::string_view name() const override { return non_temporal_ ? "copy-nt" : "copy"; }

  bool Prepare(const Workload& workload, const Buffers& buffers, int threads) override {
    if (threads != threads_) pool_ = std::make_unique<cpu::WorkerPool>(threads);
    threads_ = threads;
    x_ = buffers.x();
    y_ = buffers.y();
    bytes_ = workload.Bytes() / 2;
    return true;
  }

 private:
  void Call() override {
    if (threads_ == 1) return CopyPiece(0, bytes_);
    pool_->ParallelFor(bytes_, kTask, [this](int64_t begin, int64_t end) { CopyPiece(begin, end); });
  }

  void CopyPiece(int64_t begin, int64_t end) const {
    (non_temporal_ ? CopyVectorsNonTemporal : CopyVectors)(x_ + begin, end - begin, y_ + begin);
  }

  const bool non_temporal_;
  int threads_ = 0;
  std::unique_ptr<cpu::WorkerPool> pool_;
  const std::byte* x_ = nullptr;
  std::byte* y_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<Candidate> MakeCopy(bool non_temporal) { return std::make_unique<Copy>(non_temporal); }

}  // namespace normd::bench
