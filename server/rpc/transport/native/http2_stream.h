// One stream of a connection, which is one call: its messages in, its reply, its end.
// In the path: between nghttp2, whose events it takes, and NativeCall, whose operations it carries out. Nothing here
// runs a callback of the call but Deliver, which the loop calls when nghttp2 is not at work.
// Ownership: shared by the connection and the call. Holds the connection, which lets go of its streams when it ends.
// Threads: the loop's thread, but for headers(), deadline(), connection() and over(), which are safe from any thread
// once the call was announced.
#ifndef NORMD_SERVER_RPC_TRANSPORT_NATIVE_HTTP2_STREAM_H_
#define NORMD_SERVER_RPC_TRANSPORT_NATIVE_HTTP2_STREAM_H_

#include <nghttp2/nghttp2.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/net/output_queue.h"
#include "server/net/timer_heap.h"
#include "server/rpc/transport/native/http_rules.h"
#include "server/rpc/transport/native/message_reader.h"
#include "server/rpc/transport/native/reply_body.h"
#include "server/rpc/transport/native/reply_headers.h"
#include "server/rpc/transport/native/request_headers.h"
#include "server/rpc/transport/transport_call.h"

namespace normd::rpc::native {

class Http2Connection;

class Http2Stream : public std::enable_shared_from_this<Http2Stream> {
 public:
  using OnRead = TransportCall::OnRead;
  using OnSize = TransportCall::OnSize;
  using OnDone = TransportCall::OnDone;
  using Callback = TransportCall::Callback;

  Http2Stream(std::shared_ptr<Http2Connection> connection, int32_t id);
  ~Http2Stream();
  Http2Stream(const Http2Stream&) = delete;
  Http2Stream& operator=(const Http2Stream&) = delete;

  Http2Connection& connection() const { return *connection_; }
  const RequestHeaders& headers() const { return headers_; }
  absl::Time deadline() const { return deadline_; }
  bool over() const { return over_.load(std::memory_order_acquire); }

  // ---- What nghttp2 tells of the stream ----
  // Returns false when the stream should be reset, as HTTP/2's layer does then. A request that breaks HTTP's rules is
  // broken off here, and true returned.
  bool AddField(std::string_view name, std::string_view value);
  // The same for a field of the request's trailers.
  bool AllowTrailer(std::string_view name, std::string_view value);
  // Resets a request that breaks HTTP's rules.
  void BreakOff(std::string_view why);
  void OnHeadersComplete();
  void OnData(std::string_view bytes);
  void OnDataFrame(size_t padding_bytes);
  void OnHalfClose();
  // nghttp2 has forgotten the stream.
  void OnClosed();
  // The end of the reply was moved to the output.
  void OnEndMoved();
  // The next bytes of the reply: nghttp2_data_source_read_callback and nghttp2_send_data_callback.
  ssize_t OfferBody(size_t most, uint32_t* flags);
  void MoveBody(size_t bytes, net::OutputQueue* output);
  bool body_dropped() const { return body_dropped_; }

  // ---- What the connection tells ----
  // Where the next bytes of the message that is being collected belong; empty if none is.
  absl::Span<char> Destination() { return discarding_ ? absl::Span<char>() : reader_.Destination(); }
  // The socket has taken the message that was being written, or with `end`, all of the reply.
  void OnTaken(bool end);
  // The connection is gone.
  void OnConnectionLost();
  // Runs the callbacks for which something has happened.
  void Deliver();
  // The stream's place among those of its connection.
  size_t place = 0;

  // ---- Operations of the call; see transport_call.h ----
  void OnOver(OnDone on_done);
  void ReadSize(OnSize on_size);
  void Read(OnRead on_read);
  void ReadHead(OnRead on_read);
  void Write(MessageBytes message, Callback written);
  void Finish(ReplyEnd end, Callback written);
  void WriteAndFinish(MessageBytes message, ReplyEnd end, Callback written);
  void Cancel();

 private:
  nghttp2_session* session() const;
  // Has Deliver run soon.
  void Wake();
  // Breaks the request off where a field breaks the rules. Returns whether the field is to be kept.
  bool Follows(HttpRules::Verdict verdict, std::string_view name);
  // Ends the call, with all that waits for it, as OnOver is to tell.
  void EndCall(absl::Status end);
  // Answers in the place of the services, and ends the call.
  void EndWith(const absl::Status& status);
  void EndForFault();
  void AnswerInHttp();
  void OnDeadline();
  void RefuseRest();
  // Has OnTaken run when the socket has taken what is in the output.
  void NoteMoved(bool end);
  // Drops what is left of the reply's message. What is in the output already is sent all the same.
  void DropBody();
  // Counts what the stream holds and nobody has asked for, and refuses the call where that is too much.
  void CountWaiting();
  // Gives the peer a window of at least `bytes`.
  void OpenWindow(int64_t bytes);
  // Gives the peer the window that the operation that reads needs.
  void OpenWindowToRead();
  // Begins or goes on with the body of the reply.
  void SendBody();
  void DeliverRead();
  void DeliverWritten();

  // Constant once the headers are complete.
  const std::shared_ptr<Http2Connection> connection_;
  const int32_t id_;
  RequestHeaders headers_;
  HttpRules rules_;
  bool broken_ = false;    // whether BreakOff ran
  bool complete_ = false;  // whether the headers have come, and are those of a request
  absl::Time deadline_ = absl::InfiniteFuture();

  std::atomic<bool> over_{false};
  absl::Status end_of_call_;  // see TransportCall::OnOver
  bool woken_ = false;        // whether Deliver will run
  bool to_announce_ = false;  // whether the services do not have the call yet
  bool closed_ = false;       // whether nghttp2 has forgotten the stream
  net::Timer deadline_timer_;

  // The request.
  MessageReader reader_;
  bool half_closed_ = false;
  bool discarding_ = false;  // whether coming bytes are dropped
  OnSize on_size_;
  OnRead on_read_;
  int64_t waiting_bytes_ = 0;  // as counted by CountWaiting

  // The reply.
  ReplyBody body_;
  std::optional<ReplyEnd> end_;
  bool begun_ = false;      // whether headers were submitted
  int http_status_ = 0;     // the answer in HTTP's terms to a request that is not one of gRPC's; 0: it is one
  bool deferred_ = false;   // whether nghttp2 waits for more of the body
  bool end_moved_ = false;  // whether the end is in the output
  bool body_taken_ = false;
  bool body_dropped_ = false;
  bool in_output_ = false;    // whether the socket has yet to take some of the message
  bool moved_noted_ = false;  // whether OnTaken will run
  Callback written_;
  OnDone on_done_;
};

}  // namespace normd::rpc::native

#endif  // NORMD_SERVER_RPC_TRANSPORT_NATIVE_HTTP2_STREAM_H_
