#include "tests/bench/statistics/watching.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/base/status_macros.h"
#include "normd/v1/sessions.pb.h"
#include "tests/bench/machine.h"

namespace normd::bench {
namespace {

constexpr char kPath[] = "/normd.v1.Sessions/WatchSession";
constexpr uint32_t kLargestWindow = 0x7FFFFFFF;
constexpr size_t kFrameHeadBytes = 9;
constexpr size_t kMessageHeadBytes = 5;  // of a gRPC message: compressed or not, and the length

uint32_t FromNetwork(std::string_view bytes) {
  uint32_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

std::string MessageOf(const v1::WatchSessionRequest& request) {
  const std::string bytes = request.SerializeAsString();
  return std::string(kMessageHeadBytes - 1, '\0') + static_cast<char>(bytes.size()) + bytes;
}

size_t StreamOf(std::string_view head) { return (FromNetwork(head.substr(5, 4)) & 0x7FFFFFFF) / 2; }

}  // namespace

Watching::Watching() : poll_(epoll_create1(EPOLL_CLOEXEC)), buffer_(1 << 18, '\0') {}

Watching::~Watching() { close(poll_); }

absl::Status Watching::Open(const std::string& address, const std::string& session, int count, int per_connection) {
  v1::WatchSessionRequest request;
  request.set_name(session);
  const std::string message = MessageOf(request);
  for (int i = 0; i < count; ++i) {
    if (i % per_connection == 0) {
      Connection& one = *connections_.emplace_back(std::make_unique<Connection>(address));
      // No window ever stops the server: 2 GiB are more than a run sends on a connection.
      if (!one.http2.SendPreface(kLargestWindow) ||
          !one.http2.SendFrame(RawHttp2::kWindowUpdate, 0, 0, std::string("\x7f\xff\0\0", 4))) {
        return absl::UnavailableError("the server takes no more connections");
      }
      epoll_event event = {.events = EPOLLIN, .data = {.ptr = &one}};
      epoll_ctl(poll_, EPOLL_CTL_ADD, one.http2.descriptor(), &event);
    }
    OpenStream(connections_.back().get(), message);
  }
  return absl::OkStatus();
}

void Watching::OpenStream(Connection* connection, std::string_view request) {
  const auto id = static_cast<uint32_t>(2 * connection->left.size() + 1);
  connection->left.push_back(0);
  connection->started.push_back(false);
  connection->http2.SendHeaders(id, kPath);
  connection->http2.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, id, request);
  ++streams_;
}

absl::Status Watching::ReadUntil(absl::Time end) {
  while (SteadyNow() < end) NORMD_RETURN_IF_ERROR(ReadOnce(end));
  return absl::OkStatus();
}

absl::Status Watching::ReadFirstVersions(absl::Duration patience) {
  const absl::Time end = SteadyNow() + patience;
  while (started_ < streams_ && SteadyNow() < end) NORMD_RETURN_IF_ERROR(ReadOnce(end));
  return started_ == streams_ ? absl::OkStatus() : absl::DeadlineExceededError("watchers wait for the first version");
}

absl::Status Watching::ReadOnce(absl::Time end) {
  std::array<epoll_event, 256> events;
  const auto wait = static_cast<int>(absl::ToInt64Milliseconds(std::max(end - SteadyNow(), absl::ZeroDuration())));
  const int count = epoll_wait(poll_, events.data(), events.size(), wait);
  for (int i = 0; i < count; ++i) {
    auto* const connection = static_cast<Connection*>(events[i].data.ptr);
    const ssize_t got = recv(connection->http2.descriptor(), buffer_.data(), buffer_.size(), 0);
    if (got <= 0) return absl::UnavailableError("a connection of watchers has ended");
    NORMD_RETURN_IF_ERROR(Take(connection, std::string_view(buffer_).substr(0, static_cast<size_t>(got))));
  }
  return absl::OkStatus();
}

absl::Status Watching::Take(Connection* connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const bool in_payload = connection->payload_bytes > 0;
    const size_t wanted = in_payload ? connection->payload_bytes : HeadBytes(*connection) - connection->head.size();
    const size_t taken = std::min(wanted, bytes.size());
    if (in_payload) {
      connection->payload_bytes -= taken;
    } else {
      connection->head.append(bytes.substr(0, taken));
      if (connection->head.size() == HeadBytes(*connection)) NORMD_RETURN_IF_ERROR(TakeHead(connection));
    }
    bytes.remove_prefix(taken);
  }
  return absl::OkStatus();
}

size_t Watching::HeadBytes(const Connection& connection) {
  const std::string& head = connection.head;
  if (head.size() < kFrameHeadBytes || head[3] != RawHttp2::kData || connection.left[StreamOf(head)] > 0) {
    return kFrameHeadBytes;
  }
  return kFrameHeadBytes + kMessageHeadBytes;
}

absl::Status Watching::TakeHead(Connection* connection) {
  const std::string head = std::move(connection->head);
  connection->head.clear();
  const size_t length = FromNetwork(head.substr(0, 3));
  const auto type = static_cast<uint8_t>(head[3]);
  const auto flags = static_cast<uint8_t>(head[4]);
  connection->payload_bytes = length - (head.size() - kFrameHeadBytes);
  const bool ends = (type == RawHttp2::kHeaders || type == RawHttp2::kData) && (flags & RawHttp2::kEndStream) != 0;
  if (ends || type == RawHttp2::kReset || type == RawHttp2::kGoAway) return absl::UnavailableError("a watch has ended");
  // The settings that are not an acknowledgement are acknowledged.
  if (type == RawHttp2::kSettings && flags == 0)
    connection->http2.SendFrame(RawHttp2::kSettings, /*flags: ACK=*/1, 0, "");
  if (type != RawHttp2::kData) return absl::OkStatus();
  const size_t stream = StreamOf(head);
  size_t& left = connection->left[stream];
  if (head.size() > kFrameHeadBytes) left = kMessageHeadBytes + FromNetwork(head.substr(kFrameHeadBytes + 1));
  if (length > left) return absl::InternalError("two messages in a frame are not counted");
  left -= length;
  if (left > 0) return absl::OkStatus();
  ++versions_;
  if (!connection->started[stream]) ++started_;
  connection->started[stream] = true;
  return absl::OkStatus();
}

}  // namespace normd::bench
