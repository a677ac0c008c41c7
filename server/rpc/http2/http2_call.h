// A call of the native transport, which is one stream of a connection: its messages in, its reply, its end.
// In the path: takes nghttp2's events, and is the RpcCall that the services have. Nothing here runs a callback of the
// call but Deliver, which the loop calls when nghttp2 is not at work.
// Ownership: shared by the connection and the services. Holds the connection, which lets go of its calls when it ends.
// Threads: the operations of RpcCall come from any thread and go to that of the loop. Everything else is the loop's,
// but for headers(), deadline(), connection() and over(), which are safe from any thread once the call was announced.
#ifndef NORMD_SERVER_RPC_HTTP2_HTTP2_CALL_H_
#define NORMD_SERVER_RPC_HTTP2_HTTP2_CALL_H_

#include <nghttp2/nghttp2.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/net/output_queue.h"
#include "server/net/timer_heap.h"
#include "server/rpc/edge/rpc_call.h"
#include "server/rpc/http2/http_rules.h"
#include "server/rpc/http2/message_reader.h"
#include "server/rpc/http2/reply_body.h"
#include "server/rpc/http2/reply_headers.h"
#include "server/rpc/http2/request_headers.h"

namespace normd::rpc::http2 {

class Http2Connection;

class Http2Call final : public RpcCall {
 public:
  Http2Call(std::shared_ptr<Http2Connection> connection, int32_t id);
  ~Http2Call() override;

  const std::string& method() const override { return headers_.path(); }
  void VisitMetadata(absl::FunctionRef<void(std::string_view key, std::string_view value)> visit) const override {
    headers_.VisitMetadata(visit);
  }
  absl::Time deadline() const override { return deadline_; }
  const net::TlsPeerPtr& tls_peer() const override;
  void Cancel() override;
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

 private:
  void StartReadSize() override;
  void StartRead(bool is_counted) override;
  void StartReadHead() override;
  void StartWrite(MessageBytes message) override;
  void StartFinish(RpcEnd end) override;
  void StartWriteAndFinish(MessageBytes message, RpcEnd end) override;

  std::shared_ptr<Http2Call> Self() { return std::static_pointer_cast<Http2Call>(shared_from_this()); }
  // Runs `operation()` on the loop's thread, at once if that is this one.
  template <typename Operation>
  void OnLoop(Operation operation);
  // The rest of the operations, on the loop.
  void AskForSize();
  void AskForMessage(bool head_alone);
  void SendMessage(MessageBytes message);
  void SendEnd(RpcEnd end);
  void Abort();
  nghttp2_session* session() const;
  // Has Deliver run soon.
  void Wake();
  // Breaks the request off where a field breaks the rules. Returns whether the field is to be kept.
  bool Follows(HttpRules::Verdict verdict, std::string_view name);
  // Counts a request that has too many fields. Returns false.
  bool RefuseFields();
  // Ends the call, with all that waits for it; `end` is as for HandleOver.
  void EndCall(absl::Status end);
  // Answers in the place of the services, and ends the call.
  void AnswerWith(const absl::Status& status);
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
  absl::Status end_of_call_;  // see HandleOver
  bool woken_ = false;        // whether Deliver will run
  bool to_announce_ = false;  // whether the services are to get the call
  bool announced_ = false;    // whether they have it, and are to be told of its end
  bool closed_ = false;       // whether nghttp2 has forgotten the stream
  net::Timer deadline_timer_;

  // The request.
  MessageReader reader_;
  bool half_closed_ = false;
  bool discarding_ = false;  // whether coming bytes are dropped
  bool wants_size_ = false;
  bool wants_message_ = false;
  int64_t waiting_bytes_ = 0;  // as counted by CountWaiting

  // The reply.
  ReplyBody body_;
  std::optional<RpcEnd> end_;
  bool begun_ = false;      // whether headers were submitted
  int http_status_ = 0;     // the answer in HTTP's terms to a request that is not one of gRPC's; 0: it is one
  bool deferred_ = false;   // whether nghttp2 waits for more of the body
  bool end_moved_ = false;  // whether the end is in the output
  bool body_taken_ = false;
  bool body_dropped_ = false;
  bool in_output_ = false;    // whether the socket has yet to take some of the message
  bool moved_noted_ = false;  // whether OnTaken will run
  bool writing_ = false;      // whether HandleWritten is to run
};

}  // namespace normd::rpc::http2

#endif  // NORMD_SERVER_RPC_HTTP2_HTTP2_CALL_H_
