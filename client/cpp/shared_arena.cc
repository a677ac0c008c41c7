#include "client/cpp/shared_arena.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/shared_region.h"

namespace normd::client {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kPage = 4096;
// A load that follows a store with the same low 12 address bits waits for that store. Successive blocks of whole pages
// are therefore 47 cache lines apart within the page: of any four successive blocks, every two are at least 832 bytes
// apart, in either direction.
constexpr int64_t kStagger = 47 * kAlignment;

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

int64_t TakenBytes(int64_t size_bytes) {
  return size_bytes < kPage ? RoundUp(size_bytes, kAlignment) : RoundUp(size_bytes, kPage) + kStagger;
}

}  // namespace

struct SharedBlock::Shelf {
  explicit Shelf(std::unique_ptr<SharedRegion> made) : region(std::move(made)), free{{0, region->size_bytes()}} {}

  // Takes the first free part that is large enough and returns its offset; -1 if there is none.
  int64_t Take(int64_t bytes) {
    const std::lock_guard<std::mutex> lock(mu);
    const auto found = std::find_if(free.begin(), free.end(), [&](const auto& part) { return part.second >= bytes; });
    if (found == free.end()) return -1;
    const auto [offset, size] = *found;
    free.erase(found);
    if (size > bytes) free.emplace(offset + bytes, size - bytes);
    return offset;
  }

  void GiveBack(int64_t offset, int64_t bytes) {
    const std::lock_guard<std::mutex> lock(mu);
    auto part = free.emplace(offset, bytes).first;
    if (const auto next = std::next(part); next != free.end() && offset + bytes == next->first) {
      part->second += next->second;
      free.erase(next);
    }
    if (part == free.begin()) return;
    if (const auto before = std::prev(part); before->first + before->second == offset) {
      before->second += part->second;
      free.erase(part);
    }
  }

  const std::unique_ptr<SharedRegion> region;
  std::mutex mu;
  // Offset -> bytes of each free part. Adjacent parts are merged. Guarded by mu.
  std::map<int64_t, int64_t> free;
};

SharedBlock::SharedBlock(SharedBlock&& other) noexcept { *this = std::move(other); }

SharedBlock& SharedBlock::operator=(SharedBlock&& other) noexcept {
  std::swap(shelf_, other.shelf_);
  std::swap(offset_, other.offset_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(taken_bytes_, other.taken_bytes_);
  std::swap(data_, other.data_);
  return *this;
}

SharedBlock::~SharedBlock() {
  if (shelf_ != nullptr) shelf_->GiveBack(offset_, taken_bytes_);
}

const std::string& SharedBlock::region() const { return shelf_->region->name(); }
bool SharedBlock::registered() const { return shelf_->region->registered(); }

struct SharedArena::State {
  const std::string target;
  const SharedArenaOptions options;
  std::mutex mu;
  std::vector<std::shared_ptr<SharedBlock::Shelf>> shelves;  // guarded by mu
  int64_t total_bytes = 0;                                   // of shelves, and of regions being made; guarded by mu
  bool closed = false;                                       // guarded by mu

  // Takes a part of an existing region; an empty block if none has room.
  SharedBlock TakeFromShelves(int64_t size_bytes) {
    const std::lock_guard<std::mutex> lock(mu);
    for (const auto& shelf : shelves) {
      const int64_t offset = shelf->Take(TakenBytes(size_bytes));
      if (offset >= 0) return MakeBlock(shelf, offset, size_bytes);
    }
    return SharedBlock();
  }

  static SharedBlock MakeBlock(const std::shared_ptr<SharedBlock::Shelf>& shelf, int64_t offset, int64_t size_bytes) {
    SharedBlock block;
    block.shelf_ = shelf;
    block.offset_ = offset;
    block.size_bytes_ = size_bytes;
    block.taken_bytes_ = TakenBytes(size_bytes);
    block.data_ = shelf->region->data() + offset;
    return block;
  }

  // Makes another region with room for `at_least` bytes, not yet on a shelf. Does not hold the lock, because the server
  // is asked.
  absl::StatusOr<std::shared_ptr<SharedBlock::Shelf>> MakeShelf(int64_t at_least) {
    const int64_t bytes = RoundUp(std::max(options.region_bytes, at_least), kPage);
    if (!Reserve(bytes)) {
      return absl::ResourceExhaustedError(absl::StrCat("max_total_bytes is ", options.max_total_bytes,
                                                       ", and another region of ", bytes, " bytes would exceed it"));
    }
    absl::StatusOr<std::unique_ptr<SharedRegion>> region = SharedRegion::Create(target, bytes, options.timeout);
    if (region.ok()) return std::make_shared<SharedBlock::Shelf>(*std::move(region));
    const std::lock_guard<std::mutex> lock(mu);
    total_bytes -= bytes;
    return region.status();
  }

  bool IsClosed() {
    const std::lock_guard<std::mutex> lock(mu);
    return closed;
  }

  bool Reserve(int64_t bytes) {
    const std::lock_guard<std::mutex> lock(mu);
    if (bytes > options.max_total_bytes - total_bytes) return false;
    total_bytes += bytes;
    return true;
  }

  void Add(std::shared_ptr<SharedBlock::Shelf> shelf) {
    const std::lock_guard<std::mutex> lock(mu);
    if (!closed) shelves.push_back(std::move(shelf));
  }
};

SharedArena::SharedArena(std::unique_ptr<State> state) : state_(std::move(state)) {}
SharedArena::~SharedArena() = default;

absl::StatusOr<std::unique_ptr<SharedArena>> SharedArena::Create(const std::string& unix_target,
                                                                 const SharedArenaOptions& options) {
  std::unique_ptr<State> state(new State{unix_target, options});
  absl::StatusOr<std::shared_ptr<SharedBlock::Shelf>> first = state->MakeShelf(1);
  if (!first.ok()) return first.status();
  state->Add(*std::move(first));
  return std::unique_ptr<SharedArena>(new SharedArena(std::move(state)));
}

bool SharedArena::Owns(const SharedBlock& block) const {
  const std::lock_guard<std::mutex> lock(state_->mu);
  return std::find(state_->shelves.begin(), state_->shelves.end(), block.shelf_) != state_->shelves.end();
}

void SharedArena::Close() {
  std::vector<std::shared_ptr<SharedBlock::Shelf>> closed;  // destroyed, and so unmapped, after the lock is released
  const std::lock_guard<std::mutex> lock(state_->mu);
  state_->closed = true;
  closed.swap(state_->shelves);
}

absl::StatusOr<SharedBlock> SharedArena::Allocate(int64_t size_bytes) {
  if (size_bytes < 1 || size_bytes > state_->options.max_total_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("size_bytes is ", size_bytes, "; it must be 1 to ", state_->options.max_total_bytes));
  }
  SharedBlock block = state_->TakeFromShelves(size_bytes);
  if (block.data() != nullptr) return block;
  if (state_->IsClosed()) return absl::UnavailableError("the arena is closed");
  absl::StatusOr<std::shared_ptr<SharedBlock::Shelf>> shelf = state_->MakeShelf(TakenBytes(size_bytes));
  if (!shelf.ok()) return shelf.status();
  // The block is taken before other threads see the region.
  block = State::MakeBlock(*shelf, (*shelf)->Take(TakenBytes(size_bytes)), size_bytes);
  state_->Add(*std::move(shelf));
  return block;
}

}  // namespace normd::client
