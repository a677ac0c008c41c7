#include "kernels/cuda/arena.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace normd::cuda {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kLeastBlock = int64_t{1} << 20;

}  // namespace

Arena::~Arena() { Free(); }

absl::StatusOr<void*> Arena::Take(int64_t bytes) {
  const int64_t size = (std::max<int64_t>(1, bytes) + kAlignment - 1) / kAlignment * kAlignment;
  // A block that is too small for the first piece is of no use.
  if (used_ == 0 && !blocks_.empty() && size > blocks_.back().size_bytes) Free();
  if (blocks_.empty() || used_ + size > blocks_.back().size_bytes) {
    const int64_t block_bytes =
        std::max({size, std::min(kLeastBlock, max_bytes_ - held_), std::min(held_, max_bytes_ - held_)});
    if (block_bytes > max_bytes_ - held_) {
      refused_ = true;
      return absl::ResourceExhaustedError(
          absl::StrCat("the job needs over ", held_ + size, " bytes of device memory; the limit is ", max_bytes_));
    }
    const absl::StatusOr<void*> data = memory_.Take(block_bytes, stream_);
    if (!data.ok()) return data.status();
    blocks_.push_back({static_cast<char*>(*data), block_bytes});
    held_ += block_bytes;
    used_ = 0;
  }
  char* const taken = blocks_.back().data + used_;
  used_ += size;
  return taken;
}

void Arena::Reset() {
  kept_.clear();
  if (refused_) {
    // The cause may have been how the memory was divided into blocks.
    Free();
  } else if (blocks_.size() > 1) {
    // The blocks were too small: the next job gets one block of their total size.
    const int64_t held = held_;
    Free();
    // If it has no room, the next Take reports it.
    if (const absl::StatusOr<void*> data = memory_.Take(held, stream_); data.ok()) {
      blocks_.push_back({static_cast<char*>(*data), held});
      held_ = held;
    }
  }
  used_ = 0;
  refused_ = false;
}

void Arena::Free() {
  for (const Block& block : blocks_) memory_.GiveBack(block.data, stream_);
  blocks_.clear();
  held_ = used_ = 0;
}

}  // namespace normd::cuda
