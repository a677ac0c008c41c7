#include "server/rpc/transport/stream.h"

#include <algorithm>
#include <functional>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "kernels/base/errors.h"
#include "proto/wire/metadata.h"
#include "server/base/error_reasons.h"
#include "server/base/steady_time.h"
#include "server/rpc/transport/status.h"

namespace normd::rpc {
namespace {

constexpr char kRetryPushbackMs[] = "100";  // the same delay as in RetryInfo (status.cc)

// A value of normd-message-bytes; nothing if it is no number.
std::optional<int64_t> ParseMessageBytes(std::string_view text) {
  int64_t bytes = 0;
  const bool digits = std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || !absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &bytes)) return std::nullopt;
  return bytes;
}

absl::Status MessageBytesError(std::string_view text) {
  constexpr size_t kMaxShownBytes = 64;
  text = text.substr(0, kMaxShownBytes);
  return FormError(wire::kMessageBytesKey, absl::CHexEscape(absl::string_view(text.data(), text.size())),
                   "one number of bytes from 0 to 2^63 - 1", ServerReason("MESSAGE_BYTES_FORM"));
}

}  // namespace

Stream::Stream(const StreamHost& host, std::unique_ptr<TransportCall> call)
    : presence_(host.live), host_(host), call_(std::move(call)), arrival_time_(SteadyNow()) {
  connection()->AddCall(arrival_time_);
  host_.live->CallArrived();
}

std::shared_ptr<Stream> Stream::Make(const StreamHost& host, std::unique_ptr<TransportCall> call) {
  auto stream = std::make_shared<Stream>(host, std::move(call));
  // The stream is added last, so that nobody finds one that is not fully constructed.
  stream->place_ = stream->presence_.Add(stream.get());
  stream->call_->OnOver([stream](const absl::Status& end) { stream->HandleOver(end); });
  return stream;
}

Stream::~Stream() {
  // The stream is removed before its members are destroyed, so that nobody finds a partly destroyed one.
  host_.live->CallOver();
  presence_.Remove(place_);
}

RequestOrigin Stream::origin() const {
  const Transport over_tcp = is_encrypted() ? Transport::kTls : Transport::kTcp;
  return {.transport = is_local() ? Transport::kUnix : over_tcp,
          .tenant = tenant_index_,
          .trace = &trace_,
          .path = method()};
}

void Stream::ReadTrace(const RpcObserver* observer) {
  call_->VisitMetadata([this](std::string_view key, std::string_view value) { ReadTraceHeader(key, value, trace_); });
  static const std::function<bool()> never;
  BeginTrace(observer == nullptr ? never : observer->sample_trace, trace_);
}

absl::StatusOr<int64_t> Stream::AnnouncedBytes() const {
  absl::StatusOr<int64_t> announced = 0;
  bool found = false;
  call_->VisitMetadata([&](std::string_view key, std::string_view value) {
    if (key != wire::kMessageBytesKey || !announced.ok()) return;
    const std::optional<int64_t> bytes = ParseMessageBytes(value);
    if (!bytes.has_value() || (found && *bytes != *announced)) {
      announced = MessageBytesError(value);
    } else {
      announced = *bytes;
      found = true;
    }
  });
  return announced;
}

void Stream::ReadSize(TransportCall::OnSize on_size, int64_t expected_bytes) {
  {
    MutexLock lock(mu_);
    if (end_of_reading_.ok()) {
      on_size_ = std::move(on_size);
      on_size = nullptr;
      ExpectMessage(expected_bytes);
    }
  }
  if (on_size) return on_size(std::nullopt);
  call_->ReadSize([self = shared_from_this()](std::optional<int64_t> bytes) { self->HandleSize(bytes); });
}

void Stream::HandleSize(std::optional<int64_t> bytes) {
  TransportCall::OnSize on_size;
  {
    MutexLock lock(mu_);
    on_size = std::move(on_size_);
    on_size_ = nullptr;
    if (on_size) ExpectNothing();
  }
  if (on_size) on_size(bytes);  // otherwise EndReading has answered
}

absl::InlinedVector<std::string_view, 1> Stream::Authorization() const {
  absl::InlinedVector<std::string_view, 1> values;
  call_->VisitMetadata([&values](std::string_view key, std::string_view value) {
    if (key == "authorization") values.push_back(value);
  });
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

void Stream::SetExplanation(const std::string& text) {
  MutexLock lock(mu_);
  trailers_.emplace_back(wire::kExplainKey, text);
}

void Stream::AddTrailers(bool ok) {
  if (!trace_.given_id.empty() || trace_.explain || !ok) {
    trailers_.emplace_back(wire::kRequestIdKey, trace_.RequestId());
  }
  if (trace_.has_trace()) trailers_.emplace_back(wire::kTraceparentKey, FormatTraceparent(trace_.span));
}

void Stream::SetRetryPushback() {
  MutexLock lock(mu_);
  trailers_.emplace_back("grpc-retry-pushback-ms", kRetryPushbackMs);
}

void Stream::ExpectMessage(int64_t bytes) {
  const absl::Time now = SteadyNow();
  if (bytes == 0) return waiting_since_.store(absl::ToUnixNanos(now), std::memory_order_relaxed);
  read_ = {.since = now, .bytes = bytes, .received_bytes = std::nullopt};
  reading_message_ = true;
}

void Stream::ExpectNothing() {
  reading_message_ = false;
  waiting_since_.store(0, std::memory_order_relaxed);
}

bool Stream::BeginRead(OnRead on_read, int64_t expected_bytes) {
  {
    MutexLock lock(mu_);
    if (end_of_reading_.ok()) {
      on_read_ = std::move(on_read);
      ExpectMessage(expected_bytes);
      return true;
    }
    read_cut_ = true;
  }
  on_read(std::nullopt);
  return false;
}

void Stream::Read(OnRead on_read, int64_t expected_bytes, bool reserved) {
  if (!BeginRead(std::move(on_read), expected_bytes)) return;
  const bool counted = expected_bytes > 0 && !reserved;
  if (counted) connection()->BeginMessage();
  call_->Read([self = shared_from_this(), counted](std::optional<MessageBytes> message) {
    if (message.has_value()) self->connection()->DeliverBytes(message->size_bytes());
    if (counted) self->connection()->EndMessage(message.has_value());
    self->HandleRead(std::move(message));
  });
}

void Stream::ReadHead(OnRead on_read, int64_t message_bytes) {
  if (!BeginRead(std::move(on_read), message_bytes)) return;
  connection()->BeginMessage();
  call_->ReadHead([self = shared_from_this(), message_bytes](std::optional<MessageBytes> head) {
    if (head.has_value()) self->connection()->DeliverBytes(message_bytes);
    self->connection()->EndMessage(head.has_value());
    self->HandleRead(std::move(head));
  });
}

void Stream::HandleRead(std::optional<MessageBytes> message) {
  OnRead on_read;
  {
    MutexLock lock(mu_);
    ExpectNothing();
    on_read = std::move(on_read_);
    on_read_ = nullptr;
  }
  if (on_read) on_read(std::move(message));  // otherwise EndReading has answered the Read
}

void Stream::EndReading(absl::Status why, bool keep_current) {
  OnRead on_read;
  TransportCall::OnSize on_size;
  {
    MutexLock lock(mu_);
    if (done_) return;
    if (end_of_reading_.ok()) end_of_reading_ = std::move(why);
    if (keep_current && reading_message_) return;
    on_size = std::move(on_size_);
    on_size_ = nullptr;
    on_read = std::move(on_read_);
    on_read_ = nullptr;
    ExpectNothing();
    if (on_read) read_cut_ = true;
  }
  if (on_size) on_size(std::nullopt);  // the Read that follows is cut
  if (on_read) on_read(std::nullopt);
}

absl::Status Stream::read_error() const {
  MutexLock lock(mu_);
  return read_cut_ ? end_of_reading_ : absl::OkStatus();
}

std::optional<Stream::Progress> Stream::ReadProgress(absl::Time now) {
  if (!reading_message_) return std::nullopt;  // saves the system call; checked again below, because reading may end
  const std::optional<int64_t> received = connection()->ReceivedBytes();
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

void Stream::Write(MessageBytes message, Callback written) {
  {
    MutexLock lock(mu_);
    if (!finish_.has_value() && !done_) {
      writes_.push_back({std::move(message), std::move(written)});
      written = nullptr;
    }
  }
  if (written) written();
  Pump();
}

void Stream::Finish(const absl::Status& status, Callback written) {
  absl::StatusCode code = absl::StatusCode::kOk;
  {
    MutexLock lock(mu_);
    if (finish_.has_value()) return;
    const absl::Status& end = read_cut_ ? end_of_reading_ : status;
    code = end.code();
    failed_ = !end.ok();
    AddTrailers(end.ok());
    finish_written_ = std::move(written);
    finish_ = End{ToRpcStatus(end), std::move(trailers_)};
  }
  // Before the caller has its answer, so that who has seen the outcome of a call finds the call in the audit log.
  EndAudit(code);
  Pump();
}

void Stream::WriteAndFinish(MessageBytes message, Callback written) {
  {
    MutexLock lock(mu_);
    if (finish_.has_value()) return;
    writes_.push_back({std::move(message), std::move(written)});
    AddTrailers(/*ok=*/true);
    finish_ = End{RpcStatus(), std::move(trailers_)};
  }
  EndAudit(absl::StatusCode::kOk);
  Pump();
}

void Stream::Pump() {
  std::optional<PendingWrite> write;
  std::optional<End> finish;
  Callback finish_written;
  {
    MutexLock lock(mu_);
    if (busy_ || (writes_.empty() && !finish_.has_value())) return;
    busy_ = true;
    if (!writes_.empty()) {
      write = std::move(writes_.front());
      writes_.pop_front();
      write_ = {.since = SteadyNow(), .bytes = write->message.size_bytes()};
      writing_message_ = true;
    }
    if (writes_.empty() && finish_.has_value()) {
      finish = std::move(*finish_);
      finish_written = std::move(finish_written_);
      finish_written_ = nullptr;
    }
  }
  // Only the thread that set busy_ gets here, so the operations below never overlap.
  if (!write.has_value()) {
    call_->Finish(std::move(finish->status), std::move(finish->trailers),
                  [self = shared_from_this(), written = std::move(finish_written)]() mutable {
                    if (written) written();
                  });
  } else if (finish.has_value()) {
    call_->WriteAndFinish(std::move(write->message), std::move(finish->status), std::move(finish->trailers),
                          [self = shared_from_this(), written = std::move(write->written),
                           finish_written = std::move(finish_written)]() mutable {
                            self->writing_message_ = false;
                            if (written) written();
                            if (finish_written) finish_written();
                          });
  } else {
    call_->Write(std::move(write->message), [self = shared_from_this(), written = std::move(write->written)]() mutable {
      self->HandleWritten(std::move(written));
    });
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

absl::Status Stream::over_error() const {
  MutexLock lock(mu_);
  return over_error_;
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
  if (connection()->AllowReset(SteadyNow(), weight)) return;
  host_.connections->CountEnded(*connection(), RefusedFor::kFlood);
  connection()->Reset();
}

void Stream::HandleOver(const absl::Status& end) {
  const bool cancelled = !end.ok();
  Callback callback;
  std::list<PendingWrite> dropped;
  bool taken_back = false;
  bool lost = false;
  connection()->RemoveCall();
  {
    MutexLock lock(mu_);
    done_ = true;
    over_error_ = end;
    cancelled_.store(cancelled, std::memory_order_release);
    callback = std::move(on_cancelled_);
    on_cancelled_ = nullptr;  // the callback may hold a reference to the stream
    // What the transport refused, its caller did not take back.
    taken_back = absl::IsCancelled(end) && !finish_.has_value();
    lost = cancelled || failed_;
    // Nobody reads the queued messages any more, and there may be many.
    if (cancelled) dropped.swap(writes_);
  }
  if (lost) connection()->LoseMessage(SteadyNow());
  for (PendingWrite& write : dropped) {
    if (write.written) write.written();
  }
  if (!cancelled) return;
  if (taken_back && SteadyNow() < deadline()) CountReset();
  if (callback) callback();
}

}  // namespace normd::rpc
