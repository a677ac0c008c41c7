// Memory shared with a server on the same machine: tensors are written into it and requests name ranges of it
// (SharedRange in tensor.proto), so that they are neither sent nor copied.
// In the path: before a request, beside the Client; registers over the Unix socket next to the server's gRPC socket.
// Threads: a SharedRegion is thread-compatible; a SharedArena is safe from any thread, and so is freeing its blocks.
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

// One sealed memory object, mapped here and in the server.
class SharedRegion {
 public:
  // `unix_target`: the server's "unix:/path", as given to Client::Connect. `size_bytes` is rounded up to whole pages,
  // all of which are taken at once and count as this process's memory: the first requests do not wait for them, and a
  // machine without room fails here and not in the server.
  // Errors: INVALID_ARGUMENT for another kind of target or a size below 1; UNAVAILABLE when no server takes
  // registrations there or it does not answer within `timeout` (send tensors in messages instead); RESOURCE_EXHAUSTED
  // when memory or a limit of the server is reached; whatever else the server says.
  static absl::StatusOr<std::unique_ptr<SharedRegion>> Create(const std::string& unix_target, int64_t size_bytes,
                                                              absl::Duration timeout = absl::Seconds(5));

  // Unregisters, by closing the connection, and unmaps. Does not wait: requests that use the region finish first in
  // the server, and what they write is lost.
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  const std::string& name() const { return name_; }  // for SharedRange.region; a key: whoever knows it can use it
  // Whether the server still keeps the connection, and with it the region. A system call.
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
