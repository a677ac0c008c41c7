// One connection of the native transport: its socket, nghttp2's session, its streams and its output.
// In the path: the loop reports events of its socket; it judges the first bytes, which cost next to nothing until they
// are right, then feeds nghttp2, has its streams run their callbacks, and writes.
// The bytes of large messages are read straight to where they belong: nghttp2 is shown them there.
// Ownership: shared by the loop, until it is closed, and by its streams. Owns the descriptor.
// Threads: the loop's thread, but for tls_peer(), loop(), options(), counts(), and the functions of Connection.
#ifndef NORMD_SERVER_RPC_HTTP2_HTTP2_CONNECTION_H_
#define NORMD_SERVER_RPC_HTTP2_HTTP2_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/buffer.h"
#include "server/base/fifo.h"
#include "server/base/unique_fd.h"
#include "server/net/byte_stream.h"
#include "server/net/event_loop.h"
#include "server/net/output_queue.h"
#include "server/net/rate_guard.h"
#include "server/net/timer_heap.h"
#include "server/net/tls_contexts.h"
#include "server/rpc/edge/connection.h"
#include "server/rpc/edge/preface.h"
#include "server/rpc/edge/reset_guard.h"
#include "server/rpc/edge/rpc_options.h"
#include "server/rpc/edge/transport.h"
#include "server/rpc/http2/frame_scanner.h"
#include "server/rpc/http2/http2_counts.h"
#include "server/rpc/http2/http2_session.h"
#include "server/rpc/http2/waiting_bytes.h"

namespace normd::rpc::http2 {

class Http2Call;

class Http2Connection final : public Connection,
                              public net::Handler,
                              public std::enable_shared_from_this<Http2Connection> {
 public:
  // What all connections of a loop share; must outlive them.
  struct Host {
    net::EventLoop* loop;
    const RpcOptions* options;
    const RpcTransport::OnCall* on_call;
    CallHost calls;
    Http2Counts* counts;
    ConnectionTable* connections = nullptr;  // counts the connections; null: nobody does
    BufferPool* buffers = nullptr;           // of messages; null: malloc
    net::TlsContexts* tls = nullptr;         // null: no peer speaks TLS
    WaitingBytes* waiting_bytes = nullptr;   // null: the connection counts by itself
  };

  Http2Connection(const Host& host, Facts facts, std::shared_ptr<PeerCalls> peer_calls);
  ~Http2Connection() override;

  net::EventLoop& loop() const { return *host_.loop; }
  const RpcOptions& options() const { return *host_.options; }
  BufferPool* buffers() const { return host_.buffers; }
  Http2Counts& counts() const { return *host_.counts; }
  // REQUIRES: a call came on this connection.
  const net::TlsPeerPtr& tls_peer() const { return tls_peer_; }

  // ---- Life ----
  // Joins the loop. `fd` does not block, and nothing was read from it. Called once.
  void Open(UniqueFd fd);
  // Asks the peer to open no more calls, and closes the connection when it has none. Where the `server_ends`, the peer
  // has less time to read its replies.
  void Drain(bool server_ends = false);
  // Closes the socket, and ends all calls. Not to be called while nghttp2 is at work.
  void Close();

  // ---- For the loop ----
  void OnEvents(uint32_t events) override;
  // Runs callbacks of the calls for which something has happened.
  void Deliver() override;
  // Writes the output, and closes the connection if it has nothing more to do.
  void Flush() override;

  // ---- For the streams ----
  nghttp2_session* session() const { return session_.get(); }
  // Has Deliver and Flush run in this turn.
  void Activate();
  // Has the stream's Deliver run soon.
  void Wake(std::shared_ptr<Http2Call> stream);
  WaitingBytes::Share& waiting_bytes() { return *waiting_bytes_; }
  const CallHost& call_host() const { return host_.calls; }
  void Announce(std::shared_ptr<RpcCall> call) { (*host_.on_call)(std::move(call)); }
  // Records that all bytes of the stream's message, or of its whole reply, are in the output. The stream is notified
  // when the socket has taken them.
  void NoteMoved(std::shared_ptr<Http2Call> stream, bool end);

  // ---- For nghttp2's callbacks ----
  net::OutputQueue& output() { return output_; }
  bool HasRoom();
  void AddStream(int32_t id);
  void RemoveStream(Http2Call* stream);
  void OnFrameReceived(const nghttp2_frame& frame);
  void OnResetSent(uint32_t error_code);
  // nghttp2 refuses a request, for the reason `why`.
  void OnProtocolError(std::string_view why);
  // A GOAWAY for an error was sent, by EndSession or by nghttp2 itself, which says why.
  void OnGivenUp(std::string_view why);

 private:
  // A stream that waits until the socket has taken all bytes up to `position`.
  struct Moved {
    uint64_t position = 0;
    std::shared_ptr<Http2Call> stream;
    bool end = false;
  };

  // Reads the first bytes, until they show what the peer speaks.
  void HearPreface();
  // Ends a connection whose peer speaks something else, with an answer where there is one.
  void TurnAway(Preface spoken);
  // Goes on with TLS's handshake. Returns whether it is complete.
  bool SetUpTls();
  // Begins HTTP/2. Returns false, with the connection closed, when there is no memory.
  bool Begin();
  int fd() const { return bytes_ == nullptr ? fd_.get() : bytes_->fd(); }
  void ReadSome();
  // Shows nghttp2 the next bytes. Returns false when it wants no more.
  bool Feed(std::string_view bytes);
  bool FeedPiece(std::string_view piece);
  // Where the next bytes should be read to if they belong to a large message; empty otherwise.
  absl::Span<char> Destination();
  size_t ScratchBytes(bool has_destination) const;
  // Moves nghttp2's frames to the output. Returns false when it cannot go on.
  bool Pump();
  // Moves frames to the socket, until it takes no more or there was one write. May close the connection.
  void Send();
  // Tells the streams whose bytes the socket has taken, and those whose messages have not more than `untaken_bytes`
  // before them and in them.
  void TellTaken(uint64_t untaken_bytes);
  bool IsStalled() const;
  // Records the peer's progress in reading; the connection is ended when it reads too slowly.
  void NoteTaken();
  // Records whether a header block is incomplete; the connection is ended when its end does not arrive in time.
  void NoteHeaderBlock();
  // Counts the connection among those at their limit of streams, or no longer.
  void NoteStreams();
  // Whether the header block that comes is too large to be decoded.
  bool IsHeaderBlockTooLarge() const;
  void Watch(uint32_t events);
  // Ends a connection without calls, so that the peer gets all that was sent.
  void Linger();
  // Ends the session, because its peer has broken the rules or asks too much.
  void EndSession();
  // Counts why the server ends the connection; the first reason counts.
  void Count(RefusedFor reason);
  void LookAfter();
  void SetTimer();

  const Host host_;
  const std::shared_ptr<WaitingBytes::Share> waiting_bytes_;
  UniqueFd fd_;                             // until bytes_ has it
  std::string first_;                       // the bytes received, until they show what the peer speaks
  std::unique_ptr<net::ByteStream> bytes_;  // null until then
  net::TlsPeerPtr tls_peer_;
  SessionPtr session_;  // null until the set-up below HTTP/2 is complete
  FrameScanner scanner_;
  net::OutputQueue output_;
  std::vector<std::shared_ptr<Http2Call>> streams_;
  std::vector<std::shared_ptr<Http2Call>> woken_;
  Fifo<Moved> moved_;
  absl::Duration unsent_time_;  // for which callbacks have run since the last Send

  bool closed_ = false;
  bool active_ = false;     // whether the loop will call Deliver and Flush
  bool blocked_ = false;    // whether the socket takes no more
  bool pump_full_ = false;  // whether nghttp2 has more than there was room for
  bool unread_ = false;     // whether there is more to read without waiting for the socket
  bool flooded_ = false;    // whether the peer asked too much
  bool ending_ = false;     // whether nghttp2 is shown nothing more
  bool draining_ = false;
  bool server_ends_ = false;
  bool lingering_ = false;
  bool drain_at_begin_ = false;   // it was asked to drain during the handshake
  int64_t discarded_bytes_ = 0;   // of a refused peer
  bool at_stream_limit_ = false;  // whether the peer may open no more calls now
  uint32_t events_ = 0;           // that the loop watches

  net::Timer timer_;
  absl::Time last_heard_;
  bool pinged_ = false;   // since last_heard_
  absl::Time setup_end_;  // InfiniteFuture once the peer's SETTINGS have come
  absl::Time age_end_;
  absl::Time idle_since_;                          // when the last stream ended, if there is none
  absl::Time drain_end_ = absl::InfiniteFuture();  // when the second GOAWAY is sent, whatever the peer does
  absl::Time linger_end_ = absl::InfiniteFuture();
  absl::Time headers_end_ = absl::InfiniteFuture();  // when a header block that has begun must be complete
  // The socket must have taken `taken_mark_` bytes of the output by `taken_end_`; InfiniteFuture while it takes all.
  uint64_t taken_mark_ = 0;
  absl::Time taken_end_ = absl::InfiniteFuture();
  net::RateGuard control_frames_;
  net::RateGuard reset_frames_;
};

}  // namespace normd::rpc::http2

#endif  // NORMD_SERVER_RPC_HTTP2_HTTP2_CONNECTION_H_
