#include "server/rpc/transport/stream.h"

#include <grpc/support/time.h>

#include <algorithm>
#include <functional>

#include "absl/strings/numbers.h"
#include "proto/wire/metadata.h"
#include "server/base/steady_time.h"
#include "server/rpc/transport/status.h"

namespace normd::rpc {
namespace {

constexpr int64_t kMaxAnnouncedBytes = int64_t{1} << 31;  // gRPC has no larger messages
constexpr char kRetryPushbackMs[] = "100";                // the same delay as in RetryInfo (status.cc)

}  // namespace

Stream::Stream(const StreamHost& host) : presence_(host.live), host_(host) {}

std::shared_ptr<Stream> Stream::Make(const StreamHost& host) {
  auto stream = std::make_shared<Stream>(host);
  // The stream is added last, so that nobody finds one that is not fully constructed.
  stream->place_ = stream->presence_.Add(stream.get());
  return stream;
}

Stream::~Stream() {
  // The stream is removed before its members are destroyed, so that nobody finds a partly destroyed one.
  if (connection_ != nullptr) host_.live->CallOver();
  presence_.Remove(place_);
}

void Stream::Accept(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue, const StreamHost& host,
                    OnArrival on_arrival) {
  auto self = Make(host);
  Stream* const stream = self.get();
  stream->context_.AsyncNotifyWhenDone(&stream->done_tag_);
  void* const tag = stream->arrival_tag_.Arm([self, on_arrival = std::move(on_arrival)](bool ok) mutable {
    if (!ok) return on_arrival(nullptr);
    self->HandleArrival();
    on_arrival(std::move(self));
  });
  service->RequestCall(&stream->context_, &stream->stream_, queue, queue, tag);
}

void Stream::HandleArrival() {
  arrival_time_ = SteadyNow();
  connection_ = host_.connections->Find(context_.peer());
  tls_peer_ = connection_->tls_peer().Find(context_.c_call());
  connection_->AddCall();
  host_.live->CallArrived();
  arrived_.store(true);
  // The done tag is armed here because it never comes back for an RPC that did not arrive. It cannot run before it is
  // armed, because it comes through this queue, and this is the queue's only thread.
  done_tag_.Arm([self = shared_from_this()](bool) { self->HandleDone(); });
}

RequestOrigin Stream::origin() const {
  const Transport over_tcp = is_encrypted() ? Transport::kTls : Transport::kTcp;
  return {.transport = is_local() ? Transport::kUnix : over_tcp,
          .tenant = tenant_index_,
          .trace = &trace_,
          .path = method()};
}

void Stream::ReadTrace(const RpcObserver* observer) {
  for (const auto& [key, value] : context_.client_metadata()) {
    ReadTraceHeader({key.data(), key.size()}, {value.data(), value.size()}, trace_);
  }
  static const std::function<bool()> never;
  BeginTrace(observer == nullptr ? never : observer->sample_trace, trace_);
}

int64_t Stream::AnnouncedBytes() const {
  const auto& metadata = context_.client_metadata();
  const auto found = metadata.find(wire::kMessageBytesKey);
  if (found == metadata.end()) return 0;
  int64_t bytes = 0;
  const bool ok = absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &bytes);
  return ok && bytes > 0 ? std::min(bytes, kMaxAnnouncedBytes) : 0;
}

absl::InlinedVector<std::string_view, 1> Stream::Authorization() const {
  absl::InlinedVector<std::string_view, 1> values;
  const auto [begin, end] = context_.client_metadata().equal_range("authorization");
  for (auto field = begin; field != end; ++field) values.emplace_back(field->second.data(), field->second.size());
  return values;
}

void Stream::BeginAudit(const AuditSink* sink, std::string_view denied) {
  if (sink == nullptr || *sink == nullptr) return;
  auto audit = std::make_unique<Audit>();
  audit->sink = sink;
  audit->record.method = method();
  audit->record.identity = identity_;
  audit->record.peer = peer();
  audit->record.denied = denied;
  audit->record.request_id = trace_.RequestId();
  MutexLock lock(mu_);
  audit_ = std::move(audit);
}

void Stream::NoteSession(std::string session, std::string source) {
  MutexLock lock(mu_);
  if (audit_ == nullptr) return;
  audit_->record.session = std::move(session);
  if (!source.empty()) audit_->record.source = std::move(source);
}

void Stream::EndAudit(absl::StatusCode code) {
  std::unique_ptr<Audit> audit;
  {
    MutexLock lock(mu_);
    audit = std::move(audit_);
  }
  if (audit == nullptr) return;
  audit->record.code = code;
  (*audit->sink)(audit->record);
}

void Stream::SetExplanation(const std::string& text) { context_.AddTrailingMetadata(wire::kExplainKey, text); }

void Stream::AddTrailers(grpc::StatusCode code) {
  if (!trace_.given_id.empty() || trace_.explain || code != grpc::StatusCode::OK) {
    context_.AddTrailingMetadata(wire::kRequestIdKey, trace_.RequestId());
  }
  if (trace_.has_trace()) context_.AddTrailingMetadata(wire::kTraceparentKey, FormatTraceparent(trace_.span));
}

void Stream::SetRetryPushback() { context_.AddTrailingMetadata("grpc-retry-pushback-ms", kRetryPushbackMs); }

void Stream::Read(OnRead on_read, int64_t expected_bytes, bool reserved) {
  {
    MutexLock lock(mu_);
    if (end_of_reading_.ok()) {
      on_read_ = std::move(on_read);
      on_read = nullptr;
      if (expected_bytes > 0) {
        read_ = {.since = SteadyNow(), .bytes = expected_bytes, .received_bytes = std::nullopt};
        reading_message_ = true;
      }
    } else {
      read_cut_ = true;
    }
  }
  if (on_read) return on_read(std::nullopt);
  const bool counted = expected_bytes > 0 && !reserved;
  if (counted) connection_->BeginMessage();
  stream_.Read(&incoming_, read_tag_.Arm([self = shared_from_this(), counted](bool ok) {
    if (ok) self->connection_->DeliverBytes(static_cast<int64_t>(self->incoming_.Length()));
    if (counted) self->connection_->EndMessage(ok);
    self->HandleRead(ok);
  }));
}

void Stream::HandleRead(bool ok) {
  OnRead on_read;
  {
    MutexLock lock(mu_);
    reading_message_ = false;
    on_read = std::move(on_read_);
    on_read_ = nullptr;
  }
  if (!on_read) return;  // EndReading has answered the Read
  if (!ok) return on_read(std::nullopt);
  on_read(std::exchange(incoming_, grpc::ByteBuffer()));
}

void Stream::EndReading(absl::Status why, bool keep_current) {
  OnRead on_read;
  {
    MutexLock lock(mu_);
    if (done_) return;
    if (end_of_reading_.ok()) end_of_reading_ = std::move(why);
    if (keep_current && reading_message_) return;
    on_read = std::move(on_read_);
    on_read_ = nullptr;
    reading_message_ = false;
    if (on_read) read_cut_ = true;
  }
  if (on_read) on_read(std::nullopt);
}

absl::Status Stream::read_error() const {
  MutexLock lock(mu_);
  return read_cut_ ? end_of_reading_ : absl::OkStatus();
}

std::optional<Stream::Progress> Stream::ReadProgress(absl::Time now) {
  if (!reading_message_) return std::nullopt;  // saves the system call; checked again below, because reading may end
  const std::optional<int64_t> received = connection_->ReceivedBytes();
  MutexLock lock(mu_);
  if (!reading_message_) return std::nullopt;
  if (!read_.received_bytes.has_value()) read_.received_bytes = received;
  Progress progress = {.elapsed = now - read_.since, .bytes = read_.bytes, .moved_bytes = std::nullopt};
  if (received.has_value() && read_.received_bytes.has_value())
    progress.moved_bytes = *received - *read_.received_bytes;
  return progress;
}

std::optional<Stream::Progress> Stream::WriteProgress(absl::Time now) const {
  MutexLock lock(mu_);
  if (!writing_message_) return std::nullopt;
  return Progress{.elapsed = now - write_.since, .bytes = write_.bytes, .moved_bytes = std::nullopt};
}

absl::Time Stream::deadline() const {
  const gpr_timespec given = context_.raw_deadline();
  if (gpr_time_cmp(given, gpr_inf_future(given.clock_type)) == 0) return absl::InfiniteFuture();
  const gpr_timespec deadline = gpr_convert_clock_type(given, GPR_CLOCK_MONOTONIC);
  if (gpr_time_cmp(deadline, gpr_inf_future(GPR_CLOCK_MONOTONIC)) == 0) return absl::InfiniteFuture();
  return absl::UnixEpoch() + absl::DurationFromTimespec({.tv_sec = deadline.tv_sec, .tv_nsec = deadline.tv_nsec});
}

void Stream::Write(grpc::ByteBuffer message, Callback written) {
  {
    MutexLock lock(mu_);
    if (!finish_.has_value() && !done_) {
      writes_.push_back({message, std::move(written)});  // copies a reference, because ByteBuffer has no move
      written = nullptr;
    }
  }
  if (written) written();
  Pump();
}

void Stream::Finish(grpc::Status status, Callback written) {
  grpc::StatusCode code = grpc::StatusCode::OK;
  {
    MutexLock lock(mu_);
    if (finish_.has_value()) return;
    finish_written_ = std::move(written);
    finish_ = read_cut_ ? ToGrpcStatus(end_of_reading_) : std::move(status);
    code = finish_->error_code();
    AddTrailers(code);
  }
  // Before the caller has its answer, so that who has seen the outcome of a call finds the call in the audit log.
  EndAudit(static_cast<absl::StatusCode>(code));
  Pump();
}

void Stream::WriteAndFinish(grpc::ByteBuffer message, grpc::Status status, Callback written) {
  const grpc::StatusCode code = status.error_code();
  {
    MutexLock lock(mu_);
    if (finish_.has_value()) return;
    writes_.push_back({std::move(message), std::move(written)});
    finish_ = std::move(status);
    AddTrailers(code);
  }
  EndAudit(static_cast<absl::StatusCode>(code));
  Pump();
}

void Stream::Pump() {
  std::optional<PendingWrite> write;
  std::optional<grpc::Status> finish;
  Callback finish_written;
  {
    MutexLock lock(mu_);
    if (busy_ || (writes_.empty() && !finish_.has_value())) return;
    busy_ = true;
    if (!writes_.empty()) {
      write = std::move(writes_.front());
      writes_.pop_front();
      write_ = {.since = SteadyNow(), .bytes = static_cast<int64_t>(write->message.Length())};
      writing_message_ = true;
    }
    if (writes_.empty()) {
      finish = finish_;
      finish_written = std::move(finish_written_);
      finish_written_ = nullptr;
    }
  }
  // Only the thread that set busy_ gets here, so the operations below never overlap.
  if (!write.has_value()) {
    stream_.Finish(*finish,
                   write_tag_.Arm([self = shared_from_this(), written = std::move(finish_written)](bool) mutable {
                     if (written) written();
                   }));
  } else if (finish.has_value()) {
    void* const tag = write_tag_.Arm([self = shared_from_this(), written = std::move(write->written),
                                      finish_written = std::move(finish_written)](bool) mutable {
      self->writing_message_ = false;
      if (written) written();
      if (finish_written) finish_written();
    });
    stream_.WriteAndFinish(write->message, grpc::WriteOptions(), *finish, tag);
  } else {
    void* const tag = write_tag_.Arm([self = shared_from_this(), written = std::move(write->written)](bool) mutable {
      self->HandleWritten(std::move(written));
    });
    stream_.Write(write->message, tag);
  }
}

void Stream::HandleWritten(Callback written) {
  {
    MutexLock lock(mu_);
    busy_ = false;
    writing_message_ = false;
  }
  // The next write starts before `written` runs, which may be slow or may finish the stream.
  Pump();
  if (written) written();
}

void Stream::OnCancelled(Callback callback) {
  {
    MutexLock lock(mu_);
    if (!done_) {
      on_cancelled_ = std::move(callback);
      return;
    }
  }
  if (cancelled()) callback();
}

void Stream::CountReset(double weight) {
  if (connection_->AllowReset(SteadyNow(), weight)) return;
  host_.connections->Count(RefusedFor::kFlood);
  connection_->Reset();
}

void Stream::HandleDone() {
  Callback callback;
  std::list<PendingWrite> dropped;
  bool taken_back = false;
  bool lost = false;
  connection_->RemoveCall();
  cancelled_.store(context_.IsCancelled(), std::memory_order_release);
  {
    MutexLock lock(mu_);
    done_ = true;
    callback = std::move(on_cancelled_);
    on_cancelled_ = nullptr;  // the callback may hold a reference to the stream
    taken_back = !finish_.has_value();
    lost = cancelled() || (finish_.has_value() && !finish_->ok());
    // Nobody reads the queued messages any more, and there may be many.
    if (cancelled()) dropped.swap(writes_);
  }
  if (lost) connection_->LoseMessage(SteadyNow());
  for (PendingWrite& write : dropped) {
    if (write.written) write.written();
  }
  if (!cancelled()) return;
  if (taken_back && SteadyNow() < deadline()) CountReset();
  if (callback) callback();
}

}  // namespace normd::rpc
