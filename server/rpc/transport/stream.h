// One RPC: messages in, messages out, a status. A unary call is a stream with one message each way. Adds to the
// transport's call what all transports share: queued writes, cuts, progress, traces and audits.
// In the path: the dispatcher makes a Stream of each call of a transport and hands it to the method's code at the
// headers; that code reads, writes and finishes.
// Ownership: shared. An operation in progress holds a reference, so a handler may drop its own at any time; but it must
// call Finish first, or the caller waits for ever.
// Threads: Read is called from one thread at a time; everything else is safe from any thread. Callbacks run with no
// lock held, usually on the queue's thread, and must not block.
#ifndef NORMD_SERVER_RPC_TRANSPORT_STREAM_H_
#define NORMD_SERVER_RPC_TRANSPORT_STREAM_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/rpc/transport/audit_record.h"
#include "server/rpc/transport/call_places.h"
#include "server/rpc/transport/call_trace.h"
#include "server/rpc/transport/connection.h"
#include "server/rpc/transport/live_streams.h"
#include "server/rpc/transport/observer.h"
#include "server/rpc/transport/transport_call.h"
#include "server/security/identity.h"

namespace normd::rpc {

// The parts of the server that streams use. Both must outlive all streams.
struct StreamHost {
  LiveStreams* live = nullptr;
  ConnectionTable* connections = nullptr;
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  using OnRead = TransportCall::OnRead;
  using Callback = TransportCall::Callback;

  // Makes the stream of a call that has just arrived, and adds it to `host.live`. Called on the transport's thread.
  static std::shared_ptr<Stream> Make(const StreamHost& host, std::unique_ptr<TransportCall> call);

  Stream(const StreamHost& host, std::unique_ptr<TransportCall> call);  // used by Make only
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // "/normd.v1.Normalizer/Normalize"
  const std::string& method() const { return call_->method(); }

  // The connection of the call; never null.
  const ConnectionPtr& connection() const { return call_->connection(); }
  // "ipv4:127.0.0.1:40112", or "fd:17" for a Unix socket: unique among the connections that are open.
  const std::string& peer() const { return connection()->peer(); }
  // Key for fair queueing: equal for all calls of one connection; other connections almost always differ.
  uint64_t caller() const { return connection()->key(); }
  // The caller's deadline by SteadyNow; InfiniteFuture if the caller set none.
  absl::Time deadline() const { return call_->deadline(); }
  // When the call's headers came, by SteadyNow.
  absl::Time arrival_time() const { return arrival_time_; }
  // Keeps the call's place until the stream is destroyed, or until GiveUpPlace. Called on the queue's thread, before
  // the handler has the stream.
  void KeepPlace(CallPlace place) { call_place_ = std::move(place); }
  void GiveUpPlace() { call_place_ = CallPlace(); }
  // Where the call came from, for the observer; its tenant is kNoTenant before SetTenantIndex.
  RequestOrigin origin() const;
  void SetTenantIndex(int tenant) { tenant_index_ = tenant; }
  // Reads what the headers say for logs and traces. Called once, before anything is reported of the call.
  void ReadTrace(const RpcObserver* observer);
  const CallTrace& trace() const { return trace_; }
  // Says that the call, which was denied, is not recorded, whatever its caller asks for.
  void ForgetTrace() { trace_.span.sampled = false; }
  // Whether the caller came through a Unix socket.
  bool is_local() const { return connection()->is_unix(); }
  // Whether the call came over TLS.
  bool is_encrypted() const { return call_->tls_peer()->is_encrypted; }
  // The name in the caller's certificate, as in TlsPeer: "uri:spiffe://prod/trainer"; empty without a certificate.
  const std::string& PeerCertificateName() const { return call_->tls_peer()->certificate_name; }
  // What the access check remembers for the calls of this call's connection.
  AccessMemory* access_memory() const { return &call_->tls_peer()->access_memory; }
  // The values of the headers `authorization`, which live as long as the stream.
  absl::InlinedVector<std::string_view, 1> Authorization() const;
  // Who makes the call: not null once the call was let in. SetIdentity is called before that, on the queue's thread.
  const IdentityPtr& identity() const { return identity_; }
  void SetIdentity(IdentityPtr identity) { identity_ = std::move(identity); }

  // Reports the call to `sink`, which may be null and must outlive the stream, when it ends. `denied` is as in
  // AuditRecord.
  void BeginAudit(const AuditSink* sink, std::string_view denied = {});
  // Says which session the call is about, and for a fork, of which other one. No effect if the call is not audited.
  void NoteSession(std::string session, std::string source = {});
  // Reports the call now, because what the audit is about is over; the call itself may go on.
  void EndAudit(absl::StatusCode code);

  // The size of the first message, as far as the headers announce it; 0 if they do not. INVALID_ARGUMENT if they
  // announce what is no number, or two sizes that differ.
  absl::StatusOr<int64_t> AnnouncedBytes() const;

  // Finds the size of the coming message, as TransportCall::ReadSize does. `expected_bytes` is as for Read. REQUIRES:
  // no Read or ReadSize is in progress.
  void ReadSize(TransportCall::OnSize on_size, int64_t expected_bytes = 0);

  // Reads one message. `on_read` gets nullopt when the caller half-closed, was cancelled, or sent a message over the
  // size limit, and when reading was ended. An `expected_bytes` over 0 says that a message of at most this size is on
  // its way, which must make progress; with 0, the stream waits for a message as long as it takes. `reserved` says that
  // the bytes are already reserved, so that they do not count as undelivered bytes of the connection. REQUIRES: no
  // other Read is in progress.
  void Read(OnRead on_read, int64_t expected_bytes = 0, bool reserved = false);

  // Reads the message of `message_bytes`, a size which ReadSize has told, and keeps only its beginning, as
  // TransportCall::ReadHead does. Otherwise as Read.
  void ReadHead(OnRead on_read, int64_t message_bytes);

  // Ends reading: a waiting Read and all later ones end without a message. If that cuts the stream short, it ends with
  // `why`, whatever status Finish gets; a stream that had read everything it wanted is not affected. With
  // `keep_current`, a message that is on its way may still arrive.
  void EndReading(absl::Status why, bool keep_current = false);
  // Why reading was cut short; OK if it was not.
  absl::Status read_error() const;

  // Queues a message behind earlier writes. `written`, if any, runs when the transport has taken the message or never
  // will.
  void Write(MessageBytes message, Callback written = nullptr);

  // The progress of the message that is on its way, for TransferWatch.
  struct Progress {
    absl::Duration elapsed;
    int64_t bytes = 0;  // the most that the message may have
    // The bytes that the connection has received since the first look at this message; nullopt if that is not known.
    std::optional<int64_t> moved_bytes;
  };
  bool in_progress() const { return reading_message_ || writing_message_; }
  // Since when the stream has waited for a message of which nothing has come, as long as that takes: by SteadyNow, in
  // nanoseconds since the Unix epoch. 0 while it does not.
  int64_t waiting_since() const { return waiting_since_.load(std::memory_order_relaxed); }
  std::optional<Progress> ReadProgress(absl::Time now);
  std::optional<Progress> WriteProgress(absl::Time now) const;

  // Counts a call that its caller cancelled, or opened beyond the limit, against the connection, and resets the
  // connection if there are too many.
  void CountReset(double weight = 1);

  // Ends the call as if the caller had gone.
  void Cancel() { call_->Cancel(); }

  // Puts the text, which is visible ASCII, into the trailers as the call's explanation. REQUIRES: Finish was not
  // called.
  void SetExplanation(const std::string& text);

  // Tells clients that retry automatically how long to wait. REQUIRES: Finish was not called.
  void SetRetryPushback();

  // Ends the call after the queued writes. Later writes and finishes are dropped. `written`, if any, runs when the
  // transport has taken the status, or is destroyed.
  void Finish(const absl::Status& status, Callback written = nullptr);

  // Does Write and Finish with OK at once, so that message and status leave in one packet.
  void WriteAndFinish(MessageBytes message, Callback written = nullptr);

  // Whether the caller is gone, or the deadline has passed.
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

  // Why the call was cancelled, as far as the transport knows; OK while it was not.
  absl::Status over_error() const;

  // Runs `callback` once when the call is cancelled, at once if it already was. A stream takes at most one callback.
  void OnCancelled(Callback callback);

 private:
  struct PendingWrite {
    MessageBytes message;
    Callback written;
  };
  // A message that is on its way.
  struct Transfer {
    absl::Time since;
    int64_t bytes = 0;                      // the most that the message may have
    std::optional<int64_t> received_bytes;  // of the connection, at the first look at the message
  };

  // A call that is to be reported.
  struct Audit {
    const AuditSink* sink;
    AuditRecord record;
  };

  // How the call ends.
  struct End {
    RpcStatus status;
    Trailers trailers;
  };

  void HandleOver(const absl::Status& end);
  // Notes that a message of at most `bytes` is on its way, or with 0, that one is waited for.
  void ExpectMessage(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes that neither is so any more.
  void ExpectNothing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Begins a Read, or returns false when reading was ended; `on_read` has its answer in that case.
  bool BeginRead(OnRead on_read, int64_t expected_bytes);
  void HandleSize(std::optional<int64_t> bytes);
  void HandleRead(std::optional<MessageBytes> message);
  // Adds what the trailers say of every call that asked, or failed.
  void AddTrailers(bool ok) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Starts the next write or the finish unless one is in progress.
  void Pump();
  void HandleWritten(Callback written);

  const LiveStreams::Presence presence_;  // first, so that it outlives the members below; the server waits for it
  const StreamHost host_;
  LiveStreams::Place place_;
  const std::unique_ptr<TransportCall> call_;
  CallPlace call_place_;
  const absl::Time arrival_time_;
  // Constant once the call was let in or denied. Records of the call point to it.
  CallTrace trace_;
  // Constant after the access check.
  IdentityPtr identity_;
  int tenant_index_ = kNoTenant;

  std::atomic<bool> cancelled_{false};
  std::atomic<bool> reading_message_{false};
  std::atomic<bool> writing_message_{false};
  std::atomic<int64_t> waiting_since_{0};

  mutable Mutex mu_;
  TransportCall::OnSize on_size_ ABSL_GUARDED_BY(mu_);  // of the ReadSize in progress
  OnRead on_read_ ABSL_GUARDED_BY(mu_);                 // of the Read in progress
  Transfer read_ ABSL_GUARDED_BY(mu_);                  // valid while reading_message_
  Transfer write_ ABSL_GUARDED_BY(mu_);                 // valid while writing_message_
  absl::Status over_error_ ABSL_GUARDED_BY(mu_);
  absl::Status end_of_reading_ ABSL_GUARDED_BY(mu_);  // not OK: reading was ended, and why
  bool read_cut_ ABSL_GUARDED_BY(mu_) = false;        // a Read was waiting then, or came later
  std::list<PendingWrite> writes_ ABSL_GUARDED_BY(mu_);
  Trailers trailers_ ABSL_GUARDED_BY(mu_);          // of the finish to come
  std::optional<End> finish_ ABSL_GUARDED_BY(mu_);  // its texts are the transport's once the finish was started
  bool failed_ ABSL_GUARDED_BY(mu_) = false;        // the call was finished with an error
  Callback finish_written_ ABSL_GUARDED_BY(mu_);
  bool busy_ ABSL_GUARDED_BY(mu_) = false;  // a write or the finish is in progress; stays true after the finish
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  Callback on_cancelled_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Audit> audit_ ABSL_GUARDED_BY(mu_);  // null: not audited, or reported
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_STREAM_H_
