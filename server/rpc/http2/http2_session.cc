#include "server/rpc/http2/http2_session.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "server/rpc/edge/http2.h"
#include "server/rpc/edge/reset_guard.h"
#include "server/rpc/http2/http2_call.h"
#include "server/rpc/http2/http2_connection.h"

namespace normd::rpc::http2 {
namespace {

// The bytes that the peer may send on the connection. Bytes leave this window as they are read, and the streams'
// windows bound the memory, so a stream that waits holds up no other. Large, because each half of it costs a frame.
constexpr int32_t kConnectionWindowBytes = 256 << 20;
// Messages of 1 MiB and more come in frames of this size from clients that use it: with 16 calls of 1 MiB in flight, a
// call cost 691 us of CPU, and 852 us with HTTP/2's default of 16 KiB.
constexpr uint32_t kMaxFrameBytes = 1 << 20;
// The largest frame that is sent: nghttp2 keeps a buffer of this size for each connection, although it does not copy
// the payload.
constexpr size_t kMaxSentFrameBytes = 64 << 10;
// HPACK's table for replies, which repeat a few short fields.
constexpr size_t kDeflateTableBytes = 4096;
// Acknowledgements of SETTINGS and PING that wait for a peer which does not read.
constexpr size_t kMaxWaitingAcks = 256;
constexpr size_t kMaxSettings = 32;
constexpr size_t kMaxContinuations = 8;

Http2Connection& ConnectionOf(void* user_data) { return *static_cast<Http2Connection*>(user_data); }

Http2Call* StreamOf(nghttp2_session* session, int32_t id) {
  return static_cast<Http2Call*>(nghttp2_session_get_stream_user_data(session, id));
}

std::string_view Text(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

bool IsRequest(const nghttp2_frame& frame) {
  return frame.hd.type == NGHTTP2_HEADERS && frame.headers.cat == NGHTTP2_HCAT_REQUEST;
}

ssize_t OnSend(nghttp2_session*, const uint8_t* data, size_t size, int, void* user_data) {
  if (!ConnectionOf(user_data).HasRoom()) return NGHTTP2_ERR_WOULDBLOCK;
  ConnectionOf(user_data).output().Copy(Text(data, size));
  return static_cast<ssize_t>(size);
}

int OnSendData(nghttp2_session*, nghttp2_frame*, const uint8_t* head, size_t size, nghttp2_data_source* source,
               void* user_data) {
  auto* const stream = static_cast<Http2Call*>(source->ptr);
  // A frame that nghttp2 had made and found no room for, of a reply that was given up since.
  if (stream->body_dropped()) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  if (!ConnectionOf(user_data).HasRoom()) return NGHTTP2_ERR_WOULDBLOCK;
  ConnectionOf(user_data).output().Copy(Text(head, http2::kFrameHeaderBytes));
  stream->MoveBody(size, &ConnectionOf(user_data).output());
  return 0;
}

ssize_t FrameSize(nghttp2_session*, uint8_t, int32_t, int32_t connection_window, int32_t stream_window,
                  uint32_t max_frame, void*) {
  const auto most = static_cast<int64_t>(std::min<size_t>(max_frame, kMaxSentFrameBytes));
  return static_cast<ssize_t>(std::min<int64_t>({connection_window, stream_window, most}));
}

int OnBeginHeaders(nghttp2_session*, const nghttp2_frame* frame, void* user_data) {
  if (IsRequest(*frame)) ConnectionOf(user_data).AddStream(frame->hd.stream_id);
  return 0;
}

int OnHeader(nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
             const uint8_t* value, size_t value_size, uint8_t, void*) {
  Http2Call* const stream = StreamOf(session, frame->hd.stream_id);
  if (stream == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  const bool allowed = IsRequest(*frame) ? stream->AddField(Text(name, name_size), Text(value, value_size))
                                         : stream->AllowTrailer(Text(name, name_size), Text(value, value_size));
  // nghttp2 resets the stream, and shows nothing more of this block.
  return allowed ? 0 : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

int OnFrameReceived(nghttp2_session* session, const nghttp2_frame* frame, void* user_data) {
  ConnectionOf(user_data).OnFrameReceived(*frame);
  Http2Call* const stream = frame->hd.stream_id == 0 ? nullptr : StreamOf(session, frame->hd.stream_id);
  if (stream == nullptr) return 0;
  const bool is_headers = frame->hd.type == NGHTTP2_HEADERS;
  const bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
  if (IsRequest(*frame)) stream->OnHeadersComplete();
  if (is_headers && !IsRequest(*frame) && !ends) stream->BreakOff("trailers are not the end of their request");
  if (frame->hd.type == NGHTTP2_DATA) stream->OnDataFrame(frame->data.padlen);
  if ((is_headers || frame->hd.type == NGHTTP2_DATA) && ends) stream->OnHalfClose();
  return 0;
}

// Tells of a request that nghttp2 refuses before its call is known.
int OnInvalidFrame(nghttp2_session*, const nghttp2_frame* frame, int error, void* user_data) {
  if (!IsRequest(*frame)) return 0;
  ConnectionOf(user_data).counts().CountRefusal(TransportRefusal::kHttp);
  ConnectionOf(user_data).OnProtocolError(nghttp2_strerror(error));
  return 0;
}

int OnDataChunk(nghttp2_session* session, uint8_t, int32_t id, const uint8_t* data, size_t size, void*) {
  if (Http2Call* const stream = StreamOf(session, id); stream != nullptr) stream->OnData(Text(data, size));
  return nghttp2_session_consume_connection(session, size);
}

int OnFrameSent(nghttp2_session* session, const nghttp2_frame* frame, void* user_data) {
  if (frame->hd.type == NGHTTP2_RST_STREAM) ConnectionOf(user_data).OnResetSent(frame->rst_stream.error_code);
  if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR) {
    ConnectionOf(user_data).OnGivenUp(Text(frame->goaway.opaque_data, frame->goaway.opaque_data_len));
  }
  if (frame->hd.type != NGHTTP2_HEADERS || (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
  if (Http2Call* const stream = StreamOf(session, frame->hd.stream_id); stream != nullptr) stream->OnEndMoved();
  return 0;
}

int OnStreamClosed(nghttp2_session* session, int32_t id, uint32_t, void* user_data) {
  Http2Call* const stream = StreamOf(session, id);
  if (stream == nullptr) return 0;
  nghttp2_session_set_stream_user_data(session, id, nullptr);
  ConnectionOf(user_data).RemoveStream(stream);
  return 0;
}

void SetCallbacks(nghttp2_session_callbacks* callbacks) {
  nghttp2_session_callbacks_set_send_callback(callbacks, OnSend);
  nghttp2_session_callbacks_set_send_data_callback(callbacks, OnSendData);
  nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, FrameSize);
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, OnBeginHeaders);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, OnHeader);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, OnFrameReceived);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, OnDataChunk);
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, OnFrameSent);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, OnStreamClosed);
  nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, OnInvalidFrame);
}

void SetLimits(const RpcOptions& options, nghttp2_option* option) {
  nghttp2_option_set_no_auto_window_update(option, 1);
  nghttp2_option_set_no_closed_streams(option, 1);
  // Http2Call keeps HTTP's rules: see http_rules.h.
  nghttp2_option_set_no_http_messaging(option, 1);
  // Above the rate at which the connection ends the session itself, and counts why.
  const auto resets = static_cast<uint64_t>(2 * std::max(kResetBurst, options.max_cancels_per_second));
  nghttp2_option_set_stream_reset_rate_limit(option, resets, resets);
  nghttp2_option_set_max_outbound_ack(option, kMaxWaitingAcks);
  nghttp2_option_set_max_settings(option, kMaxSettings);
  nghttp2_option_set_max_continuations(option, kMaxContinuations);
  nghttp2_option_set_max_deflate_dynamic_table_size(option, kDeflateTableBytes);
}

}  // namespace

SessionPtr MakeSession(Http2Connection* connection, const RpcOptions& options) {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_option* option = nullptr;
  nghttp2_session* made = nullptr;
  if (nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0) {
    SetCallbacks(callbacks);
    SetLimits(options, option);
    nghttp2_session_server_new2(&made, callbacks, connection, option);
  }
  nghttp2_option_del(option);
  nghttp2_session_callbacks_del(callbacks);
  SessionPtr session(made);
  if (session == nullptr) return nullptr;
  const nghttp2_settings_entry settings[] = {
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, static_cast<uint32_t>(ConcurrentStreams(options))},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, static_cast<uint32_t>(kInitialWindowBytes)},
      {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kMaxFrameBytes},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<uint32_t>(options.max_metadata_bytes)},
      // Replies are sent by the server's own priorities (RFC 9218).
      {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
  };
  nghttp2_submit_settings(session.get(), NGHTTP2_FLAG_NONE, settings, std::size(settings));
  nghttp2_session_set_local_window_size(session.get(), NGHTTP2_FLAG_NONE, 0, kConnectionWindowBytes);
  return session;
}

ssize_t OfferBody(nghttp2_session*, int32_t, uint8_t*, size_t most, uint32_t* flags, nghttp2_data_source* source,
                  void*) {
  return static_cast<Http2Call*>(source->ptr)->OfferBody(most, flags);
}

}  // namespace normd::rpc::http2
