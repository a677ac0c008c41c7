#include "server/rpc/edge/rpc_options.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "server/base/cgroup.h"
#include "server/base/error_reasons.h"

namespace normd {

int DefaultQueues() { return std::clamp(AllowedCpus() / 2, 1, 8); }

}  // namespace normd

namespace normd::rpc {
namespace {

constexpr int kMaxQueues = 64;
// The windows of two hundred streams; part of the memory that the process needs beside the budget.
constexpr int64_t kMinWaitingBytes = int64_t{16} << 20;

absl::Status CheckRange(std::string_view name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return OutOfRangeError(name, absl::StrCat(value), absl::StrCat("between ", min, " and ", max),
                         ServerReason("OPTION_OUT_OF_RANGE"));
}

}  // namespace

absl::Status CheckOptions(const RpcOptions& options) {
  constexpr int64_t kMaxInt = std::numeric_limits<int>::max();
  if (options.listeners.empty()) return MissingError("listeners", "at least one address");
  NORMD_RETURN_IF_ERROR(CheckRange("queues", options.queues, 0, kMaxQueues));
  NORMD_RETURN_IF_ERROR(CheckRange("max_message_bytes", options.max_message_bytes, 1024, kMaxInt));
  NORMD_RETURN_IF_ERROR(CheckRange("max_in_flight_bytes", options.max_in_flight_bytes,
                                   kMostBytesHeldPerMessageByte * options.max_message_bytes,
                                   std::numeric_limits<int64_t>::max() / 2));
  if (options.max_caller_bytes != 0) {
    NORMD_RETURN_IF_ERROR(CheckRange("max_caller_bytes", options.max_caller_bytes,
                                     kMostBytesHeldPerMessageByte * options.max_message_bytes,
                                     options.max_in_flight_bytes));
  }
  NORMD_RETURN_IF_ERROR(CheckRange("max_concurrent_streams", options.max_concurrent_streams, 0, kMaxInt));
  NORMD_RETURN_IF_ERROR(CheckRange("max_stream_calls", options.max_stream_calls, 1, 4096));
  NORMD_RETURN_IF_ERROR(CheckRange("max_metadata_bytes", options.max_metadata_bytes, 1024, kMaxInt));
  NORMD_RETURN_IF_ERROR(
      CheckRange("max_tensor_bytes", options.max_tensor_bytes, 1, std::numeric_limits<int64_t>::max() / 4));
  NORMD_RETURN_IF_ERROR(CheckRange("max_batch_items", options.max_batch_items, 1, kMaxInt));
  return CheckRange("export_chunk_bytes", options.export_chunk_bytes, 64 << 10, 1 << 20);
}

int ConcurrentStreams(const RpcOptions& options) {
  if (options.max_concurrent_streams > 0) return options.max_concurrent_streams;
  return options.max_message_bytes > (4 << 20) ? 8 : 16;
}

int64_t MaxCallerBytes(const RpcOptions& options) {
  if (options.max_caller_bytes > 0) return options.max_caller_bytes;
  return std::max(options.max_in_flight_bytes / 16 * 15, kMostBytesHeldPerMessageByte * options.max_message_bytes);
}

int64_t MaxTensorBytes(const RpcOptions& options) {
  return std::min(options.max_tensor_bytes, MaxCallerBytes(options) / kBytesHeldPerMessageByte);
}

int64_t MaxWaitingBytes(const RpcOptions& options) {
  if (options.max_waiting_bytes > 0) return options.max_waiting_bytes;
  return std::max(options.max_in_flight_bytes / 4, kMinWaitingBytes);
}

absl::Duration UnreadTimeout(const RpcOptions& options) { return kPatienceForReaders * options.message_timeout; }

}  // namespace normd::rpc
