#include "tests/amplification/normd_fixture.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <iostream>
#include <map>
#include <utility>

#include "server/options/config.h"
#include "tests/amplification/cost_meter.h"
#include "tests/amplification/row_fixture.h"
#include "tests/amplification/wire.h"

namespace normd {
namespace {

using namespace wire_bytes;  // NOLINT(google-build-using-namespace): the words of the table

// How many calls may be open at the same time: fewer than the server allows.
constexpr size_t kCallsAtOnce = 8;

void SetPatience(const UniqueFd& fd) {
  const timeval patience = {.tv_sec = 20, .tv_usec = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

// With windows as large as they can be, so that nothing waits for the caller.
std::string OpenPreface() {
  const std::string most = BigEndian(0x7FFFFFFF);
  return std::string(rpc::http2::kMagic) + Frame(kSettings, 0, 0, std::string("\0\4", 2) + most) +
         Frame(kWindowUpdate, 0, 0, BigEndian(0x7FFF0000)) + Frame(kSettings, kAck, 0, "");
}

// HTTP/2's default; what the server adds to it is taken as it comes.
constexpr int64_t kFirstWindowBytes = 65'535;
constexpr size_t kFrameBytes = 16'000;

// The frames of one call that are still to be sent, and how much of their data may be.
struct OpenCall {
  std::deque<std::string> frames;
  int64_t window_bytes = kFirstWindowBytes;
};

std::deque<std::string> CallFrames(uint32_t stream, std::string_view path, std::string_view body) {
  std::deque<std::string> frames = {Frame(kHeaders, kEndHeaders, stream, RequestFields(path))};
  do {
    const std::string_view piece = body.substr(0, kFrameBytes);
    body.remove_prefix(piece.size());
    frames.push_back(Frame(kData, body.empty() ? kEndStream : 0, stream, piece));
  } while (!body.empty());
  return frames;
}

// A connection's calls: sends what their windows allow, and follows the frames of the server, whose contents it drops
// but for windows and ends.
class Calls {
 public:
  Calls(const UniqueFd& fd, std::map<uint32_t, OpenCall> calls) : fd_(fd), waiting_(std::move(calls)) {}

  // Returns whether all calls were answered.
  bool Run() {
    static char received[256 << 10];
    while (!waiting_.empty() || !open_.empty()) {
      if (!SendSome()) return false;
      const ssize_t got = recv(fd_.get(), received, sizeof(received), 0);
      if (got <= 0) return false;
      Take({received, static_cast<size_t>(got)});
    }
    return true;
  }
  size_t unanswered() const { return waiting_.size() + open_.size(); }

 private:
  bool SendSome() {
    while (!waiting_.empty() && open_.size() < kCallsAtOnce) open_.insert(waiting_.extract(waiting_.begin()));
    for (auto& [stream, call] : open_) {
      while (!call.frames.empty() && static_cast<int64_t>(call.frames.front().size()) <= call.window_bytes) {
        if (static_cast<uint8_t>(call.frames.front()[3]) == kData) {
          call.window_bytes -= static_cast<int64_t>(call.frames.front().size() - rpc::http2::kFrameHeaderBytes);
        }
        if (!SendWhole(fd_, call.frames.front())) return false;
        call.frames.pop_front();
      }
    }
    return true;
  }

  void Take(std::string_view bytes) {
    received_.append(bytes);
    size_t begin = 0;
    while (received_.size() - begin >= rpc::http2::kFrameHeaderBytes) {
      const size_t size = Number(begin, 3);
      if (received_.size() - begin < rpc::http2::kFrameHeaderBytes + size) break;
      OnFrame(begin);
      begin += rpc::http2::kFrameHeaderBytes + size;
    }
    received_.erase(0, begin);
  }
  void OnFrame(size_t begin) {
    const size_t type = Number(begin + 3, 1), flags = Number(begin + 4, 1);
    const auto call = open_.find(static_cast<uint32_t>(Number(begin + 5, 4)));
    if (call == open_.end()) return;
    if (type == kWindowUpdate) call->second.window_bytes += static_cast<int64_t>(Number(begin + 9, 4));
    const bool ends = (type == kHeaders || type == kData) && (flags & kEndStream) != 0;
    if (ends || type == kReset) open_.erase(call);
  }
  size_t Number(size_t at, size_t bytes) const {
    size_t number = 0;
    for (size_t i = 0; i < bytes; ++i) number = number << 8 | static_cast<unsigned char>(received_[at + i]);
    return number;
  }

  const UniqueFd& fd_;
  std::map<uint32_t, OpenCall> waiting_;
  std::map<uint32_t, OpenCall> open_;
  std::string received_;
};

uint32_t StreamOf(int call) { return static_cast<uint32_t>(2 * call + 1); }

}  // namespace

std::string Packed(const google::protobuf::MessageLite& message) { return Message(message.SerializeAsString()); }

UniqueFd ConnectToPath(const std::string& path, int type) {
  UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0) << path;
  SetPatience(fd);
  return fd;
}

UniqueFd ConnectToPort(int port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0) << port;
  SetPatience(fd);
  return fd;
}

bool SendWhole(const UniqueFd& fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

WholeNormd::WholeNormd(const std::vector<std::string>& options)
    : log_({.level = LogLevel::kError, .out = &std::cerr}, &clock_) {
  char name[] = "/tmp/normd-cost-XXXXXX";
  folder_ = mkdtemp(name);
  unix_path_ = folder_ + "/s";
  std::vector<std::string> arguments = {"--listen=127.0.0.1:0,unix:" + unix_path_,
                                        "--admin_listen=127.0.0.1:0",
                                        "--session_store=memory",
                                        "--queues=1",
                                        "--cuda=off",
                                        "--reflection=on",
                                        "--audit_log=" + folder_ + "/audit"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const absl::StatusOr<Config> config = ParseConfig(arguments, {});
  if (!config.ok()) ADD_FAILURE() << config.status();
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(*config, &log_);
  if (!server.ok()) ADD_FAILURE() << server.status();
  server_ = *std::move(server);
  for (const std::string& listener : server_->listeners()) {
    const int port = std::atoi(listener.c_str() + listener.rfind(':') + 1);
    if (listener.starts_with("grpc=127")) tcp_port_ = port;
    if (listener.starts_with("admin=")) admin_port_ = port;
  }
}

WholeNormd::~WholeNormd() {
  server_.reset();
  std::filesystem::remove_all(folder_);
}

std::string WholeNormd::WireOf(std::string_view path, std::string_view body, int calls) {
  std::string bytes;
  for (int i = 0; i < calls; ++i) {
    for (const std::string& frame : CallFrames(StreamOf(i), path, body)) bytes += frame;
  }
  return bytes;
}

Cost WholeNormd::Call(std::string_view path, std::string_view body, int calls) {
  std::map<uint32_t, OpenCall> frames;
  for (int i = 0; i < calls; ++i) frames[StreamOf(i)].frames = CallFrames(StreamOf(i), path, body);
  const UniqueFd fd = ConnectToPath(unix_path_, SOCK_STREAM);
  EXPECT_TRUE(SendWhole(fd, OpenPreface()));
  Calls all(fd, std::move(frames));
  const CostMeter meter;
  EXPECT_TRUE(all.Run()) << path << ": " << all.unanswered() << " of " << calls << " calls were not answered";
  return meter.Read();
}

void WholeNormd::ExpectWithinBound(const std::string& name, std::string_view path, std::string_view body, int calls,
                                   Units per_call) {
  const std::string wire = WireOf(path, body, calls);
  Units units = CountUnits(wire);
  units.messages = calls * per_call.messages;
  units.requests = calls * per_call.requests;
  units.batch_items = calls * per_call.batch_items;
  units.stored_bytes = calls * per_call.stored_bytes;
  normd::ExpectWithinBound(name, units, [&] { return Call(path, body, calls); });
}

}  // namespace normd
