// A least-recently-used cache of entries with a key, a value and a cost, bounded by the sum of the costs.
// In the path: each of the caches of the engine, the codec and the durable store is an Lru.
// Threads: thread-compatible; the owner guards it. Entries that leave are returned, so that the caller can destroy them
// after releasing the owner's lock.
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

// A std::string key is looked up as a std::string_view by its hash; any other key by its operator<.
template <typename Key, typename Value>
class Lru {
 public:
  struct Entry {
    Key key;
    Value value;
    int64_t cost;  // in the unit of the limit, such as bytes
  };
  using Entries = std::list<Entry>;
  using View = std::conditional_t<std::is_same_v<Key, std::string>, std::string_view, Key>;

  // The costs of all entries sum to at most `max_cost`, except that the newest entry stays whatever its cost.
  explicit Lru(int64_t max_cost) : max_cost_(max_cost) {}
  Lru(const Lru&) = delete;
  Lru& operator=(const Lru&) = delete;

  // Returns the value of `key`, or null; counts as a use. The pointer is valid while the entry is in the cache.
  Value* Find(const View& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->value;
  }

  // Swaps `*value` into the entry of `key` as the most recently used; `*value` then has the entry's old value, if there
  // was one. Returns the entries that had to leave to keep the limit, the least recently used first. The new entry
  // stays even if it alone exceeds the limit. `key` is a Key, which is copied or moved from only if it is new.
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

  // Removes and returns the entry of `key`, if there is one.
  Entries Erase(const View& key) {
    Entries left;
    if (const auto found = index_.find(key); found != index_.end()) MoveTo(left, found->second);
    return left;
  }

  // Removes and returns all entries.
  Entries Clear() {
    index_.clear();
    cost_ = 0;
    return std::exchange(entries_, {});
  }

  // All entries, the most recently used first. Reading them does not count as a use.
  typename Entries::const_iterator begin() const { return entries_.begin(); }
  typename Entries::const_iterator end() const { return entries_.end(); }

  // The least recently used entry; null when the cache is empty. Does not count as a use.
  const Entry* Oldest() const { return entries_.empty() ? nullptr : &entries_.back(); }

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  int64_t cost() const { return cost_; }  // the sum over all entries

  // Holds from the next Insert on.
  void set_max_cost(int64_t max_cost) { max_cost_ = max_cost; }

 private:
  using Place = typename Entries::iterator;
  // A string_view key of the index refers to the key of its entry.
  using Index = std::conditional_t<std::is_same_v<Key, std::string>, std::unordered_map<std::string_view, Place>,
                                   std::map<Key, Place>>;

  void MoveTo(Entries& left, Place place) {
    cost_ -= place->cost;
    index_.erase(place->key);
    left.splice(left.end(), entries_, place);
  }

  int64_t max_cost_;
  Entries entries_;  // the most recently used first
  Index index_;
  int64_t cost_ = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_BASE_LRU_H_
