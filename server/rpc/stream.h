// One RPC on a completion queue: messages in, messages out, a status. Unary calls are streams of one message each way.
// In the path: made by Dispatcher when headers arrive, handed to the method's code, which reads, writes and finishes.
// Ownership: shared; an operation under way holds a reference, so that a handler may forget the stream at any time. It
// must Finish it, or the caller waits.
// Threads: Read is called from one thread at a time; everything else is safe from any thread. Callbacks run on the
// queue's thread with no lock held and must not block it.
#ifndef NORMD_SERVER_RPC_STREAM_H_
#define NORMD_SERVER_RPC_STREAM_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/rpc/tag.h"

namespace normd::rpc {

// How many streams exist, so that a server can wait for the last one. Must outlive them.
class LiveCount {
 public:
  void Add();
  void Remove();
  void WaitForNone();

 private:
  Mutex mu_;
  CondVar none_;
  int count_ ABSL_GUARDED_BY(mu_) = 0;
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  using OnArrival = absl::AnyInvocable<void(std::shared_ptr<Stream>)>;
  using OnRead = absl::AnyInvocable<void(std::optional<grpc::ByteBuffer>)>;
  using Callback = absl::AnyInvocable<void()>;

  // Waits for one RPC; `on_arrival` gets it at its headers, or null when the server shuts down.
  static void Accept(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue, LiveCount* live,
                     OnArrival on_arrival);

  explicit Stream(LiveCount* live) : live_(live) { live_.count->Add(); }

  // "/normd.v1.Normalizer/Normalize"
  const std::string& method() const { return context_.method(); }

  // "ipv4:127.0.0.1:40112", "unix:": the connection's other end.
  std::string peer() const { return context_.peer(); }
  // The same number for the same other end, which others hardly have; one for all who come through a Unix socket.
  uint64_t caller() const { return std::hash<std::string>()(peer()); }
  // Of the caller; InfiniteFuture where it set none.
  absl::Time deadline() const;
  // Whether the caller came through a Unix socket.
  bool is_local() const { return peer().compare(0, 5, "unix:") == 0; }
  // How many bytes the caller says that its message has (wire::kMessageBytesKey in its metadata); 0 where it says
  // nothing.
  int64_t AnnouncedBytes() const;

  // One message, or nothing when the caller half-closed, was cancelled, or sent one over the size limit.
  // REQUIRES: no Read is under way.
  void Read(OnRead on_read);

  // Queued behind earlier writes. `written`, if any, runs when the transport has taken the message or never will.
  void Write(grpc::ByteBuffer message, Callback written = nullptr);

  // Tells clients that retry by themselves to wait. REQUIRES: before Finish.
  void SetRetryPushback();

  // After the queued writes. Later writes and finishes are dropped.
  void Finish(grpc::Status status);

  // Both at once, so that message and status leave in one packet.
  void WriteAndFinish(grpc::ByteBuffer message, grpc::Status status, Callback written = nullptr);

  // The caller went away, or the deadline has passed.
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

  // Runs once when that happens, at once if it already has. One callback at most for a stream.
  void OnCancelled(Callback callback);

 private:
  struct PendingWrite {
    grpc::ByteBuffer message;
    Callback written;
  };
  struct LiveToken {
    explicit LiveToken(LiveCount* live) : count(live) {}
    ~LiveToken() { count->Remove(); }
    LiveCount* const count;
  };

  void HandleDone();
  // Starts the next write or the finish unless one is under way.
  void Pump();
  void HandleWritten(Callback written);

  // Constant after construction. The token is first: it goes last.
  const LiveToken live_;

  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  Tag arrival_tag_, done_tag_, read_tag_, write_tag_;
  grpc::ByteBuffer incoming_;  // touched by the Read under way alone
  std::atomic<bool> cancelled_{false};

  Mutex mu_;
  std::vector<PendingWrite> writes_ ABSL_GUARDED_BY(mu_);
  std::optional<grpc::Status> finish_ ABSL_GUARDED_BY(mu_);
  bool busy_ ABSL_GUARDED_BY(mu_) = false;  // a write or the finish is under way; stays so after the finish
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  Callback on_cancelled_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_STREAM_H_
