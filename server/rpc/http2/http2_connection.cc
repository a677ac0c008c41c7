#include "server/rpc/http2/http2_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "server/base/steady_time.h"
#include "server/rpc/http2/http2_call.h"

namespace normd::rpc::http2 {
namespace {

// The output that waits for the socket, beyond which nghttp2 keeps its frames: enough for a system call to be worth
// its cost, and little enough that a small reply does not wait long behind a large one.
constexpr size_t kMaxOutputBytes = 512 << 10;
// How much one connection may read before others have their turn; it may also write once, which is not much more than
// kMaxOutputBytes. Both are copies by the kernel, a quarter of a millisecond for a mebibyte: less at a time costs large
// messages a tenth of their rate.
constexpr size_t kReadBytesPerTurn = 1 << 20;
// The same for input that costs more than its bytes: small TLS records, fields of HPACK's table.
constexpr absl::Duration kReadTimePerTurn = absl::Milliseconds(1);
// HPACK decodes a block to its end even where it is refused, and a byte may stand for a field of 4 KiB. A refused block
// costs at most this, or four times the limit of the metadata if that is more; no client sends so much.
constexpr size_t kMinHeaderBlockBytes = 64 << 10;
// How long a peer has to read its output when the server ends.
constexpr absl::Duration kUnreadTimeoutInDrain = absl::Seconds(3);
// From this size on, bytes are read straight into their message.
constexpr size_t kMinDirectBytes = 4 << 10;
// The bytes that are read behind those that go straight to their message: the next frame's head, and small frames. A
// smaller number copies less of a large message.
constexpr size_t kBehindBytes = 4 << 10;
// Frames of nghttp2 that may wait for a peer which does not read, beside a few of each stream; then nothing more is
// read from it.
constexpr size_t kMaxWaitingFrames = 256;
constexpr size_t kWaitingFramesPerStream = 4;
// How long callbacks may run before their output is written. Replies that are written together share the cost of a
// write and of the peer's wake-up; but while they wait for each other the peer, which could prepare its next calls,
// waits too. With 16 calls of 4 KiB in flight, gRPC's client gets 1.25 times as many answers as without a limit, and
// h2load 0.95; with 30 us h2load gets 0.7.
constexpr absl::Duration kMostUnsentTime = absl::Microseconds(60);
// How often the callbacks of a connection's calls may follow each other before it writes.
constexpr int kRoundsPerWrite = 16;
// A message of a stream counts as taken when no more than this stands between its end and the socket, so that the
// replies to a few small messages leave together. It is also the most that a connection may hold after its calls have
// stopped counting it.
constexpr uint64_t kUntakenBytes = 16 << 10;

}  // namespace

void Http2Connection::OnEvents(uint32_t events) {
  if (closed_) return;
  if ((events & EPOLLOUT) != 0) blocked_ = false;
  Activate();
  if (bytes_ == nullptr) return HearPreface();
  if (session_ == nullptr && !SetUpTls()) return;
  if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) ReadSome();
}

void Http2Connection::Activate() {
  if (std::exchange(active_, true)) return;
  loop().Activate(shared_from_this());
}

void Http2Connection::Wake(std::shared_ptr<Http2Call> stream) {
  woken_.push_back(std::move(stream));
  Activate();
}

void Http2Connection::Deliver() {
  if (unread_ && !closed_ && !IsStalled()) {
    ReadSome();
    loop().NoteWork();
  }
  // A stream of small messages has work for every round.
  for (int round = 0; round < kRoundsPerWrite && !woken_.empty(); ++round) {
    std::vector<std::shared_ptr<Http2Call>> woken;
    woken.swap(woken_);
    for (const auto& stream : woken) {
      unsent_time_ += loop().Call([&stream] { stream->Deliver(); });
      if (unsent_time_ >= kMostUnsentTime) Send();
    }
    // Keeps the memory for the next time.
    woken.clear();
    if (woken_.empty()) woken_.swap(woken);
    if (closed_ || session_ == nullptr || blocked_) return;
    if (!Pump()) return Close();
    TellTaken(kUntakenBytes);
  }
}

void Http2Connection::ReadSome() {
  unread_ = false;
  absl::Time end = absl::InfiniteFuture();
  for (size_t total = 0; total < kReadBytesPerTurn;) {
    const absl::Span<char> direct = Destination().subspan(0, kReadBytesPerTurn - total);
    const absl::Span<char> scratch = loop().scratch().first(ScratchBytes(!direct.empty()));
    const std::array<iovec, 2> parts = {iovec{.iov_base = direct.data(), .iov_len = direct.size()},
                                        iovec{.iov_base = scratch.data(), .iov_len = scratch.size()}};
    const net::IoResult result = bytes_->Read(absl::MakeConstSpan(parts).subspan(direct.empty() ? 1 : 0));
    if (result.state == net::IoState::kBlocked) return NoteHeaderBlock();
    if (result.state == net::IoState::kFlooded) Count(RefusedFor::kFlood);
    if (result.state != net::IoState::kOk) return Close();
    total += result.bytes;
    last_heard_ = loop().now();
    pinged_ = false;
    const size_t placed = std::min(result.bytes, direct.size());
    const bool fed = lingering_ || (Feed({direct.data(), placed}) && Feed({scratch.data(), result.bytes - placed}));
    if (!fed) return;  // Flush sends the last frames, and closes
    if (IsStalled()) break;
    if (result.bytes < direct.size() + scratch.size() && !bytes_->HasReceived()) return NoteHeaderBlock();
    const absl::Time now = SteadyNow();
    if (now >= end) break;
    if (end == absl::InfiniteFuture()) end = now + kReadTimePerTurn;
  }
  NoteHeaderBlock();
  unread_ = bytes_->HasReceived();
}

absl::Span<char> Http2Connection::Destination() {
  const size_t coming = scanner_.data_bytes();
  if (coming < kMinDirectBytes || lingering_) return {};
  auto* const stream = static_cast<Http2Call*>(nghttp2_session_get_stream_user_data(session(), scanner_.stream_id()));
  if (stream == nullptr) return {};
  const absl::Span<char> destination = stream->Destination();
  if (destination.size() < kMinDirectBytes) return {};
  return destination.first(std::min(coming, destination.size()));
}

size_t Http2Connection::ScratchBytes(bool has_destination) const {
  // Where large messages are expected, little is read of them before their place is known.
  const bool large = expected_bytes() >= static_cast<int64_t>(loop().scratch().size() / 2);
  return has_destination || large ? kBehindBytes : loop().scratch().size();
}

bool Http2Connection::Feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t size = scanner_.Scan(bytes);
    if (IsHeaderBlockTooLarge()) flooded_ = true;
    if (!FeedPiece(bytes.substr(0, size))) return false;
    bytes.remove_prefix(size);
    // A call that is given out before its message's frames can have them read to their place.
    if (scanner_.at_headers_end()) Deliver();
    if (closed_) return false;
  }
  return true;
}

bool Http2Connection::FeedPiece(std::string_view piece) {
  if (ending_ || nghttp2_session_want_read(session()) == 0) return false;
  if (flooded_) {
    EndSession();
    return false;
  }
  const ssize_t taken =
      nghttp2_session_mem_recv(session(), reinterpret_cast<const uint8_t*>(piece.data()), piece.size());
  // A session that has failed, or has begun to end itself, must not be shown anything more (CVE-2026-27135). That it
  // ends itself shows when its GOAWAY was moved to the output.
  if (taken != static_cast<ssize_t>(piece.size())) {
    flooded_ = flooded_ || taken == NGHTTP2_ERR_FLOODED;
    EndSession();
    return false;
  }
  if (flooded_) {
    EndSession();
    return false;
  }
  return Pump() && nghttp2_session_want_read(session()) != 0;
}

bool Http2Connection::Pump() {
  pump_full_ = false;
  return nghttp2_session_want_write(session()) == 0 || nghttp2_session_send(session()) == 0;
}

bool Http2Connection::HasRoom() {
  pump_full_ = output_.size_bytes() >= kMaxOutputBytes;
  return !pump_full_;
}

void Http2Connection::Flush() {
  active_ = false;
  // Calls that have lost their connection may still have callbacks that wait for others to return.
  if (closed_ && !woken_.empty()) Activate();
  Send();
  if (closed_ || session_ == nullptr) return;
  Watch((blocked_ ? uint32_t{EPOLLOUT} : 0) | (IsStalled() ? 0 : uint32_t{EPOLLIN}));
  const bool done = nghttp2_session_want_read(session()) == 0 && nghttp2_session_want_write(session()) == 0;
  // A peer that floods the server may not read either, and nothing is owed to it.
  if (ending_ && flooded_) return Close();
  if (done && output_.empty()) return Linger();
  if (!woken_.empty() || (unread_ && !IsStalled()) || (!blocked_ && (pump_full_ || !output_.empty()))) Activate();
}

void Http2Connection::Send() {
  unsent_time_ = absl::ZeroDuration();
  if (closed_ || session_ == nullptr || blocked_) return;
  if (!Pump()) return Close();
  if (output_.empty()) return;
  const net::IoState state = output_.WriteTo(*bytes_);
  if (state == net::IoState::kEnded) return Close();
  blocked_ = state == net::IoState::kBlocked;
  if (blocked_ || taken_end_ != absl::InfiniteFuture()) NoteTaken();
  TellTaken(0);
}

void Http2Connection::NoteTaken() {
  if (taken_end_ != absl::InfiniteFuture() && output_.written() < taken_mark_) return;
  taken_mark_ = output_.appended();
  const absl::Duration timeout = server_ends_ ? kUnreadTimeoutInDrain : UnreadTimeout(options());
  taken_end_ = output_.empty() ? absl::InfiniteFuture() : loop().now() + timeout;
  SetTimer();
}

bool Http2Connection::IsHeaderBlockTooLarge() const {
  const auto most = size_t{4} * static_cast<size_t>(options().max_metadata_bytes);
  return scanner_.header_block_bytes() > std::max(kMinHeaderBlockBytes, most);
}

void Http2Connection::NoteMoved(std::shared_ptr<Http2Call> stream, bool end) {
  // nghttp2 reports a frame when it is in the output.
  moved_.push_back({.position = output_.appended(), .stream = std::move(stream), .end = end});
}

void Http2Connection::TellTaken(uint64_t untaken_bytes) {
  const auto is_taken = [&](const Moved& moved) {
    return moved.position <= output_.written() + (moved.end ? 0 : untaken_bytes);
  };
  while (!moved_.empty() && is_taken(moved_.front())) {
    const Moved moved = std::move(moved_.front());
    moved_.pop_front();
    moved.stream->OnTaken(moved.end);
  }
}

bool Http2Connection::IsStalled() const {
  const size_t most = kMaxWaitingFrames + kWaitingFramesPerStream * static_cast<size_t>(ConcurrentStreams(options()));
  return blocked_ && session_ != nullptr && nghttp2_session_get_outbound_queue_size(session()) > most;
}

void Http2Connection::Watch(uint32_t events) {
  if (events == events_) return;
  events_ = events;
  loop().Change(this, fd(), events);
}

void Http2Connection::AddStream(int32_t id) {
  auto stream = std::make_shared<Http2Call>(shared_from_this(), id);
  stream->place = streams_.size();
  nghttp2_session_set_stream_user_data(session(), id, stream.get());
  streams_.push_back(std::move(stream));
  NoteStreams();
}

void Http2Connection::NoteStreams() {
  const bool full = streams_.size() >= static_cast<size_t>(ConcurrentStreams(options()));
  if (full == at_stream_limit_) return;
  at_stream_limit_ = full;
  counts().CountAtStreamLimit(full ? 1 : -1);
}

void Http2Connection::RemoveStream(Http2Call* stream) {
  const size_t place = stream->place;
  const std::shared_ptr<Http2Call> removed = std::move(streams_[place]);
  if (place + 1 < streams_.size()) {
    streams_[place] = std::move(streams_.back());
    streams_[place]->place = place;
  }
  streams_.pop_back();
  NoteStreams();
  if (streams_.empty()) idle_since_ = loop().now();
  removed->OnClosed();
}

}  // namespace normd::rpc::http2
