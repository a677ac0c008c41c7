#include "tests/support/raw_http2.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace normd {
namespace {

constexpr size_t kFrameHeaderBytes = 9;
constexpr size_t kMaxFrameBytes = 16384;
using Clock = std::chrono::steady_clock;

std::string BigEndian(uint32_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i) & 0xFF);
  return text;
}

nghttp2_hd_inflater* NewInflater() {
  nghttp2_hd_inflater* inflater = nullptr;
  return nghttp2_hd_inflate_new(&inflater) == 0 ? inflater : nullptr;
}

uint32_t FromBigEndian(std::string_view text) {
  uint32_t value = 0;
  for (const char c : text) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

// HPACK (RFC 7541, 6.2.2): literal without indexing, new name, no Huffman code.
void AppendField(std::string_view name, std::string_view value, std::string* block) {
  *block += '\0';
  for (const std::string_view text : {name, value}) {
    if (text.size() < 127) {
      *block += static_cast<char>(text.size());
    } else {
      *block += static_cast<char>(127);
      size_t rest = text.size() - 127;
      for (; rest >= 128; rest /= 128) *block += static_cast<char>(rest % 128 + 128);
      *block += static_cast<char>(rest);
    }
    block->append(text);
  }
}

int ConnectTo(const std::string& target) {
  if (target.compare(0, 5, "unix:") == 0) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    target.copy(address.sun_path, sizeof(address.sun_path) - 1, 5);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
    close(fd);
    return -1;
  }
  const size_t colon = target.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(target.c_str() + colon + 1)));
  inet_pton(AF_INET, target.substr(0, colon).c_str(), &address.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd);
    return -1;
  }
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  return fd;
}

}  // namespace

RawHttp2::RawHttp2(const std::string& target)
    : fd_(ConnectTo(target)), inflater_(NewInflater(), nghttp2_hd_inflate_del) {}

RawHttp2::~RawHttp2() {
  if (fd_ >= 0) close(fd_);
}

bool RawHttp2::SendBytes(std::string_view bytes) {
  while (!bytes.empty() && fd_ >= 0) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      closed_ = true;
      return false;
    }
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return fd_ >= 0;
}

bool RawHttp2::SendPreface(uint32_t initial_window) {
  if (!SendBytes("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) return false;
  return SendFrame(kSettings, 0, 0, BigEndian(4, 2) + BigEndian(initial_window, 4));
}

bool RawHttp2::SendFrame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  std::string frame = BigEndian(static_cast<uint32_t>(payload.size()), 3);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  frame += BigEndian(stream, 4);
  frame += payload;
  return SendBytes(frame);
}

bool RawHttp2::SendHeaders(uint32_t stream, std::string_view path, const Fields& extra) {
  std::string block;
  AppendField(":method", "POST", &block);
  AppendField(":scheme", "http", &block);
  AppendField(":path", path, &block);
  AppendField(":authority", "test", &block);
  AppendField("te", "trailers", &block);
  AppendField("content-type", "application/grpc", &block);
  for (const auto& [name, value] : extra) AppendField(name, value, &block);
  return SendFrame(kHeaders, kEndHeaders, stream, block);
}

bool RawHttp2::SendReset(uint32_t stream) { return SendFrame(kReset, 0, stream, BigEndian(8, 4)); }

int64_t& RawHttp2::WindowOf(uint32_t stream) { return windows_.try_emplace(stream, initial_window_).first->second; }

size_t RawHttp2::SendData(uint32_t stream, std::string_view bytes, std::chrono::milliseconds limit, bool end_stream) {
  const auto end = Clock::now() + limit;
  size_t sent = 0;
  while (sent < bytes.size() && !closed_ && !ended(stream)) {
    // What the server has said about its windows, without waiting for more.
    while (Receive(std::chrono::milliseconds(0)).has_value()) {
    }
    const int64_t window = std::min(WindowOf(stream), connection_window_);
    const auto now = Clock::now();
    if (window <= 0) {
      if (now >= end) break;
      Fill(std::chrono::duration_cast<std::chrono::milliseconds>(end - now));
      continue;
    }
    const size_t size = std::min({bytes.size() - sent, static_cast<size_t>(window), kMaxFrameBytes});
    const bool last = sent + size == bytes.size();
    if (!SendFrame(kData, last && end_stream ? kEndStream : 0, stream, bytes.substr(sent, size))) break;
    WindowOf(stream) -= static_cast<int64_t>(size);
    connection_window_ -= static_cast<int64_t>(size);
    sent += size;
  }
  return sent;
}

bool RawHttp2::Fill(std::chrono::milliseconds limit) {
  pollfd poll_fd = {.fd = fd_, .events = POLLIN, .revents = 0};
  if (closed_ || fd_ < 0 || poll(&poll_fd, 1, static_cast<int>(limit.count())) != 1) return false;
  char buffer[65536];
  const ssize_t got = recv(fd_, buffer, sizeof(buffer), 0);
  if (got <= 0) {
    closed_ = true;
    return false;
  }
  received_.append(buffer, static_cast<size_t>(got));
  return true;
}

std::optional<Http2Frame> RawHttp2::Receive(std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (true) {
    if (received_.size() >= kFrameHeaderBytes) {
      const size_t length = FromBigEndian(std::string_view(received_).substr(0, 3));
      if (received_.size() >= kFrameHeaderBytes + length) {
        Http2Frame frame;
        frame.type = static_cast<uint8_t>(received_[3]);
        frame.flags = static_cast<uint8_t>(received_[4]);
        frame.stream = FromBigEndian(std::string_view(received_).substr(5, 4)) & 0x7FFFFFFF;
        frame.payload = received_.substr(kFrameHeaderBytes, length);
        received_.erase(0, kFrameHeaderBytes + length);
        if (frame.type == kWindowUpdate) {
          int64_t& window = frame.stream == 0 ? connection_window_ : WindowOf(frame.stream);
          window += FromBigEndian(frame.payload);
        }
        // A window that SETTINGS announce counts once they are acknowledged, which this client does not do.
        if (frame.type == kHeaders) headers_[frame.stream] = Decode(frame.payload);
        const bool carries_end = frame.type == kHeaders || frame.type == kData;
        if (frame.type == kReset || (carries_end && (frame.flags & kEndStream) != 0)) ended_.insert(frame.stream);
        return frame;
      }
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (!Fill(std::max(left, std::chrono::milliseconds(0)))) return std::nullopt;
  }
}

bool RawHttp2::WaitForEnd(uint32_t stream, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (!ended(stream)) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() < 0 || !Receive(left).has_value()) return ended(stream);
  }
  return true;
}

std::string RawHttp2::Decode(std::string_view block) {
  std::string text;
  const auto* at = reinterpret_cast<const uint8_t*>(block.data());
  size_t left = block.size();
  for (int flags = 0; (flags & NGHTTP2_HD_INFLATE_FINAL) == 0;) {
    nghttp2_nv field{};
    const ssize_t taken = nghttp2_hd_inflate_hd2(inflater_.get(), &field, &flags, at, left, /*in_final=*/1);
    if (taken < 0) return text;
    at += taken;
    left -= static_cast<size_t>(taken);
    if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
      text.append(reinterpret_cast<const char*>(field.name), field.namelen).append(": ");
      text.append(reinterpret_cast<const char*>(field.value), field.valuelen).append("\n");
    } else if (left == 0 && (flags & NGHTTP2_HD_INFLATE_FINAL) == 0) {
      return text;
    }
  }
  nghttp2_hd_inflate_end_headers(inflater_.get());
  return text;
}

bool RawHttp2::WaitForBytes(std::string_view bytes, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (received_.size() < bytes.size() && !closed_ && Clock::now() < end) {
    Fill(std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()));
  }
  return received_.starts_with(bytes);
}

bool RawHttp2::WaitForClose(std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (!closed_ && Clock::now() < end) {
    received_.clear();
    Fill(std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()));
  }
  return closed_;
}

bool RawHttp2::LastHeadersContain(uint32_t stream, std::string_view text) const {
  const auto found = headers_.find(stream);
  return found != headers_.end() && found->second.find(text) != std::string::npos;
}

}  // namespace normd
