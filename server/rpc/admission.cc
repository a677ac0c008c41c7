#include "server/rpc/admission.h"

#include <limits>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/errors.h"
#include "server/base/errors.h"
#include "server/base/status_macros.h"

namespace normd::rpc {
namespace {

constexpr int kMaxQueues = 64;
constexpr int kSecondMs = 1000;

absl::Status CheckRange(std::string_view name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return OutOfRangeError(name, absl::StrCat(value), absl::StrCat("in [", min, ", ", max, "]"), "OPTION_OUT_OF_RANGE");
}

}  // namespace

absl::Status CheckOptions(const GrpcServerOptions& options) {
  constexpr int64_t kMaxInt = std::numeric_limits<int>::max();
  if (options.listeners.empty()) return MissingError("listeners", "at least one address");
  NORMD_RETURN_IF_ERROR(CheckRange("queues", options.queues, 0, kMaxQueues));
  NORMD_RETURN_IF_ERROR(CheckRange("max_message_bytes", options.max_message_bytes, 1024, kMaxInt));
  NORMD_RETURN_IF_ERROR(CheckRange("max_in_flight_bytes", options.max_in_flight_bytes, options.max_message_bytes,
                                   std::numeric_limits<int64_t>::max() / 2));
  NORMD_RETURN_IF_ERROR(CheckRange("max_concurrent_streams", options.max_concurrent_streams, 1, kMaxInt));
  NORMD_RETURN_IF_ERROR(CheckRange("max_stream_calls", options.max_stream_calls, 1, 4096));
  NORMD_RETURN_IF_ERROR(CheckRange("max_metadata_bytes", options.max_metadata_bytes, 1024, kMaxInt));
  NORMD_RETURN_IF_ERROR(CheckRange("max_batch_items", options.max_batch_items, 1, kMaxInt));
  return CheckRange("export_chunk_bytes", options.export_chunk_bytes, 64 << 10, 1 << 20);
}

void SetTransportLimits(const GrpcServerOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, options.max_metadata_bytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
  // A port that another process has is an error, not something to share.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Tensors hardly compress, and a small message must not become a large one: compressed requests are refused.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetDefaultCompressionAlgorithm(GRPC_COMPRESS_NONE);
  // Finds dead peers in minutes; lets clients behind idle-closing middleboxes ping, but not flood.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 120 * kSecondMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20 * kSecondMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10 * kSecondMs);
}

Reservation::~Reservation() {
  if (admission_ != nullptr) admission_->Release(bytes_);
}

absl::Status Admission::CheckOpen() const {
  const int64_t held = held_bytes();
  return held < max_bytes_ ? absl::OkStatus() : TooManyError("bytes_in_flight", held, max_bytes_);
}

absl::StatusOr<Reservation> Admission::Reserve(int64_t bytes) {
  const int64_t held = held_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  Reservation reservation(this, bytes);  // gives the bytes back on refusal, too
  if (on_change_) on_change_(held);
  if (held > max_bytes_) return TooManyError("bytes_in_flight", held, max_bytes_);
  return reservation;
}

void Admission::Release(int64_t bytes) {
  const int64_t held = held_bytes_.fetch_sub(bytes, std::memory_order_relaxed) - bytes;
  if (on_change_) on_change_(held);
}

}  // namespace normd::rpc
