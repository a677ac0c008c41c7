// Normalize requests that came before: a plain one whose metadata is known byte for byte needs no parsing, planning and
// encoding, only its kernel and a reply with the same beginning.
// In the path: before the parser, for small requests. Everything else goes the general way, which also fills this.
// Safe from any thread.
#ifndef NORMD_SERVER_RPC_PLAIN_REQUESTS_H_
#define NORMD_SERVER_RPC_PLAIN_REQUESTS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "normd/v1/normalizer.pb.h"
#include "server/base/mutex.h"
#include "server/engine/engine.h"
#include "server/engine/prepared_call.h"
#include "server/rpc/message.h"
#include "server/rpc/observation.h"

namespace normd::rpc {

class PlainRequests {
 public:
  // Borrows the engine.
  explicit PlainRequests(Engine* engine) : engine_(engine) {}

  // The reply to `message`, or nothing when it must go the general way.
  std::optional<absl::StatusOr<grpc::ByteBuffer>> Answer(const ReceivedMessage& message,
                                                         Observation& observation) const;

  // The metadata by which a request can be remembered; empty where it cannot be.
  static std::string KeyOf(const ReceivedMessage& message) {
    const bool can = message.split.has_value() && message.split->metadata.size() <= kMaxKeyBytes;
    return can ? message.split->metadata : std::string();
  }
  // Remembers a request that was decoded and found good, if it is plain. REQUIRES: `metadata` is its key.
  void Remember(const std::string& metadata, const v1::NormalizeRequest& request, const Call& call);

  // Of a request's metadata; longer ones are rare, and not kept.
  static constexpr size_t kMaxKeyBytes = 256;
  static constexpr size_t kMaxRequests = 4096;  // remembered; then it begins anew

 private:
  struct Known {
    std::shared_ptr<const PreparedCall> call;
    std::string reply_head;  // everything before the bytes of y
    std::string_view norm_method;
  };
  struct Hash {
    using is_transparent = void;  // NOLINT(readability-identifier-naming): the standard looks for this name
    size_t operator()(std::string_view key) const { return std::hash<std::string_view>()(key); }
  };

  std::shared_ptr<const Known> Find(std::string_view metadata) const;

  Engine* const engine_;
  mutable Mutex mu_;
  std::unordered_map<std::string, std::shared_ptr<const Known>, Hash, std::equal_to<>> known_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_PLAIN_REQUESTS_H_
