// Memory shared with a server on the same machine. Tensors are written into it, and requests name ranges of it
// (SharedRange in tensor.proto), so that tensors are neither sent nor copied.
// In the path: before a request, beside the Client. Registers over the Unix socket next to the server's gRPC socket.
// Threads: thread-compatible; const methods are safe from any thread. SharedArena makes it usable by many threads.
#ifndef NORMD_CLIENT_CPP_SHARED_REGION_H_
#define NORMD_CLIENT_CPP_SHARED_REGION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace normd::client {

// One sealed memory object that this process and the server both map.
class SharedRegion {
 public:
  // `unix_target` is the server's "unix:/path", as given to Client::Connect. `size_bytes` is rounded up to whole pages.
  // All pages are taken at once and count as this process's memory: the first requests do not wait for them, and a
  // machine without room fails here and not in the server.
  // Errors: INVALID_ARGUMENT for another kind of target and for a size below 1 or above 1 TiB; UNAVAILABLE if no server
  // takes registrations there or none answers within `timeout` (send tensors in messages instead); PERMISSION_DENIED if
  // this user may not connect; RESOURCE_EXHAUSTED when memory or a limit of the server is reached; any other error of
  // the server.
  static absl::StatusOr<std::unique_ptr<SharedRegion>> Create(const std::string& unix_target, int64_t size_bytes,
                                                              absl::Duration timeout = absl::Seconds(5));

  // Unregisters by closing the connection, and unmaps. Does not wait: requests that use the region finish first in the
  // server, and their outputs in it are lost.
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  // For SharedRange.region. A secret key: whoever knows the name can use the region.
  const std::string& name() const { return name_; }
  // True while the server keeps the connection open, and with it the region. A system call.
  bool registered() const;
  std::byte* data() const { return data_; }  // page-aligned, zero at first
  int64_t size_bytes() const { return size_bytes_; }

 private:
  SharedRegion(std::string name, std::byte* data, int64_t size_bytes, int connection)
      : name_(std::move(name)), data_(data), size_bytes_(size_bytes), connection_(connection) {}

  const std::string name_;
  std::byte* const data_;
  const int64_t size_bytes_;
  const int connection_;  // the server drops the region when this closes
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_SHARED_REGION_H_
