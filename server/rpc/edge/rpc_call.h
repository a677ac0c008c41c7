// One RPC, from its headers to its end: metadata, deadline, identity and trace; messages in, messages out, a status. A
// unary call has one message each way. Two transports implement it: grpc/ (gRPC's completion queues) and http2/
// (nghttp2). What all calls share is here: queued writes, cuts, progress, traces and audits.
// In the path: a transport makes it, the dispatcher gets it at the headers and hands it to the method's code, which
// reads, writes and finishes.
// Ownership: shared. A transport keeps a call until it is over, and an operation in progress holds a reference, so a
// handler may drop its own at any time; but it must call Finish first, or the caller waits for ever.
// Threads: Read and ReadSize are called from one thread at a time; everything else is safe from any thread. Callbacks
// run with no lock held, usually on the queue's thread, and must not block. An operation may run its callback before it
// returns.
#ifndef NORMD_SERVER_RPC_EDGE_RPC_CALL_H_
#define NORMD_SERVER_RPC_EDGE_RPC_CALL_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/base/slice.h"
#include "server/net/tls_peer.h"
#include "server/rpc/edge/audit_record.h"
#include "server/rpc/edge/call_places.h"
#include "server/rpc/edge/call_trace.h"
#include "server/rpc/edge/connection.h"
#include "server/rpc/edge/live_calls.h"
#include "server/rpc/edge/observer.h"
#include "server/rpc/edge/status.h"
#include "server/security/identity.h"

namespace normd::rpc {

// The parts of the server that calls use. Both must outlive all calls.
struct CallHost {
  LiveCalls* live = nullptr;
  ConnectionTable* connections = nullptr;
};

class RpcCall : public std::enable_shared_from_this<RpcCall> {
 public:
  using OnRead = absl::AnyInvocable<void(std::optional<MessageBytes>)>;
  using OnSize = absl::AnyInvocable<void(std::optional<int64_t> bytes)>;
  using OnOver = absl::AnyInvocable<void(const absl::Status& end)>;
  using Callback = absl::AnyInvocable<void()>;

  // The least that ReadHead keeps.
  static constexpr int64_t kHeadBytes = 64;

  virtual ~RpcCall();
  RpcCall(const RpcCall&) = delete;
  RpcCall& operator=(const RpcCall&) = delete;

  // ---- What the headers and the connection say ----

  // "/normd.v1.Normalizer/Normalize"
  virtual const std::string& method() const = 0;
  // Visits the caller's metadata; values of one key come in the order of arrival. Keys are in lower case; values of
  // keys that end in "-bin" are decoded. The texts live as long as the call.
  virtual void VisitMetadata(absl::FunctionRef<void(std::string_view key, std::string_view value)> visit) const = 0;
  // The caller's deadline by SteadyNow; InfiniteFuture if the caller set none.
  virtual absl::Time deadline() const = 0;
  // The connection of the call, which lives as long as the call.
  Connection& connection() const { return *connection_; }
  // What TLS says of the peer; never null.
  virtual const net::TlsPeerPtr& tls_peer() const = 0;

  // "ipv4:127.0.0.1:40112", or "fd:17" for a Unix socket: unique among the connections that are open.
  const std::string& peer() const { return connection().peer(); }
  // Key for fair queueing: equal for all calls of one connection; other connections almost always differ.
  uint64_t caller() const { return connection().key(); }
  // When the call's headers came, by SteadyNow.
  absl::Time arrival_time() const { return arrival_time_; }
  // Keeps the call's place until the call is destroyed, or until GiveUpPlace. Called on the queue's thread, before
  // the handler has the call.
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
  bool is_local() const { return connection().is_unix(); }
  // Whether the call came over TLS.
  bool is_encrypted() const { return tls_peer()->is_encrypted; }
  // The name in the caller's certificate, as in TlsPeer: "uri:spiffe://prod/trainer"; empty without a certificate.
  const std::string& PeerCertificateName() const { return tls_peer()->certificate_name; }
  // What the access check remembers for the calls of this call's connection.
  AccessMemory* access_memory() const { return &tls_peer()->access_memory; }
  // The values of the headers `authorization`, which live as long as the call.
  absl::InlinedVector<std::string_view, 1> Authorization() const;
  // Who makes the call: not null once the call was let in. SetIdentity is called before that, on the queue's thread.
  const IdentityPtr& identity() const { return identity_; }
  void SetIdentity(IdentityPtr identity) { identity_ = std::move(identity); }

  // Reports the call to `sink`, which may be null and must outlive the call, when it ends. `denied` is as in
  // AuditRecord.
  void BeginAudit(const AuditSink* sink, std::string_view denied = {});
  // Says which session the call is about, and for a fork, of which other one. No effect if the call is not audited.
  void NoteSession(std::string session, std::string source = {});
  // Reports the call now, because what the audit is about is over; the call itself may go on.
  void EndAudit(absl::StatusCode code);

  // The size of the first message, as far as the headers announce it; 0 if they do not. INVALID_ARGUMENT if they
  // announce what is no number, or two sizes that differ.
  absl::StatusOr<int64_t> AnnouncedBytes() const;

  // ---- Messages in ----

  // Finds the size of the coming message before the transport holds more of it than flow control lets in anyway.
  // `on_size` gets nullopt if the size is not known: the transport cannot tell, or no message comes. `expected_bytes`
  // is as for Read. REQUIRES: no Read or ReadSize is in progress.
  void ReadSize(OnSize on_size, int64_t expected_bytes = 0);

  // Reads one message. `on_read` gets nullopt when the caller half-closed, was cancelled, or sent a message over the
  // size limit, and when reading was ended. An `expected_bytes` over 0 says that a message of at most this size is on
  // its way, which must make progress; with 0, the call waits for a message as long as it takes. `reserved` says that
  // the bytes are already reserved, so that they do not count as undelivered bytes of the connection. REQUIRES: no
  // other Read is in progress.
  void Read(OnRead on_read, int64_t expected_bytes = 0, bool reserved = false);

  // Reads the message of `message_bytes`, a size which ReadSize has told, of which only the beginning is kept: at least
  // kHeadBytes, or all of a shorter message. The rest is dropped as it comes. Otherwise as Read.
  void ReadHead(OnRead on_read, int64_t message_bytes);

  // Ends reading: a waiting Read and all later ones end without a message. If that cuts the call short, it ends with
  // `why`, whatever status Finish gets; a call that had read everything it wanted is not affected. With
  // `keep_current`, a message that is on its way may still arrive.
  void EndReading(absl::Status why, bool keep_current = false);
  // Why reading was cut short; OK if it was not.
  absl::Status read_error() const;

  // ---- Messages out, and the end ----

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
  // Since when the call has waited for a message of which nothing has come, as long as that takes: by SteadyNow, in
  // nanoseconds since the Unix epoch. 0 while it does not.
  int64_t waiting_since() const { return waiting_since_.load(std::memory_order_relaxed); }
  std::optional<Progress> ReadProgress(absl::Time now);
  std::optional<Progress> WriteProgress(absl::Time now) const;

  // Counts a call that its caller cancelled, or opened beyond the limit, against the connection, and resets the
  // connection if there are too many.
  void CountReset(double weight = 1);

  // Ends the call as if the caller had gone. No effect on a call that is over.
  virtual void Cancel() = 0;

  // Adds a trailer. REQUIRES: Finish was not called.
  void AddTrailer(std::string key, std::string value);

  // Ends the call after the queued writes. Later writes and finishes are dropped. `written`, if any, runs when the
  // transport has taken the status, or never will.
  void Finish(const absl::Status& status, Callback written = nullptr);

  // Does Write and Finish with OK at once, so that message and status leave in one packet.
  void WriteAndFinish(MessageBytes message, Callback written = nullptr);

  // Whether the caller is gone, or the deadline has passed.
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

  // Why the call was cancelled, as far as the transport knows; OK while it was not.
  absl::Status over_error() const;

  // Runs `on_over` once when the call is over, at once if it already is: with OK where its status was sent; else with
  // CANCELLED where the caller or its connection is gone, or the deadline passed, or with the error with which the
  // transport itself ended the call, as far as it knows that. A call takes at most one such callback.
  void WhenOver(OnOver on_over);

 protected:
  RpcCall() = default;

  // ---- For transports ----

  // From now on `live` waits for this call.
  void BePresent(LiveCalls* live) { presence_.emplace(live); }
  // The headers have come: the call is counted, and found by `host.live`. Called once, before anybody else has the
  // call, which a shared_ptr owns.
  void Begin(const CallHost& host, ConnectionPtr connection);
  // Destroys the callbacks that have not run, which may look at the call. Called first in each destructor below.
  void DropCallbacks();
  // The call is over, with an `end` as for WhenOver. Called once after Begin.
  void HandleOver(const absl::Status& end);
  // The transport has the size, or the message, that was asked for, or knows that none will come.
  void HandleSize(std::optional<int64_t> bytes);
  void HandleRead(std::optional<MessageBytes> message);
  // The transport has taken the message or the end that it was given last, or never will.
  void HandleWritten();

  // What the operations above ask of the transport: one StartReadSize, StartRead or StartReadHead at a time, which is
  // answered by HandleSize or HandleRead; and one StartWrite, StartFinish or StartWriteAndFinish at a time, which is
  // answered by HandleWritten. The answer may come before they return.
  virtual void StartReadSize() = 0;
  // `is_counted`: a message of at most some size is on its way for which nothing was reserved; see DeliveryAccount.
  virtual void StartRead(bool is_counted) = 0;
  virtual void StartReadHead() = 0;
  virtual void StartWrite(MessageBytes message) = 0;
  virtual void StartFinish(RpcEnd end) = 0;
  // Does both at once, so that message and status leave together.
  virtual void StartWriteAndFinish(MessageBytes message, RpcEnd end) = 0;
  // The call ended otherwise than with its reply, and parts of its messages may have arrived.
  virtual void NoteLoss() {}

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

  // Notes that a message of at most `bytes` is on its way, or with 0, that one is waited for.
  void ExpectMessage(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes that neither is so any more.
  void ExpectNothing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Begins a Read, or returns false when reading was ended; `on_read` has its answer in that case.
  bool BeginRead(OnRead on_read, int64_t expected_bytes);
  // Adds what the trailers say of every call that asked, or failed.
  void AddTrailers(bool ok) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Starts the next write or the finish unless one is in progress.
  void Pump();

  std::optional<LiveCalls::Presence>
      presence_;   // first, so that it outlives all other members; the server waits for it
  CallHost host_;  // of null pointers before Begin
  LiveCalls::Place place_;
  ConnectionPtr connection_;  // outlives the call's place
  CallPlace call_place_;
  absl::Time arrival_time_;
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
  OnSize on_size_ ABSL_GUARDED_BY(mu_);  // of the ReadSize in progress
  OnRead on_read_ ABSL_GUARDED_BY(mu_);  // of the Read in progress
  Transfer read_ ABSL_GUARDED_BY(mu_);   // valid while reading_message_
  Transfer write_ ABSL_GUARDED_BY(mu_);  // valid while writing_message_
  absl::Status over_error_ ABSL_GUARDED_BY(mu_);
  absl::Status end_of_reading_ ABSL_GUARDED_BY(mu_);  // not OK: reading was ended, and why
  bool read_cut_ ABSL_GUARDED_BY(mu_) = false;        // a Read was waiting then, or came later
  std::list<PendingWrite> writes_ ABSL_GUARDED_BY(mu_);
  Trailers trailers_ ABSL_GUARDED_BY(mu_);             // of the finish to come
  std::optional<RpcEnd> finish_ ABSL_GUARDED_BY(mu_);  // its texts are the transport's once the finish was started
  bool failed_ ABSL_GUARDED_BY(mu_) = false;           // the call was finished with an error
  Callback finish_written_ ABSL_GUARDED_BY(mu_);
  bool busy_ ABSL_GUARDED_BY(mu_) = false;       // a write or the finish is in progress; stays true after the finish
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;  // the finish is in progress, or over
  Callback written_ ABSL_GUARDED_BY(mu_);        // of the write in progress
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  OnOver on_over_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Audit> audit_ ABSL_GUARDED_BY(mu_);  // null: not audited, or reported
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_RPC_CALL_H_
