// Counts the memory of bytes that peers have sent before they were asked for: metadata, and the messages that HTTP/2's
// windows let in ahead of their admission. Windows and the number of calls alone would allow one peer over a GiB.
// In the path: beside it; streams count here the bytes that they hold. Admitted bytes are counted by Admission instead.
// Ownership: the transport owns it; each connection shares the count of its peer, which may outlive it.
// Threads: everything is safe from any thread.
#ifndef NORMD_SERVER_RPC_HTTP2_WAITING_BYTES_H_
#define NORMD_SERVER_RPC_HTTP2_WAITING_BYTES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "server/base/mutex.h"

namespace normd::rpc::http2 {

class WaitingBytes {
 public:
  // The bytes of one peer, which is an address or a user of the Unix socket.
  class Share {
   public:
    // Adds `bytes`, which may be negative. Returns RESOURCE_EXHAUSTED, with the bytes added all the same, when the peer
    // then has more than half of the limit, or all peers together more than all of it.
    absl::Status Add(int64_t bytes);
    // Takes `bytes` away.
    void Release(int64_t bytes);

   private:
    friend class WaitingBytes;
    struct Total {
      const int64_t max_bytes;
      std::atomic<int64_t> bytes{0};
    };
    explicit Share(std::shared_ptr<Total> total) : total_(std::move(total)) {}

    const std::shared_ptr<Total> total_;
    std::atomic<int64_t> bytes_{0};
  };

  explicit WaitingBytes(int64_t max_bytes) : total_(new Share::Total{.max_bytes = max_bytes}) {}

  // The share of the peer whose address this is.
  std::shared_ptr<Share> ShareOf(const std::string& address);
  int64_t bytes() const { return total_->bytes.load(std::memory_order_relaxed); }

 private:
  const std::shared_ptr<Share::Total> total_;
  Mutex mu_;
  size_t sweep_at_ ABSL_GUARDED_BY(mu_) = 0;
  std::unordered_map<std::string, std::weak_ptr<Share>> shares_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd::rpc::http2

#endif  // NORMD_SERVER_RPC_HTTP2_WAITING_BYTES_H_
