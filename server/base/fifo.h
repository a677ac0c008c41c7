// A queue that hardly takes memory while it is empty, for what each of many thousand connections has one of: an empty
// std::deque takes 600 bytes.
// Threads: thread-compatible.
#ifndef NORMD_SERVER_BASE_FIFO_H_
#define NORMD_SERVER_BASE_FIFO_H_

#include <cstddef>
#include <utility>
#include <vector>

namespace normd {

// T is default-constructible and can be moved. Appending and removing take constant time on average.
template <typename T>
class Fifo {
 public:
  bool empty() const { return begin_ == items_.size(); }
  // The oldest and the newest item. REQUIRES: not empty.
  T& front() { return items_[begin_]; }
  T& back() { return items_.back(); }
  void push_back(T item) { items_.push_back(std::move(item)); }
  // REQUIRES: not empty.
  void pop_front() {
    items_[begin_] = T();  // gives up at once what the item held
    ++begin_;
    if (empty()) return Reuse();
    if (begin_ < kKeptItems || begin_ < items_.size() / 2) return;
    items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
  }
  void clear() {
    items_ = std::vector<T>();
    begin_ = 0;
  }

  // From the oldest to the newest.
  auto begin() const { return items_.begin() + static_cast<std::ptrdiff_t>(begin_); }
  auto end() const { return items_.end(); }

 private:
  // An empty queue keeps room for these, so that few items at a time cost no allocation.
  static constexpr size_t kKeptItems = 4;

  void Reuse() {
    if (items_.capacity() > kKeptItems) return clear();
    items_.clear();
    begin_ = 0;
  }

  std::vector<T> items_;  // the first begin_ of them were removed
  size_t begin_ = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_BASE_FIFO_H_
