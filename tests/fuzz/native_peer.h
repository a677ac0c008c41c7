// A connection of the native transport that a fuzzer is the peer of, with a service whose calls do what their paths
// say. The connection is real: a socket pair, the loop with its thread, nghttp2, the streams and their callbacks.
//   /f/E  echoes each message, whose size it asks for first    /f/H  keeps the heads of messages and answers with one
//   /f/R  answers with 100 KB, then an error with details      /f/F  finishes at once, with trailers
//   /f/C  is cancelled by the server                           /f/I  never reads and never answers
// In the path: in the place of Http2Transport and of the services. Ownership: a peer borrows its service.
// Thread-compatible: one peer at a time. The loop and its thread are shared by all peers of a service.
#ifndef NORMD_TESTS_FUZZ_NATIVE_PEER_H_
#define NORMD_TESTS_FUZZ_NATIVE_PEER_H_

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/net/event_loop.h"
#include "server/rpc/edge/rpc_options.h"
#include "server/rpc/http2/http2_connection.h"
#include "server/rpc/http2/http2_counts.h"

namespace normd::rpc::http2 {

// A bug is an abort that libFuzzer reports with the input.
inline void RequireOfNative(bool condition) {
  if (!condition) std::abort();
}

// A call of the service. Callbacks of its operations keep it alive.
class FuzzedCall : public std::enable_shared_from_this<FuzzedCall> {
 public:
  FuzzedCall(std::shared_ptr<RpcCall> call, std::atomic<int>* alive, size_t reply_bytes)
      : call_(std::move(call)), alive_(alive), reply_bytes_(reply_bytes) {
    ++*alive_;
  }
  ~FuzzedCall() { --*alive_; }
  FuzzedCall(const FuzzedCall&) = delete;
  FuzzedCall& operator=(const FuzzedCall&) = delete;

  void Serve() {
    call_->WhenOver([self = shared_from_this()](const absl::Status&) {});
    call_->VisitMetadata([](std::string_view key, std::string_view value) {
      static std::atomic<size_t> sink;  // reads every byte
      size_t sum = 0;
      for (const char c : key) sum += static_cast<unsigned char>(c);
      for (const char c : value) sum += static_cast<unsigned char>(c);
      sink += sum;
    });
    const std::string& path = call_->method();
    switch (path.size() == 4 ? path[3] : 'F') {
      case 'E':
        return Echo();
      case 'H':
        return TakeHead();
      case 'R':
        return call_->Write(MessageBytes(Slice(std::string(reply_bytes_, 'r'))), [self = shared_from_this()] {
          self->call_->Finish(absl::InternalError("no \xC3\xA4nswer\n"), [self] {});
        });
      case 'C':
        return call_->Cancel();
      case 'I':
        return;
      default:
        call_->AddTrailer("x-why", "asked");
        return call_->Finish(absl::NotFoundError("not here"), [self = shared_from_this()] {});
    }
  }

 private:
  void Echo() {
    call_->ReadSize([self = shared_from_this()](std::optional<int64_t> size) {
      self->call_->Read([self, size](std::optional<MessageBytes> message) {
        if (!message.has_value()) return self->call_->Finish(absl::OkStatus(), [self] {});
        RequireOfNative(size == message->size_bytes());
        self->call_->Write(*std::move(message), [self] { self->Echo(); });
      });
    });
  }

  void TakeHead() {
    call_->ReadSize([self = shared_from_this()](std::optional<int64_t> size) {
      if (!size.has_value()) return self->call_->Finish(absl::InvalidArgumentError(""), [self] {});
      self->call_->ReadHead(
          [self, size = *size](std::optional<MessageBytes> head) {
            if (!head.has_value()) return self->call_->Finish(absl::InvalidArgumentError(""), [self] {});
            RequireOfNative(head->size_bytes() <= size && head->size_bytes() >= std::min(size, RpcCall::kHeadBytes));
            self->call_->WriteAndFinish(*std::move(head), [self] {});
          },
          *size);
    });
  }

  const std::shared_ptr<RpcCall> call_;
  std::atomic<int>* const alive_;
  const size_t reply_bytes_;
};

// What peers share: a loop with its thread, and the service. Ends when its last peer has ended.
class NativeService {
 public:
  explicit NativeService(const RpcOptions& options, size_t reply_bytes = 100'000)
      : options_(options), on_call_([this, reply_bytes](std::shared_ptr<RpcCall> call) {
          std::make_shared<FuzzedCall>(std::move(call), &alive_calls_, reply_bytes)->Serve();
        }) {
    RequireOfNative(loop_.Open().ok());
    loop_.Start();
  }
  NativeService(const NativeService&) = delete;
  NativeService& operator=(const NativeService&) = delete;

  net::EventLoop& loop() { return loop_; }
  int alive_calls() const { return alive_calls_; }
  Http2Connection::Host host() {
    return {.loop = &loop_,
            .options = &options_,
            .on_call = &on_call_,
            .calls = {&live_, &connections_},
            .counts = &counts_};
  }

 private:
  const RpcOptions options_;
  std::atomic<int> alive_calls_{0};
  const RpcTransport::OnCall on_call_;
  LiveCalls live_;
  ConnectionTable connections_{ConnectionLimits()};
  Http2Counts counts_;
  net::EventLoop loop_;
};

class NativePeer {
 public:
  // Of a service that all peers of the process share and that is never destroyed, like the process that is fuzzed.
  NativePeer() : NativePeer(Shared()) {}
  explicit NativePeer(NativeService& service) : service_(service) {
    int fds[2];
    RequireOfNative(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    fd_ = fds[0];
    OnLoop([this, own = fds[1]] {
      std::make_shared<Http2Connection>(service_.host(), Connection::Facts{.peer = "fuzz"},
                                        std::make_shared<PeerCalls>())
          ->Open(UniqueFd(own));
    });
  }
  // However the peer has left things, the connection ends with its socket, and no call outlives it.
  ~NativePeer() {
    close(fd_);
    const auto is_over = [this] { return service_.loop().size() == 0 && service_.alive_calls() == 0; };
    for (int turns = 0; turns < 8 && !is_over(); ++turns) Settle();
    RequireOfNative(is_over());
  }
  NativePeer(const NativePeer&) = delete;
  NativePeer& operator=(const NativePeer&) = delete;

  // Sends the bytes while the connection takes them, and drops what comes meanwhile.
  void Send(std::string_view bytes) {
    for (int stalls = 0; !bytes.empty() && stalls < 100; ++stalls) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
      if (sent < 0 && errno != EAGAIN) return;
      if (bytes.empty()) return;
      Settle();
      Receive();
    }
  }
  // Drops what has come.
  void Receive() {
    static char dropped[64 << 10];
    while (recv(fd_, dropped, sizeof(dropped), 0) > 0) {
    }
  }
  // Returns when the connection has taken what was sent. A turn of the loop looks at its sockets first.
  void Settle() {
    for (int turns = 0; turns < 2; ++turns) OnLoop([] {});
  }
  void Drain() {
    OnLoop([this] {
      for (const auto& handler : service_.loop().handlers()) static_cast<Http2Connection&>(*handler).Drain();
    });
  }
  // The peer's end of the connection; does not block.
  int fd() const { return fd_; }

 private:
  static NativeService& Shared() {
    static NativeService* const service = [] {
      RpcOptions options;
      options.max_message_bytes = 1 << 20;
      options.max_concurrent_streams = 8;
      options.max_metadata_bytes = 4096;
      return new NativeService(options);
    }();
    return *service;
  }
  // Runs `task` on the loop, and waits until it has run.
  template <typename Task>
  void OnLoop(Task task) {
    std::promise<void> done;
    service_.loop().Post([&task, &done] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

  NativeService& service_;
  int fd_ = -1;
};

}  // namespace normd::rpc::http2

#endif  // NORMD_TESTS_FUZZ_NATIVE_PEER_H_
