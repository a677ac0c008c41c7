// Follows the frames in the bytes of a connection, ahead of nghttp2: where a block of headers ends, so that its call
// can begin before the next frame is looked at, and how much of a DATA frame is still to come, so that it can be read
// straight into its message.
// In the path: between the socket and nghttp2, which checks the frames. Threads: the loop's thread only.
#ifndef NORMD_SERVER_RPC_HTTP2_FRAME_SCANNER_H_
#define NORMD_SERVER_RPC_HTTP2_FRAME_SCANNER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/rpc/edge/http2.h"

namespace normd::rpc::http2 {

class FrameScanner {
 public:
  // Follows `bytes` to the end of the first header block in them, or to their end. Returns how many bytes that is.
  size_t Scan(std::string_view bytes);
  // Whether the last Scan ended at the end of a header block.
  bool at_headers_end() const { return at_headers_end_; }
  // How many bytes of an unpadded DATA frame come next, and the frame's stream; 0 if something else comes.
  size_t data_bytes() const { return is_data_ ? payload_bytes_ : 0; }
  int32_t stream_id() const { return stream_id_; }
  // The bytes that the frames of the last header block have announced so far. What they decode to may be a thousand
  // times as much, and is decoded to its end even where it is refused.
  size_t header_block_bytes() const { return header_block_bytes_; }
  // Whether a header block has begun and not ended.
  bool in_header_block() const { return in_header_block_; }

 private:
  void ReadHead();

  size_t magic_bytes_ = http2::kMagic.size();  // to come
  std::array<unsigned char, http2::kFrameHeaderBytes> head_{};
  size_t head_filled_ = 0;
  size_t payload_bytes_ = 0;  // to come of the frame whose head is complete
  bool ends_headers_ = false;
  bool in_header_block_ = false;
  size_t header_block_bytes_ = 0;
  bool is_data_ = false;
  int32_t stream_id_ = 0;
  bool at_headers_end_ = false;
};

}  // namespace normd::rpc::http2

#endif  // NORMD_SERVER_RPC_HTTP2_FRAME_SCANNER_H_
