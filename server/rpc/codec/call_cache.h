// The cache of calls seen before, keyed by a request's bytes without those of its tensors. A cached call is neither
// parsed nor planned again, and its reply begins with the same bytes: only its tensors and the kernel's work are new.
// In the path: CallDecoder looks a request up before it parses; the answer to an unknown call fills the cache. Unary
// calls, batch items and stream items share it.
// Threads: safe from any thread; the entries are immutable.
#ifndef NORMD_SERVER_RPC_CODEC_CALL_CACHE_H_
#define NORMD_SERVER_RPC_CODEC_CALL_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "server/base/lru.h"
#include "server/base/mutex.h"
#include "server/engine/call.h"

namespace normd::rpc {

// The tensors of a call.
enum class TensorField : uint8_t { kX, kWeight, kBias, kRunningMean, kRunningVar, kResidual, kMask };
TensorView& ViewOf(Call& call, TensorField field);

// Whose calls an entry of the cache is for. The same bytes in another scope are another call: they may name a session
// of another tenant, or be completed by other defaults.
struct CallScope {
  std::string tenant;
  std::shared_ptr<const void> defaults;  // of the stream; null: none
  std::string key_prefix;                // keeps the entries of scopes apart, so that they do not replace each other
};

struct RememberedCall {
  // The block of the message that has a tensor's bytes.
  struct Slot {
    TensorField field;
    uint32_t block;
    int64_t size_bytes;
  };

  // The tenant whose call this is: `pattern` has the key of its session. The entry is for nobody else, whatever the
  // cache's key says.
  std::string tenant;
  Call pattern;  // prepared; the tensors of `slots` have no bytes, the others have those of `defaults`
  // The stream defaults under which the call was decoded; null if there were none. The entry is useless once they are
  // gone.
  std::weak_ptr<const void> defaults;
  absl::InlinedVector<Slot, 3> slots;
  bool want_timings = false;
  std::string_view norm_method;  // the spec's method; "" for a session
  // The bytes of the reply before those of y, which end the reply. Valid while the session has `session_version` (0
  // without a session). Empty when the replies to this call do not have this form.
  std::string reply_head;
  uint64_t session_version = 0;
};

class CallCache {
 public:
  // The longest key: a request's bytes without those of its tensors, and a prefix. Longer keys are rare and not cached.
  static constexpr size_t kMaxKeyBytes = 512;

  // Keeps the `max_calls` most recently used calls, of some kilobytes each.
  explicit CallCache(size_t max_calls) : recent_(static_cast<int64_t>(max_calls)) {}

  // The call of `key`, or null.
  std::shared_ptr<const RememberedCall> Find(std::string_view key);
  // Adds or replaces the call of `key`; ignores keys over kMaxKeyBytes.
  void Put(std::string key, std::shared_ptr<const RememberedCall> call);

 private:
  using Recent = Lru<std::string, std::shared_ptr<const RememberedCall>>;

  Mutex mu_;
  Recent recent_ ABSL_GUARDED_BY(mu_);  // each entry has a cost of 1
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_CALL_CACHE_H_
