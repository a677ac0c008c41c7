// An HTTP/2 client of frames, for what gRPC's own client cannot be made to do: messages that never end, windows that
// stay shut, streams without number, silence. It does only what it is told: settings are acknowledged if asked for,
// windows of the server are kept unless the test goes past them. Thread-compatible. The connection ends with the
// object.
#ifndef NORMD_TESTS_SUPPORT_RAW_HTTP2_H_
#define NORMD_TESTS_SUPPORT_RAW_HTTP2_H_

#include <nghttp2/nghttp2.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace normd {

struct Http2Frame {
  uint8_t type = 0;
  uint8_t flags = 0;
  uint32_t stream = 0;
  std::string payload;
};

class RawHttp2 {
 public:
  static constexpr uint8_t kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kGoAway = 7, kWindowUpdate = 8;
  static constexpr uint8_t kEndStream = 1, kEndHeaders = 4;
  using Fields = std::vector<std::pair<std::string, std::string>>;

  // Connects to "127.0.0.1:PORT" or "unix:/path" and sends nothing. Null descriptor: see connected().
  explicit RawHttp2(const std::string& target);
  ~RawHttp2();
  RawHttp2(const RawHttp2&) = delete;
  RawHttp2& operator=(const RawHttp2&) = delete;

  bool connected() const { return fd_ >= 0; }
  // For a reader of its own, which takes the place of Receive.
  int descriptor() const { return fd_; }

  // Bytes as they are. False when the connection has ended.
  bool SendBytes(std::string_view bytes);
  // The preface and SETTINGS; `initial_window` is what the server may send on each stream.
  bool SendPreface(uint32_t initial_window = 65535);
  bool SendFrame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload);
  // The headers of a gRPC call.
  bool SendHeaders(uint32_t stream, std::string_view path, const Fields& extra = {});
  bool SendReset(uint32_t stream);
  // As much of `bytes` as the server's windows let through within `limit`, in DATA frames, and until the server ends
  // the stream; how much was sent.
  size_t SendData(uint32_t stream, std::string_view bytes, std::chrono::milliseconds limit, bool end_stream = false);

  // The next frame, or nothing when none comes within `limit` or the connection has ended.
  std::optional<Http2Frame> Receive(std::chrono::milliseconds limit);
  // Reads until a frame of `stream` ends it (END_STREAM or RST_STREAM); false if that does not happen within `limit`.
  bool WaitForEnd(uint32_t stream, std::chrono::milliseconds limit);
  // Whether the next bytes are these; false if they do not come within `limit`. They are kept.
  bool WaitForBytes(std::string_view bytes, std::chrono::milliseconds limit);
  // Whether the server ends the connection within `limit`. What it sends until then is dropped.
  bool WaitForClose(std::chrono::milliseconds limit);
  bool closed() const { return closed_; }
  // Whether a frame that was received has ended the stream.
  bool ended(uint32_t stream) const { return ended_.count(stream) != 0; }

  // Whether the last HEADERS that came for `stream`, decoded as lines of "name: value", contain the text.
  bool LastHeadersContain(uint32_t stream, std::string_view text) const;

 private:
  // The fields of a header block, in lines. REQUIRES: each block of the connection is decoded once, in order.
  std::string Decode(std::string_view block);
  bool Fill(std::chrono::milliseconds limit);
  int64_t& WindowOf(uint32_t stream);

  int fd_ = -1;
  bool closed_ = false;
  std::string received_;
  int64_t initial_window_ = 65535;
  int64_t connection_window_ = 65535;
  std::map<uint32_t, int64_t> windows_;
  std::unique_ptr<nghttp2_hd_inflater, decltype(&nghttp2_hd_inflate_del)> inflater_;
  std::map<uint32_t, std::string> headers_;  // decoded
  std::set<uint32_t> ended_;
};

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_RAW_HTTP2_H_
