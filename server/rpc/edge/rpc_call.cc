#include "server/rpc/edge/rpc_call.h"

#include <algorithm>
#include <functional>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "kernels/base/errors.h"
#include "proto/wire/metadata.h"
#include "server/base/error_reasons.h"
#include "server/base/steady_time.h"
#include "server/rpc/edge/status.h"

namespace normd::rpc {
namespace {

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

RpcCall::~RpcCall() {
  if (host_.live == nullptr) return;
  // The call is removed before the members that others look at are destroyed.
  host_.live->CallOver();
  presence_->Remove(place_);
}

void RpcCall::Begin(const CallHost& host, ConnectionPtr connection) {
  if (!presence_.has_value()) BePresent(host.live);
  host_ = host;
  arrival_time_ = SteadyNow();
  connection_ = std::move(connection);
  connection_->AddCall(arrival_time_);
  host_.live->CallArrived();
  place_ = presence_->Add(this);
}

void RpcCall::DropCallbacks() {
  // They are destroyed without the lock, because what they own may call others.
  OnSize on_size;
  OnRead on_read;
  OnOver on_over;
  std::list<PendingWrite> writes;
  Callback written, finish_written;
  MutexLock lock(mu_);
  std::swap(on_size, on_size_);
  std::swap(on_read, on_read_);
  std::swap(on_over, on_over_);
  std::swap(writes, writes_);
  std::swap(written, written_);
  std::swap(finish_written, finish_written_);
}

RequestOrigin RpcCall::origin() const {
  const Transport over_tcp = is_encrypted() ? Transport::kTls : Transport::kTcp;
  return {.transport = is_local() ? Transport::kUnix : over_tcp,
          .tenant = tenant_index_,
          .trace = &trace_,
          .path = method()};
}

void RpcCall::ReadTrace(const RpcObserver* observer) {
  VisitMetadata([this](std::string_view key, std::string_view value) { ReadTraceHeader(key, value, trace_); });
  static const std::function<bool()> never;
  BeginTrace(observer == nullptr ? never : observer->sample_trace, trace_);
}

absl::StatusOr<int64_t> RpcCall::AnnouncedBytes() const {
  absl::StatusOr<int64_t> announced = 0;
  bool found = false;
  VisitMetadata([&](std::string_view key, std::string_view value) {
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

void RpcCall::ReadSize(OnSize on_size, int64_t expected_bytes) {
  {
    MutexLock lock(mu_);
    if (end_of_reading_.ok()) {
      on_size_ = std::move(on_size);
      on_size = nullptr;
      ExpectMessage(expected_bytes);
    }
  }
  if (on_size) return on_size(std::nullopt);
  StartReadSize();
}

void RpcCall::HandleSize(std::optional<int64_t> bytes) {
  OnSize on_size;
  {
    MutexLock lock(mu_);
    on_size = std::move(on_size_);
    on_size_ = nullptr;
    if (on_size) ExpectNothing();
  }
  if (on_size) on_size(bytes);  // otherwise EndReading has answered
}

absl::InlinedVector<std::string_view, 1> RpcCall::Authorization() const {
  absl::InlinedVector<std::string_view, 1> values;
  VisitMetadata([&values](std::string_view key, std::string_view value) {
    if (key == "authorization") values.push_back(value);
  });
  return values;
}

void RpcCall::BeginAudit(const AuditSink* sink, std::string_view denied) {
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

void RpcCall::NoteSession(std::string session, std::string source) {
  MutexLock lock(mu_);
  if (audit_ == nullptr) return;
  audit_->record.session = std::move(session);
  if (!source.empty()) audit_->record.source = std::move(source);
}

void RpcCall::EndAudit(absl::StatusCode code) {
  std::unique_ptr<Audit> audit;
  {
    MutexLock lock(mu_);
    audit = std::move(audit_);
  }
  if (audit == nullptr) return;
  audit->record.code = code;
  (*audit->sink)(audit->record);
}

void RpcCall::AddTrailer(std::string key, std::string value) {
  MutexLock lock(mu_);
  trailers_.emplace_back(std::move(key), std::move(value));
}

void RpcCall::AddTrailers(bool ok) {
  if (!trace_.given_id.empty() || trace_.explain || !ok) {
    trailers_.emplace_back(wire::kRequestIdKey, trace_.RequestId());
  }
  if (trace_.has_trace()) trailers_.emplace_back(wire::kTraceparentKey, FormatTraceparent(trace_.span));
}

void RpcCall::ExpectMessage(int64_t bytes) {
  const absl::Time now = SteadyNow();
  if (bytes == 0) return waiting_since_.store(absl::ToUnixNanos(now), std::memory_order_relaxed);
  read_ = {.since = now, .bytes = bytes, .received_bytes = std::nullopt};
  reading_message_ = true;
}

void RpcCall::ExpectNothing() {
  reading_message_ = false;
  waiting_since_.store(0, std::memory_order_relaxed);
}

bool RpcCall::BeginRead(OnRead on_read, int64_t expected_bytes) {
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

void RpcCall::Read(OnRead on_read, int64_t expected_bytes, bool reserved) {
  if (!BeginRead(std::move(on_read), expected_bytes)) return;
  StartRead(/*is_counted=*/expected_bytes > 0 && !reserved);
}

void RpcCall::ReadHead(OnRead on_read, int64_t message_bytes) {
  if (!BeginRead(std::move(on_read), message_bytes)) return;
  StartReadHead();
}

void RpcCall::HandleRead(std::optional<MessageBytes> message) {
  OnRead on_read;
  {
    MutexLock lock(mu_);
    ExpectNothing();
    on_read = std::move(on_read_);
    on_read_ = nullptr;
  }
  if (on_read) on_read(std::move(message));  // otherwise EndReading has answered the Read
}

void RpcCall::EndReading(absl::Status why, bool keep_current) {
  OnRead on_read;
  OnSize on_size;
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

absl::Status RpcCall::read_error() const {
  MutexLock lock(mu_);
  return read_cut_ ? end_of_reading_ : absl::OkStatus();
}

std::optional<RpcCall::Progress> RpcCall::ReadProgress(absl::Time now) {
  if (!reading_message_) return std::nullopt;  // saves the system call; checked again below, because reading may end
  const std::optional<int64_t> received = connection().ReceivedBytes();
  MutexLock lock(mu_);
  if (!reading_message_) return std::nullopt;
  if (!read_.received_bytes.has_value()) read_.received_bytes = received;
  Progress progress = {.elapsed = now - read_.since, .bytes = read_.bytes, .moved_bytes = std::nullopt};
  if (received.has_value() && read_.received_bytes.has_value())
    progress.moved_bytes = *received - *read_.received_bytes;
  return progress;
}

std::optional<RpcCall::Progress> RpcCall::WriteProgress(absl::Time now) const {
  MutexLock lock(mu_);
  if (!writing_message_) return std::nullopt;
  return Progress{.elapsed = now - write_.since, .bytes = write_.bytes, .moved_bytes = std::nullopt};
}

void RpcCall::Write(MessageBytes message, Callback written) {
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

void RpcCall::Finish(const absl::Status& status, Callback written) {
  absl::StatusCode code = absl::StatusCode::kOk;
  {
    MutexLock lock(mu_);
    if (finish_.has_value()) return;
    const absl::Status& end = read_cut_ ? end_of_reading_ : status;
    code = end.code();
    failed_ = !end.ok();
    AddTrailers(end.ok());
    finish_written_ = std::move(written);
    finish_ = RpcEnd{ToRpcStatus(end), std::move(trailers_)};
  }
  // Before the caller has its answer, so that who has seen the outcome of a call finds the call in the audit log.
  EndAudit(code);
  Pump();
}

void RpcCall::WriteAndFinish(MessageBytes message, Callback written) {
  {
    MutexLock lock(mu_);
    if (finish_.has_value()) return;
    writes_.push_back({std::move(message), std::move(written)});
    AddTrailers(/*ok=*/true);
    finish_ = RpcEnd{RpcStatus(), std::move(trailers_)};
  }
  EndAudit(absl::StatusCode::kOk);
  Pump();
}

void RpcCall::Pump() {
  std::optional<MessageBytes> message;
  std::optional<RpcEnd> end;
  {
    MutexLock lock(mu_);
    if (busy_ || (writes_.empty() && !finish_.has_value())) return;
    busy_ = true;
    if (!writes_.empty()) {
      message = std::move(writes_.front().message);
      written_ = std::move(writes_.front().written);
      writes_.pop_front();
      write_ = {.since = SteadyNow(), .bytes = message->size_bytes()};
      writing_message_ = true;
    }
    if (writes_.empty() && finish_.has_value()) {
      finishing_ = true;
      end = std::move(*finish_);
    }
  }
  // Only the thread that set busy_ gets here, so the operations below never overlap.
  if (!message.has_value()) {
    StartFinish(*std::move(end));
  } else if (end.has_value()) {
    StartWriteAndFinish(*std::move(message), *std::move(end));
  } else {
    StartWrite(*std::move(message));
  }
}

void RpcCall::HandleWritten() {
  Callback written;
  Callback finish_written;
  {
    MutexLock lock(mu_);
    written = std::exchange(written_, nullptr);
    if (finishing_) finish_written = std::exchange(finish_written_, nullptr);
    busy_ = finishing_;
    writing_message_ = false;
  }
  // The next write starts before `written` runs, which may be slow or may finish the call.
  Pump();
  if (written) written();
  if (finish_written) finish_written();
}

absl::Status RpcCall::over_error() const {
  MutexLock lock(mu_);
  return over_error_;
}

void RpcCall::WhenOver(OnOver on_over) {
  absl::Status end;
  {
    MutexLock lock(mu_);
    if (!done_) {
      on_over_ = std::move(on_over);
      return;
    }
    end = over_error_;
  }
  on_over(end);
}

void RpcCall::CountReset(double weight) {
  if (connection().AllowReset(SteadyNow(), weight)) return;
  host_.connections->CountEnded(connection(), RefusedFor::kFlood);
  connection().Reset();
}

void RpcCall::HandleOver(const absl::Status& end) {
  const bool cancelled = !end.ok();
  OnOver on_over;
  std::list<PendingWrite> dropped;
  bool taken_back = false;
  bool lost = false;
  connection().RemoveCall();
  {
    MutexLock lock(mu_);
    done_ = true;
    over_error_ = end;
    cancelled_.store(cancelled, std::memory_order_release);
    on_over = std::move(on_over_);
    on_over_ = nullptr;  // the callback may hold a reference to the call
    // What the transport refused, its caller did not take back.
    taken_back = absl::IsCancelled(end) && !finish_.has_value();
    lost = cancelled || failed_;
    // Nobody reads the queued messages any more, and there may be many.
    if (cancelled) dropped.swap(writes_);
  }
  if (lost) NoteLoss();
  for (PendingWrite& write : dropped) {
    if (write.written) write.written();
  }
  if (taken_back && SteadyNow() < deadline()) CountReset();
  if (on_over) on_over(end);
}

}  // namespace normd::rpc
