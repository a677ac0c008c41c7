// The life of a connection, apart from its bytes: set-up, keepalive, age, drain, and the end.
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/base/random_number.h"
#include "server/base/steady_time.h"
#include "server/rpc/transport/native/http2_connection.h"
#include "server/rpc/transport/native/http2_stream.h"

namespace normd::rpc::native {
namespace {

// PING and SETTINGS of the peer, each of which is answered. Clients of gRPC ping when they measure the bandwidth, which
// is at most once a round trip.
constexpr double kControlFrameBurst = 10000;
constexpr double kControlFramesPerSecond = 2000;
// How long a peer has to answer the PING of a drain, and how long one that was sent everything has to close.
constexpr absl::Duration kDrainTimeout = absl::Seconds(1);
constexpr absl::Duration kLingerTimeout = absl::Seconds(1);
// The contents of the PING that tells when the peer has read the first GOAWAY.
constexpr uint8_t kDrainPing[8] = {'d', 'r', 'a', 'i', 'n', 'i', 'n', 'g'};

// Connections that were made at the same time should not all end at the same time: 0.9 to 1.1 times the age.
absl::Duration Spread(absl::Duration age) {
  if (age == absl::InfiniteDuration()) return age;
  return age * (0.9 + 0.2 * static_cast<double>(RandomNumber() % 1024) / 1024);
}

}  // namespace

Http2Connection::Http2Connection(const Host& host, std::unique_ptr<ByteStream> bytes, ConnectionPtr peer)
    : host_(host),
      peer_(std::move(peer)),
      waiting_bytes_(host.waiting_bytes == nullptr ? WaitingBytes(host.options->max_waiting_bytes).ShareOf("")
                                                   : host.waiting_bytes->ShareOf(peer_->address())),
      bytes_(std::move(bytes)),
      timer_([this] { LookAfter(); }),
      last_heard_(SteadyNow()),
      setup_end_(last_heard_ + options().setup_timeout / (peer_->is_tls() ? 2 : 1)),
      age_end_(last_heard_ + Spread(options().max_connection_age)),
      idle_since_(last_heard_),
      control_frames_(kControlFrameBurst, kControlFramesPerSecond),
      resets_(RateGuard::OfResets(options().max_cancels_per_second)) {}

Http2Connection::~Http2Connection() = default;

void Http2Connection::Open() {
  session_ = MakeSession(this, options());
  events_ = EPOLLIN;
  if (session_ == nullptr || !loop().Add(shared_from_this(), bytes_->fd(), events_)) {
    session_.reset();
    bytes_.reset();
    closed_ = true;
    return;
  }
  SetTimer();
  if (SetUp()) Activate();
}

bool Http2Connection::SetUp() {
  const IoState state = bytes_->SetUp();
  if (state == IoState::kEnded || state == IoState::kFlooded) {
    const std::string failure = bytes_->failure();
    if (!failure.empty() && options().on_handshake_failed) options().on_handshake_failed(peer_->address(), failure);
    Close();
  } else if (state == IoState::kBlocked) {
    Watch(EPOLLIN | (bytes_->WantsToWrite() ? uint32_t{EPOLLOUT} : 0));
  } else {
    set_up_ = true;
    tls_peer_ = bytes_->peer();
    unread_ = bytes_->HasReceived();
  }
  return set_up_;
}

void Http2Connection::OnFrameReceived(const nghttp2_frame& frame) {
  const bool is_ack = (frame.hd.flags & NGHTTP2_FLAG_ACK) != 0;
  // Connection::AllowReset hears from the services, which count only calls that they have not answered.
  if (frame.hd.type == NGHTTP2_RST_STREAM && !resets_.Allow(loop().now())) flooded_ = true;
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
  loop().load().CountReset(error_code);
  // These two are the server's own will. All others answer what the peer did.
  if (error_code == NGHTTP2_NO_ERROR || error_code == NGHTTP2_CANCEL) return;
  const double weight = error_code == NGHTTP2_REFUSED_STREAM ? kWeightOfExcess : 1;
  if (!peer_->AllowReset(loop().now(), weight)) flooded_ = true;
}

void Http2Connection::EndSession() {
  ending_ = true;
  if (flooded_) Count(RefusedFor::kFlood);
  nghttp2_session_terminate_session(session(), flooded_ ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_PROTOCOL_ERROR);
  Pump();
}

void Http2Connection::OnProtocolError(std::string_view why) {
  if (options().on_protocol_error) options().on_protocol_error(peer_->address(), std::string(why));
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
  if (peer_->MarkEnded() && options().count_closed) options().count_closed(reason);
}

void Http2Connection::Drain(bool server_ends) {
  server_ends_ = server_ends_ || server_ends;
  if (closed_) return;
  if (server_ends && taken_end_ != absl::InfiniteFuture()) {
    taken_mark_ = 0;  // the time for what waits begins now
    NoteTaken();
  }
  if (draining_) return;
  draining_ = true;
  // First a GOAWAY that allows all streams, then the real one when the peer has read the first: no call is lost that
  // was under way in the meantime.
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
  // The peer closes when it has read all; to close first could reset the connection under what is still on its way.
  lingering_ = true;
  linger_end_ = loop().now() + kLingerTimeout;
  bytes_->EndWriting();
  SetTimer();
}

void Http2Connection::Close() {
  if (closed_) return;
  closed_ = true;
  loop().timers().Cancel(&timer_);
  loop().Remove(this, bytes_->fd());
  if (at_stream_limit_) loop().load().CountAtStreamLimit(-1);
  for (const auto& stream : streams_) stream->OnConnectionLost();
  for (const Moved& moved : moved_) moved.stream->OnConnectionLost();
  streams_.clear();
  moved_.clear();
  output_.Clear();
  session_.reset();
  bytes_.reset();
  Activate();
}

}  // namespace normd::rpc::native
