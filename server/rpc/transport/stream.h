// One RPC on a completion queue: messages in, messages out, a status. Unary calls are streams of one message each way.
// In the path: made by Dispatcher when headers arrive, handed to the method's code, which reads, writes and finishes.
// Ownership: shared; an operation under way holds a reference, so that a handler may forget the stream at any time. It
// must Finish it, or the caller waits.
// Threads: Read is called from one thread at a time; everything else is safe from any thread. Callbacks run on the
// queue's thread with no lock held and must not block it.
#ifndef NORMD_SERVER_RPC_TRANSPORT_STREAM_H_
#define NORMD_SERVER_RPC_TRANSPORT_STREAM_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/rpc/transport/connection.h"
#include "server/rpc/transport/live_streams.h"
#include "server/rpc/transport/tag.h"

namespace normd::rpc {

// What streams need of the server around them. Must outlive them.
struct StreamHost {
  LiveStreams* live = nullptr;
  ConnectionTable* connections = nullptr;
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  using OnArrival = absl::AnyInvocable<void(std::shared_ptr<Stream>)>;
  using OnRead = absl::AnyInvocable<void(std::optional<grpc::ByteBuffer>)>;
  using Callback = absl::AnyInvocable<void()>;

  // Waits for one RPC; `on_arrival` gets it at its headers, or null when the server shuts down.
  static void Accept(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue, const StreamHost& host,
                     OnArrival on_arrival);

  // One that waits for its call, and that `host` knows of.
  static std::shared_ptr<Stream> Make(const StreamHost& host);

  explicit Stream(const StreamHost& host);  // for Make alone
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // "/normd.v1.Normalizer/Normalize"
  const std::string& method() const { return context_.method(); }

  // The connection that it came through: never null once it has arrived.
  const ConnectionPtr& connection() const { return connection_; }
  // "ipv4:127.0.0.1:40112", or "fd:17" for a Unix socket: one connection's name while it lasts.
  const std::string& peer() const { return connection_->peer(); }
  // The same number for the same connection, which others hardly have.
  uint64_t caller() const { return connection_->key(); }
  // Of the caller, by SteadyNow; InfiniteFuture where it set none.
  absl::Time deadline() const;
  // Whether the caller came through a Unix socket.
  bool is_local() const { return connection_->is_unix(); }
  // How many bytes the caller says that its message has (wire::kMessageBytesKey in its metadata); 0 where it says
  // nothing.
  int64_t AnnouncedBytes() const;

  // One message, or nothing when the caller half-closed, was cancelled, sent one over the size limit, or when reading
  // was ended. `expected_bytes` over 0 says that a message of at most so many bytes is on its way, which must get on;
  // 0 waits for one as long as it takes. `reserved`: there is room for its bytes already, and its connection does not
  // answer for them.
  // REQUIRES: no Read is under way.
  void Read(OnRead on_read, int64_t expected_bytes = 0, bool reserved = false);

  // Nothing more is read: a Read that waits ends without a message, and so do those to come. A stream that this cuts
  // short ends with `why`, whatever Finish is told; one that had read all that it wanted does not notice. With
  // `keep_current` a message that is on its way may still come.
  void EndReading(absl::Status why, bool keep_current = false);
  // Why reading was cut short; OK if it was not.
  absl::Status read_error() const;

  // Queued behind earlier writes. `written`, if any, runs when the transport has taken the message or never will.
  void Write(grpc::ByteBuffer message, Callback written = nullptr);

  // What is on its way, for who watches that it gets on. `moved_bytes` is what the connection has carried since the
  // watch first asked; nothing where that is not known.
  struct Progress {
    absl::Duration elapsed;
    int64_t bytes = 0;
    std::optional<int64_t> moved_bytes;
  };
  bool in_progress() const { return reading_message_ || writing_message_; }
  std::optional<Progress> ReadProgress(absl::Time now);
  std::optional<Progress> WriteProgress(absl::Time now) const;

  bool arrived() const { return arrived_.load(); }

  // The caller took the call back, or opened it against the rules: counted against its connection, which is closed when
  // that goes on and on.
  void CountReset(double weight = 1);

  // Ends the call as if the caller had gone.
  void Cancel() { context_.TryCancel(); }

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
  // A message on its way.
  struct Transfer {
    absl::Time since;
    int64_t bytes = 0;                      // at most so many
    std::optional<int64_t> received_bytes;  // of the connection, when it was first looked at
  };

  void HandleArrival();
  void HandleDone();
  void HandleRead(bool ok);
  // Starts the next write or the finish unless one is under way.
  void Pump();
  void HandleWritten(Callback written);

  const LiveStreams::LeaveAtEnd leave_at_end_;  // first: the server waits until everything below is gone
  const StreamHost host_;
  LiveStreams::Place place_;
  ConnectionPtr connection_;  // constant after the arrival

  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  Tag arrival_tag_, done_tag_, read_tag_, write_tag_;
  grpc::ByteBuffer incoming_;  // touched by the Read under way alone
  std::atomic<bool> arrived_{false};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> reading_message_{false};
  std::atomic<bool> writing_message_{false};

  mutable Mutex mu_;
  OnRead on_read_ ABSL_GUARDED_BY(mu_);               // of the Read under way
  Transfer read_ ABSL_GUARDED_BY(mu_);                // while reading_message_
  Transfer write_ ABSL_GUARDED_BY(mu_);               // while writing_message_
  absl::Status end_of_reading_ ABSL_GUARDED_BY(mu_);  // not OK: nothing more is read
  bool read_cut_ ABSL_GUARDED_BY(mu_) = false;        // and a Read was to be had after that
  std::list<PendingWrite> writes_ ABSL_GUARDED_BY(mu_);
  std::optional<grpc::Status> finish_ ABSL_GUARDED_BY(mu_);
  bool busy_ ABSL_GUARDED_BY(mu_) = false;  // a write or the finish is under way; stays so after the finish
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  Callback on_cancelled_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_STREAM_H_
