// What was used last, as long as it fits: entries of a key, a value and a cost, the least recently used first to go.
// In the path: the caches of the engine, the codec and the durable store are each one of these.
// Threads: thread-compatible; its owner guards it. What leaves is handed to the caller, who can so destroy it when
// nobody waits for the owner's lock.
#ifndef NORMD_SERVER_BASE_LRU_H_
#define NORMD_SERVER_BASE_LRU_H_

#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace normd {

// A std::string is looked up as a std::string_view and by its hash, any other key by its operator<.
template <typename Key, typename Value>
class Lru {
 public:
  struct Entry {
    Key key;
    Value value;
    int64_t cost;  // in bytes, or whatever the limit counts
  };
  using Entries = std::list<Entry>;
  using View = std::conditional_t<std::is_same_v<Key, std::string>, std::string_view, Key>;

  // Holds entries of at most `max_cost` together; the newest one stays whatever it costs.
  explicit Lru(int64_t max_cost) : max_cost_(max_cost) {}
  Lru(const Lru&) = delete;
  Lru& operator=(const Lru&) = delete;

  // Null: not here. Counts as a use. Valid as long as the entry is here.
  Value* Find(const View& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->value;
  }

  // Puts `*value` here, as used last, in the place of what was here under `key`: that is in `*value` then. Returns the
  // others that had to leave until the rest fits, the least recently used first; the new one stays even if it alone
  // does not fit. `key` is a Key; it is copied or moved from only if it is new.
  template <typename K>
  [[nodiscard]] Entries Insert(K&& key, Value* value, int64_t cost) {
    if (const auto found = index_.find(key); found != index_.end()) {
      const Place place = found->second;
      std::swap(place->value, *value);
      cost_ += cost - place->cost;
      place->cost = cost;
      entries_.splice(entries_.begin(), entries_, place);
    } else {
      entries_.push_front({std::forward<K>(key), std::move(*value), cost});
      index_.emplace(entries_.front().key, entries_.begin());
      cost_ += cost;
    }
    Entries left;
    while (cost_ > max_cost_ && entries_.size() > 1) MoveTo(left, std::prev(entries_.end()));
    return left;
  }

  // Returns what was here under `key`, if anything.
  Entries Erase(const View& key) {
    Entries left;
    if (const auto found = index_.find(key); found != index_.end()) MoveTo(left, found->second);
    return left;
  }

  // Returns everything.
  Entries Clear() {
    index_.clear();
    cost_ = 0;
    return std::exchange(entries_, {});
  }

  // The least recently used; null where there is none. Does not count as a use.
  const Entry* Oldest() const { return entries_.empty() ? nullptr : &entries_.back(); }

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  int64_t cost() const { return cost_; }  // of all entries together

 private:
  using Place = typename Entries::iterator;
  // The views are of the entries' keys.
  using Index = std::conditional_t<std::is_same_v<Key, std::string>, std::unordered_map<std::string_view, Place>,
                                   std::map<Key, Place>>;

  void MoveTo(Entries& left, Place place) {
    cost_ -= place->cost;
    index_.erase(place->key);
    left.splice(left.end(), entries_, place);
  }

  const int64_t max_cost_;
  Entries entries_;  // the most recently used first
  Index index_;
  int64_t cost_ = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_BASE_LRU_H_
