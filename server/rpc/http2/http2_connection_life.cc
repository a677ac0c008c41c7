// The life of a connection, apart from its bytes: set-up, keepalive, age, drain, and the end.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "server/base/random_number.h"
#include "server/base/steady_time.h"
#include "server/net/plain_socket.h"
#include "server/net/tls_socket.h"
#include "server/rpc/http2/http2_call.h"
#include "server/rpc/http2/http2_connection.h"

namespace normd::rpc::http2 {
namespace {

// PING and SETTINGS of the peer, each of which is answered. Clients of gRPC ping when they measure the bandwidth, which
// is at most once a round trip.
constexpr double kControlFrameBurst = 10000;
constexpr double kControlFramesPerSecond = 2000;
// How long a peer has to answer the PING of a drain, and how long one that was sent everything has to close.
constexpr absl::Duration kDrainTimeout = absl::Seconds(1);
constexpr absl::Duration kLingerTimeout = absl::Seconds(1);
// The contents of the PING whose answer shows that the peer has read the first GOAWAY.
constexpr uint8_t kDrainPing[8] = {'d', 'r', 'a', 'i', 'n', 'i', 'n', 'g'};

// Connections that were made at the same time should not all end at the same time: 0.9 to 1.1 times the age.
absl::Duration Spread(absl::Duration age) {
  if (age == absl::InfiniteDuration()) return age;
  return age * (0.9 + 0.2 * static_cast<double>(RandomNumber() % 1024) / 1024);
}

}  // namespace

Http2Connection::Http2Connection(const Host& host, Facts facts, std::shared_ptr<PeerCalls> peer_calls)
    : Connection(std::move(facts), std::move(peer_calls)),
      host_(host),
      waiting_bytes_(host.waiting_bytes == nullptr ? WaitingBytes(MaxWaitingBytes(*host.options)).ShareOf("")
                                                   : host.waiting_bytes->ShareOf(address())),
      timer_([this] { LookAfter(); }),
      last_heard_(SteadyNow()),
      setup_end_(last_heard_ + options().setup_timeout),
      age_end_(last_heard_ + Spread(options().max_connection_age)),
      idle_since_(last_heard_),
      control_frames_(kControlFrameBurst, kControlFramesPerSecond),
      reset_frames_(ResetGuard(options().max_cancels_per_second)) {}

Http2Connection::~Http2Connection() = default;

void Http2Connection::Open(UniqueFd fd) {
  fd_ = std::move(fd);
  events_ = EPOLLIN;
  if (!loop().Add(shared_from_this(), fd_.get(), events_)) {
    Count(RefusedFor::kDescriptors);
    return Close();
  }
  SetTimer();
}

void Http2Connection::HearPreface() {
  const absl::Span<char> scratch = loop().scratch();
  const ssize_t got = recv(fd_.get(), scratch.data(), scratch.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    Count(RefusedFor::kLeft);
    return Close();
  }
  if (lingering_) {
    discarded_bytes_ += got;
    // What else comes waits in the system, and with it the answer: to close now would destroy it.
    if (discarded_bytes_ > kMostDiscardedBytes) Watch(0);
    return;
  }
  first_.append(scratch.data(), static_cast<size_t>(got));
  const std::string_view window = std::string_view(first_).substr(0, kPrefaceWindowBytes);
  const Preface spoken = is_tls() ? JudgeClientHello(window, first_.size()) : JudgePreface(window);
  if (spoken == Preface::kIncomplete) return;
  if (spoken != Preface::kComplete) return TurnAway(spoken);
  if (host_.connections != nullptr) host_.connections->CountAccepted(*this);
  last_heard_ = loop().now();
  const std::string first = std::move(first_);
  if (is_tls()) {
    bytes_ = std::make_unique<net::TlsSocket>(std::move(fd_), host_.tls->current(), first);
    SetUpTls();
    return;
  }
  bytes_ = std::make_unique<net::PlainSocket>(std::move(fd_));
  if (Begin() && Feed(first)) NoteHeaderBlock();
}

void Http2Connection::TurnAway(Preface spoken) {
  const Farewell farewell = FarewellTo(spoken, is_tls());
  Count(farewell.reason);
  if (farewell.answer.empty()) return Close();
  send(fd_.get(), farewell.answer.data(), farewell.answer.size(), MSG_NOSIGNAL);
  shutdown(fd_.get(), SHUT_WR);
  lingering_ = true;
  linger_end_ = loop().now() + std::min(kFarewellTime, options().setup_timeout);
  SetTimer();
}

bool Http2Connection::SetUpTls() {
  const net::IoState state = bytes_->SetUp();
  if (state == net::IoState::kBlocked) {
    Watch(EPOLLIN | (bytes_->WantsToWrite() ? uint32_t{EPOLLOUT} : 0));
    return false;
  }
  if (state == net::IoState::kOk) {
    unread_ = bytes_->HasReceived();
    return Begin();
  }
  const std::string failure = bytes_->failure();
  if (!failure.empty() && options().observer.on_handshake_failed)
    options().observer.on_handshake_failed(address(), failure);
  Close();
  return false;
}

bool Http2Connection::Begin() {
  tls_peer_ = bytes_->peer();
  session_ = MakeSession(this, options());
  if (session_ == nullptr) {
    Close();
    return false;
  }
  SetTimer();
  if (drain_at_begin_) Drain(server_ends_);
  return true;
}

void Http2Connection::OnFrameReceived(const nghttp2_frame& frame) {
  const bool is_ack = (frame.hd.flags & NGHTTP2_FLAG_ACK) != 0;
  // AllowReset is called by the services, which count only calls that they have not answered.
  if (frame.hd.type == NGHTTP2_RST_STREAM && !reset_frames_.Allow(loop().now())) flooded_ = true;
  if (frame.hd.type == NGHTTP2_SETTINGS && !is_ack) setup_end_ = absl::InfiniteFuture();
  if (frame.hd.type != NGHTTP2_SETTINGS && frame.hd.type != NGHTTP2_PING) return;
  if (!is_ack && !control_frames_.Allow(loop().now())) flooded_ = true;
  if (frame.hd.type == NGHTTP2_PING && is_ack && draining_ &&
      std::memcmp(frame.ping.opaque_data, kDrainPing, sizeof(kDrainPing)) == 0) {
    drain_end_ = loop().now();
    SetTimer();
  }
}

void Http2Connection::OnResetSent(uint32_t error_code) {
  counts().CountReset(error_code);
  // The server sends these two of its own accord. All others answer something that the peer did.
  if (error_code == NGHTTP2_NO_ERROR || error_code == NGHTTP2_CANCEL) return;
  const double weight = error_code == NGHTTP2_REFUSED_STREAM ? kWeightOfExcess : 1;
  if (!AllowReset(loop().now(), weight)) flooded_ = true;
}

void Http2Connection::EndSession() {
  ending_ = true;
  if (flooded_) Count(RefusedFor::kFlood);
  nghttp2_session_terminate_session(session(), flooded_ ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_PROTOCOL_ERROR);
  Pump();
}

void Http2Connection::OnProtocolError(std::string_view why) {
  if (options().observer.on_protocol_error) options().observer.on_protocol_error(address(), std::string(why));
}

void Http2Connection::OnGivenUp(std::string_view why) {
  Count(RefusedFor::kProtocol);
  if (!why.empty()) OnProtocolError(why);
}

void Http2Connection::NoteHeaderBlock() {
  const bool comes = scanner_.in_header_block() && !closed_;
  if (comes == (headers_end_ != absl::InfiniteFuture())) return;
  headers_end_ = comes ? loop().now() + options().setup_timeout : absl::InfiniteFuture();
  if (comes) SetTimer();
}

void Http2Connection::Count(RefusedFor reason) {
  if (host_.connections != nullptr) host_.connections->CountEnded(*this, reason);
}

void Http2Connection::Drain(bool server_ends) {
  server_ends_ = server_ends_ || server_ends;
  if (closed_) return;
  if (session_ == nullptr && bytes_ == nullptr) return Close();
  if (session_ == nullptr) {
    drain_at_begin_ = true;  // once the handshake has made a session that can say so
    return;
  }
  if (server_ends && taken_end_ != absl::InfiniteFuture()) {
    taken_mark_ = 0;  // the time for what waits begins now
    NoteTaken();
  }
  if (draining_) return;
  draining_ = true;
  // First a GOAWAY that allows all streams, then the real one when the peer has read the first: no call that is on its
  // way meanwhile is lost.
  nghttp2_submit_shutdown_notice(session());
  nghttp2_submit_ping(session(), NGHTTP2_FLAG_NONE, kDrainPing);
  drain_end_ = loop().now() + kDrainTimeout;
  SetTimer();
  Activate();
}

void Http2Connection::LookAfter() {
  const absl::Time now = loop().now();
  if (now >= setup_end_) {
    Count(RefusedFor::kSetup);
    return Close();
  }
  if (now >= linger_end_) return Close();
  if (session_ == nullptr) return SetTimer();
  if (now >= headers_end_ || now >= taken_end_) {
    Count(RefusedFor::kStalled);
    return Close();
  }
  const absl::Time ping_at = last_heard_ + options().keepalive_interval;
  if (pinged_ && now >= ping_at + options().keepalive_timeout) {
    Count(RefusedFor::kKeepalive);
    return Close();
  }
  if (!pinged_ && now >= ping_at) {
    pinged_ = true;
    nghttp2_submit_ping(session(), NGHTTP2_FLAG_NONE, nullptr);
    Activate();
  }
  const bool is_idle = streams_.empty() && now >= idle_since_ + options().max_connection_idle;
  if (now >= age_end_ || is_idle) {
    Count(now >= age_end_ ? RefusedFor::kAge : RefusedFor::kIdle);
    age_end_ = absl::InfiniteFuture();
    Drain();
  }
  if (now >= drain_end_) {
    drain_end_ = absl::InfiniteFuture();
    nghttp2_submit_goaway(session(), NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session()),
                          NGHTTP2_NO_ERROR, nullptr, 0);
    Activate();
  }
  SetTimer();
}

void Http2Connection::SetTimer() {
  if (session_ == nullptr) return loop().timers().Set(&timer_, std::min(setup_end_, linger_end_));
  const absl::Time ping_at = last_heard_ + options().keepalive_interval;
  const absl::Time alive = pinged_ ? ping_at + options().keepalive_timeout : ping_at;
  // Calls come and go without the timer being set; so it looks again as long after now as a connection may be idle.
  const absl::Time idle_since = streams_.empty() ? idle_since_ : loop().now();
  const absl::Time idle_end = draining_ ? absl::InfiniteFuture() : idle_since + options().max_connection_idle;
  loop().timers().Set(
      &timer_, std::min({setup_end_, linger_end_, alive, age_end_, idle_end, drain_end_, headers_end_, taken_end_}));
}

void Http2Connection::Linger() {
  if (lingering_) return;
  // The peer closes when it has read all; to close first could reset the connection while bytes are still on their way.
  lingering_ = true;
  linger_end_ = loop().now() + kLingerTimeout;
  bytes_->EndWriting();
  SetTimer();
}

void Http2Connection::Close() {
  if (closed_) return;
  closed_ = true;
  loop().timers().Cancel(&timer_);
  loop().Remove(this, fd());
  if (host_.connections != nullptr) host_.connections->Remove(*this);
  if (at_stream_limit_) counts().CountAtStreamLimit(-1);
  for (const auto& stream : streams_) stream->OnConnectionLost();
  for (const Moved& moved : moved_) moved.stream->OnConnectionLost();
  streams_.clear();
  moved_.clear();
  output_.Clear();
  session_.reset();
  bytes_.reset();
  fd_.Close();
  Activate();
}

}  // namespace normd::rpc::http2
