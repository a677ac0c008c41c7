// Calls that came before: a request whose bytes, without those of its tensors, are known needs no parsing, planning and
// encoding, only its tensors, its kernel, and a reply with the same beginning.
// In the path: CallDecoder asks it before the parser, and the answer to a call that it did not know fills it. Calls of
// every transport share it. Threads: safe from any thread; what it holds is immutable.
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

struct RememberedCall {
  // Which block of the message a tensor's bytes are.
  struct Slot {
    TensorField field;
    uint32_t block;
    int64_t size_bytes;
  };

  Call pattern;  // prepared; the tensors of `slots` have no bytes, others have those of `defaults`
  // The defaults of a stream that the call is under; null where it is under none. Once they are gone, so is the call.
  std::weak_ptr<const void> defaults;
  absl::InlinedVector<Slot, 3> slots;
  bool want_timings = false;
  std::string_view norm_method;  // of a spec; "" for a session
  // A reply up to the bytes of y, its last ones, while the session has this version (0 without one). Empty: the replies
  // to this call are not of that form.
  std::string reply_head;
  uint64_t session_version = 0;
};

class CallCache {
 public:
  // Of a request's bytes without its tensors', and what may be before them; longer ones are rare, and not kept.
  static constexpr size_t kMaxKeyBytes = 512;

  // Keeps the `max_calls` that were asked for last, some kilobytes each.
  explicit CallCache(size_t max_calls) : recent_(static_cast<int64_t>(max_calls)) {}

  std::shared_ptr<const RememberedCall> Find(std::string_view key);
  void Put(std::string key, std::shared_ptr<const RememberedCall> call);

 private:
  using Recent = Lru<std::string, std::shared_ptr<const RememberedCall>>;

  Mutex mu_;
  Recent recent_ ABSL_GUARDED_BY(mu_);  // each costs 1
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_CALL_CACHE_H_
