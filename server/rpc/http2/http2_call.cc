#include "server/rpc/http2/http2_call.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/base/strings.h"
#include "server/base/errors.h"
#include "server/base/steady_time.h"
#include "server/net/event_loop.h"
#include "server/rpc/http2/http2_connection.h"
#include "server/rpc/http2/http2_errors.h"
#include "server/rpc/http2/http2_session.h"

namespace normd::rpc::http2 {
namespace {

// A reply over this size lets smaller replies of its connection go first: they have nghttp2's default, the urgency 3.
// It does not share the connection with its like, frame by frame, because replies that are sent together also end
// together: the client then sends all its next requests at one time, and neither side works while the other one does.
// 16 calls of 1 MiB in flight are answered at 1.1 times the rate and 0.9 of the CPU time when their replies follow one
// another.
constexpr size_t kLargeReplyBytes = 64 << 10;
constexpr nghttp2_extpri kLargeReplyPriority = {.urgency = 4, .inc = 0};

// What a usual call holds is counted with the call; counting it here would cost every call two atomic additions.
constexpr int64_t kCountedWaitingBytes = 2 << 10;

// The most of a field's name that is told of.
constexpr size_t kMaxShownBytes = 64;

// For a request that is not one of gRPC's: how long its answer waits for the end of the request, and how long an
// answered request may still come before it is reset.
constexpr absl::Duration kRestTime = absl::Seconds(1);

nghttp2_data_provider BodyOf(Http2Call* stream) {
  nghttp2_data_provider provider{};
  provider.source.ptr = stream;
  provider.read_callback = &OfferBody;
  return provider;
}

}  // namespace

Http2Call::Http2Call(std::shared_ptr<Http2Connection> connection, int32_t id)
    : connection_(std::move(connection)),
      id_(id),
      headers_(connection_->options().max_metadata_bytes),
      deadline_timer_([this] { OnDeadline(); }),
      reader_(connection_->options().max_message_bytes, connection_->buffers()) {}

Http2Call::~Http2Call() {
  DropCallbacks();
  connection_->waiting_bytes().Release(waiting_bytes_);
}

const net::TlsPeerPtr& Http2Call::tls_peer() const { return connection_->tls_peer(); }

nghttp2_session* Http2Call::session() const { return connection_->session(); }

void Http2Call::Wake() {
  if (std::exchange(woken_, true)) return;
  connection_->Wake(Self());
}

// ---- What nghttp2 tells of the stream ----

bool Http2Call::AddField(std::string_view name, std::string_view value) {
  // Before anything else, so that fields which are ignored, and those of a broken request, have an end, too.
  if (!headers_.Count(name, value)) return RefuseFields();
  if (!broken_ && Follows(rules_.AddHeader(name, value), name)) headers_.Add(name, value);
  return true;
}

bool Http2Call::AllowTrailer(std::string_view name, std::string_view value) {
  if (!broken_ && (over() || end_.has_value())) return false;  // nobody waits for the rest of an answered request
  if (!headers_.CountTrailer(name, value)) return RefuseFields();
  if (!broken_) Follows(rules_.AddTrailer(name, value), name);
  return true;
}

bool Http2Call::RefuseFields() {
  if (!broken_) connection_->counts().CountRefusal(TransportRefusal::kTooLarge);
  return false;
}

bool Http2Call::Follows(HttpRules::Verdict verdict, std::string_view name) {
  // The value may be a secret.
  if (verdict == HttpRules::Verdict::kBroken) {
    BreakOff(Concat("the header field ", name.substr(0, kMaxShownBytes), " is not one that HTTP/2 allows there"));
  }
  return verdict == HttpRules::Verdict::kGood;
}

void Http2Call::BreakOff(std::string_view why) {
  if (std::exchange(broken_, true)) return;
  connection_->counts().CountRefusal(TransportRefusal::kHttp);
  connection_->OnProtocolError(why);
  if (!complete_) headers_.Drop();  // later the services may be reading them
  nghttp2_submit_rst_stream(session(), NGHTTP2_FLAG_NONE, id_, NGHTTP2_PROTOCOL_ERROR);
  connection_->Activate();
  DropBody();
  EndCall(CallerGoneError());
}

void Http2Call::OnHeadersComplete() {
  if (broken_) return;
  if (!rules_.IsComplete()) return BreakOff("a request without the fields that HTTP/2 asks for");
  complete_ = true;
  if (const std::optional<RequestHeaders::Refusal> refusal = headers_.Judge(); refusal.has_value()) {
    connection_->counts().CountRefusal(refusal->reason);
    headers_.Drop();
    if (refusal->http_status == 200) return AnswerWith(refusal->status);
    // curl 7.88 waits for ever if it has the answer before it has sent its body.
    http_status_ = refusal->http_status;
    EndCall(CallerGoneError());
    return connection_->loop().timers().Set(&deadline_timer_, connection_->loop().now() + kRestTime);
  }
  if (headers_.timeout().has_value()) {
    // The loop's own time may be older than these headers.
    deadline_ = SteadyNow() + *headers_.timeout();
    connection_->loop().timers().Set(&deadline_timer_, deadline_);
  }
  to_announce_ = true;
  Wake();
  CountWaiting();
}

void Http2Call::OnData(std::string_view bytes) {
  if (discarding_) return;
  if (!rules_.AddBody(bytes.size())) return BreakOff("a body longer than its content-length");
  const bool had_prefix = reader_.front_bytes().has_value();
  reader_.Append(bytes);
  if (reader_.fault() != MessageReader::Fault::kNone) return EndForFault();
  if (!had_prefix && reader_.front_bytes().has_value()) {
    if (wants_message_) OpenWindowToRead();
    if (wants_size_) Wake();
  }
  if (wants_message_ && reader_.complete()) Wake();
  CountWaiting();
}

void Http2Call::OnDataFrame(size_t padding_bytes) {
  // Padding uses up the window that was opened for the message.
  if (padding_bytes > 0 && (wants_message_ || wants_size_)) OpenWindowToRead();
}

void Http2Call::OnHalfClose() {
  if (!discarding_ && !rules_.IsWhole()) return BreakOff("a body shorter than its content-length");
  half_closed_ = true;
  if (http_status_ != 0) AnswerInHttp();
  if (wants_message_ || wants_size_) Wake();
}

void Http2Call::AnswerInHttp() {
  if (std::exchange(begun_, true)) return;
  SubmitHttpStatus(session(), id_, http_status_);
  connection_->Activate();
}

void Http2Call::OnClosed() {
  closed_ = true;
  connection_->loop().timers().Cancel(&deadline_timer_);
  DropBody();
  // Once its end is in the output, a call ends when the socket has taken that.
  if (!end_moved_) EndCall(CallerGoneError());
}

void Http2Call::OnConnectionLost() {
  connection_->loop().timers().Cancel(&deadline_timer_);
  in_output_ = false;
  DropBody();
  EndCall(CallerGoneError());
}

void Http2Call::OnEndMoved() {
  end_moved_ = true;
  discarding_ = true;
  if (!over() || in_output_) NoteMoved(/*end=*/true);
  if (half_closed_) return;
  // A client that does not speak gRPC gets time to finish its request: curl 7.88 reports an error of the stream instead
  // of the answer if it is reset before it has sent its body. The window, which stays closed, bounds what it can send.
  if (http_status_ != 0)
    return connection_->loop().timers().Set(&deadline_timer_, connection_->loop().now() + kRestTime);
  RefuseRest();
}

// RFC 9113, 8.1: asks the peer not to send the rest of a request that was answered early.
void Http2Call::RefuseRest() {
  nghttp2_submit_rst_stream(session(), NGHTTP2_FLAG_NONE, id_, NGHTTP2_NO_ERROR);
  connection_->Activate();
}

ssize_t Http2Call::OfferBody(size_t most, uint32_t* flags) {
  if (body_dropped_) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  const size_t bytes = std::min(most, body_.left());
  if (bytes > 0) *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (bytes == body_.left() && end_.has_value()) {
    // The trailers follow at once, in the same packet where there is room.
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    SubmitTrailers(session(), id_, *end_);
    return static_cast<ssize_t>(bytes);
  }
  if (bytes > 0) return static_cast<ssize_t>(bytes);
  deferred_ = true;
  return NGHTTP2_ERR_DEFERRED;
}

void Http2Call::MoveBody(size_t bytes, net::OutputQueue* output) {
  if (bytes > 0) in_output_ = true;
  body_.MoveTo(output, bytes);
  if (body_.empty() && !end_.has_value()) NoteMoved(/*end=*/false);
}

void Http2Call::NoteMoved(bool end) {
  moved_noted_ = true;
  connection_->NoteMoved(Self(), end);
}

void Http2Call::DropBody() {
  body_.Clear();
  body_dropped_ = true;
  if (in_output_ && !moved_noted_) NoteMoved(/*end=*/false);
  // Whoever wrote the message may still wait for it, also where the call was over before.
  if (writing_) Wake();
}

void Http2Call::OnTaken(bool end) {
  moved_noted_ = false;
  in_output_ = false;
  if (end && !over()) return EndCall(absl::OkStatus());
  body_taken_ = true;
  Wake();
}

// ---- Operations of the call ----

template <typename Operation>
void Http2Call::OnLoop(Operation operation) {
  net::EventLoop& loop = connection_->loop();
  if (loop.IsCurrent()) return operation();
  loop.Post([self = Self(), operation = std::move(operation)]() mutable { operation(); });
}

void Http2Call::StartReadSize() {
  OnLoop([this] { AskForSize(); });
}

void Http2Call::StartRead(bool /*is_counted*/) {
  OnLoop([this] { AskForMessage(/*head_alone=*/false); });
}

void Http2Call::StartReadHead() {
  OnLoop([this] { AskForMessage(/*head_alone=*/true); });
}

void Http2Call::StartWrite(MessageBytes message) {
  OnLoop([this, message = std::move(message)]() mutable { SendMessage(std::move(message)); });
}

void Http2Call::StartFinish(RpcEnd end) {
  OnLoop([this, end = std::move(end)]() mutable { SendEnd(std::move(end)); });
}

void Http2Call::StartWriteAndFinish(MessageBytes message, RpcEnd end) {
  OnLoop([this, message = std::move(message), end = std::move(end)]() mutable {
    if (!over()) end_ = std::move(end);
    SendMessage(std::move(message));
  });
}

void Http2Call::Cancel() {
  OnLoop([this] { Abort(); });
}

void Http2Call::AskForSize() {
  wants_size_ = true;
  if (reader_.front_bytes().has_value() || half_closed_ || over()) return Wake();
  OpenWindowToRead();
}

void Http2Call::AskForMessage(bool head_alone) {
  wants_message_ = true;
  if (over()) return Wake();
  if (head_alone) reader_.KeepHead(static_cast<size_t>(kHeadBytes));
  reader_.Open();
  CountWaiting();
  if (reader_.complete() || half_closed_) return Wake();
  OpenWindowToRead();
}

void Http2Call::SendMessage(MessageBytes message) {
  writing_ = true;
  body_taken_ = false;
  if (over()) return Wake();
  body_.Set(std::move(message));
  SendBody();
}

void Http2Call::SendEnd(RpcEnd end) {
  writing_ = true;
  body_taken_ = false;
  if (over()) return Wake();
  end_ = std::move(end);
  if (begun_) return SendBody();
  begun_ = true;
  SubmitTrailersOnly(session(), id_, *end_);
  connection_->Activate();
}

void Http2Call::Abort() {
  if (over() && body_.empty()) return;
  if (!closed_) nghttp2_submit_rst_stream(session(), NGHTTP2_FLAG_NONE, id_, NGHTTP2_CANCEL);
  connection_->Activate();
  DropBody();
  EndCall(CallerGoneError());
}

// ---- Within ----

void Http2Call::SendBody() {
  if (body_.left() > kLargeReplyBytes) {
    nghttp2_session_change_extpri_stream_priority(session(), id_, &kLargeReplyPriority, /*ignore_client_signal=*/1);
  }
  if (!begun_) {
    begun_ = true;
    SubmitReply(session(), id_, BodyOf(this));
  } else if (std::exchange(deferred_, false)) {
    nghttp2_session_resume_data(session(), id_);
  }
  connection_->Activate();
}

void Http2Call::EndCall(absl::Status end) {
  if (over()) return;
  end_of_call_ = std::move(end);
  over_.store(true, std::memory_order_release);
  connection_->loop().timers().Cancel(&deadline_timer_);
  discarding_ = true;
  reader_.Clear();
  CountWaiting();
  Wake();
}

void Http2Call::CountWaiting() {
  int64_t bytes = headers_.held_bytes();
  if (!wants_message_ && !wants_size_) bytes += reader_.held_bytes();
  if (bytes < kCountedWaitingBytes) bytes = 0;
  if (bytes == waiting_bytes_) return;
  const absl::Status fits = connection_->waiting_bytes().Add(bytes - waiting_bytes_);
  waiting_bytes_ = bytes;
  if (!fits.ok()) AnswerWith(fits);
}

void Http2Call::AnswerWith(const absl::Status& status) {
  if (over()) return;
  if (!end_.has_value()) {
    end_ = RpcEnd{.status = ToRpcStatus(status), .trailers = {{"grpc-accept-encoding", "identity"}}};
    if (begun_) {
      SendBody();
    } else {
      begun_ = true;
      SubmitTrailersOnly(session(), id_, *end_);
    }
  }
  connection_->Activate();
  EndCall(status);
}

void Http2Call::EndForFault() {
  if (over()) return;
  if (reader_.fault() == MessageReader::Fault::kCompressed) return AnswerWith(CompressedError("an unnamed algorithm"));
  AnswerWith(MessageTooLargeError(*reader_.front_bytes(), connection_->options().max_message_bytes));
}

void Http2Call::OnDeadline() {
  if (http_status_ != 0) return end_moved_ ? RefuseRest() : AnswerInHttp();
  if (over() || end_moved_) return;
  // A reply that the peer does not take is cut short; its peer, whose deadline it is, knows why.
  if (end_.has_value() || !body_.empty()) return Abort();
  AnswerWith(DeadlineError());
}

void Http2Call::OpenWindow(int64_t bytes) {
  const int64_t open = nghttp2_session_get_stream_local_window_size(session(), id_);
  if (open >= bytes) return;
  const int64_t most = std::numeric_limits<int32_t>::max();
  nghttp2_submit_window_update(session(), NGHTTP2_FLAG_NONE, id_,
                               static_cast<int32_t>(std::min(bytes, most) - std::max<int64_t>(open, 0)));
  connection_->Activate();
}

void Http2Call::OpenWindowToRead() {
  if (half_closed_ || closed_ || discarding_) return;
  const int64_t open = nghttp2_session_get_stream_local_window_size(session(), id_);
  const bool known = reader_.front_bytes().has_value();
  // A message of unknown size may be small: half a window lets it in, and saves a frame for each small message.
  const int64_t needed = known && wants_message_ ? reader_.missing_bytes() : kInitialWindowBytes / 2;
  if (open < needed) OpenWindow((known ? needed : 0) + kInitialWindowBytes);
}

void Http2Call::Deliver() {
  woken_ = false;
  if (std::exchange(to_announce_, false)) {
    if (over()) return;
    announced_ = true;
    Begin(connection_->call_host(), connection_);
    connection_->Announce(Self());
  }
  const auto tell_end = [this] {
    if (std::exchange(announced_, false)) HandleOver(end_of_call_);
  };
  // Whoever hears first that the call is lost does not take the end of its messages for the caller's mistake.
  if (over() && !end_of_call_.ok()) tell_end();
  DeliverRead();
  DeliverWritten();
  if (over()) tell_end();
}

void Http2Call::DeliverRead() {
  if (wants_size_ && (reader_.front_bytes().has_value() || half_closed_ || over())) {
    wants_size_ = false;
    HandleSize(reader_.front_bytes());
  }
  if (!wants_message_) return;
  if (!over() && reader_.complete()) {
    wants_message_ = false;
    MessageBytes message = reader_.Take();
    CountWaiting();
    HandleRead(std::move(message));
    if (reader_.fault() != MessageReader::Fault::kNone) EndForFault();
    return;
  }
  if (!over() && !half_closed_) return;
  // A message that ends in its middle gives the call an end that is not the services'.
  if (!over() && !reader_.empty()) AnswerWith(TruncatedMessageError());
  wants_message_ = false;
  HandleRead(std::nullopt);
}

void Http2Call::DeliverWritten() {
  // What the message is made of, and what is reserved for it, belongs to the callback. Some of the message may still
  // wait for the socket when its call is over.
  const bool is_gone = over() && body_.empty() && !in_output_;
  if (!writing_ || (!body_taken_ && !is_gone)) return;
  writing_ = false;
  HandleWritten();
}

}  // namespace normd::rpc::http2
