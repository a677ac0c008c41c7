// The header fields of one call: collects them as they are decoded, and judges whether they make a call of gRPC.
// In the path: first; HTTP/2's layer adds the fields, and the call shows them to the services.
// Threads: filled on the loop's thread and constant once Judge was called; then several threads may read it.
#ifndef NORMD_SERVER_RPC_HTTP2_REQUEST_HEADERS_H_
#define NORMD_SERVER_RPC_HTTP2_REQUEST_HEADERS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/rpc/edge/queue_stats.h"

namespace normd::rpc::http2 {

class RequestHeaders {
 public:
  // Why the fields make no call that can be served.
  struct Refusal {
    TransportRefusal reason;
    int http_status = 200;  // the answer of those that speak no gRPC; 200: `status` is sent in trailers
    absl::Status status;
  };

  explicit RequestHeaders(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Counts a field that was decoded, also one that is not added: each cost its decoding. Returns false when the fields
  // are so far beyond the limit that the stream should be reset.
  bool Count(std::string_view name, std::string_view value);
  // Adds a field that was counted. Beyond the limit none is kept.
  void Add(std::string_view name, std::string_view value);
  // Counts a field of the request's trailers, which mean nothing to gRPC and are not kept. Returns false when headers
  // and trailers together are over the limit. Takes no part in Judge.
  bool CountTrailer(std::string_view name, std::string_view value);
  // Judges the fields, which are complete.
  std::optional<Refusal> Judge() const;
  // Drops the metadata of a request that is refused.
  void Drop();
  // The memory of the metadata.
  int64_t held_bytes() const { return static_cast<int64_t>(text_.capacity() + fields_.capacity() * sizeof(Field)); }

  const std::string& path() const { return path_; }
  std::optional<absl::Duration> timeout() const { return timeout_; }
  // Visits the metadata as RpcCall::VisitMetadata does.
  void VisitMetadata(absl::FunctionRef<void(std::string_view key, std::string_view value)> visit) const;

 private:
  // A key and its value in `text_`. Values that came joined by commas share their key.
  struct Field {
    uint32_t key_begin;
    uint32_t key_bytes;
    uint32_t value_begin;
    uint32_t value_bytes;
  };

  void Keep(std::string_view name, std::string_view value);
  void KeepBinary(std::string_view name, std::string_view value);

  const int64_t max_bytes_;
  int64_t bytes_ = 0;  // of the fields as HTTP/2 counts them, each joined value being a field
  int64_t trailer_bytes_ = 0;
  std::string path_;
  std::string encoding_;
  bool is_post_ = false;
  bool is_grpc_ = false;  // whether the content type is gRPC's
  std::optional<absl::Duration> timeout_;
  std::string malformed_;  // the key of the first malformed value; empty: there is none
  std::string text_;       // of all metadata, so that a call costs one allocation for them
  std::vector<Field> fields_;
};

}  // namespace normd::rpc::http2

#endif  // NORMD_SERVER_RPC_HTTP2_REQUEST_HEADERS_H_
