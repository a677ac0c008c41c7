// The small part of HTTP/1.1 that the admin listener speaks: parses the head of a request and encodes one response.
// In the path: beside it; http_server.cc reads and writes sockets, and admin_server.cc has the pages.
// Threads: pure functions.
#ifndef NORMD_SERVER_ADMIN_HTTP_REQUEST_H_
#define NORMD_SERVER_ADMIN_HTTP_REQUEST_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace normd {

// The limit for a request line with its headers. RFC 9112 recommends to accept at least 8000 bytes for the line alone.
inline constexpr size_t kMaxHttpHeadBytes = 8192;

struct HttpRequest {
  // kIncomplete: more bytes are needed. kRefused: `status` says why. kGet, kHead: the caller asks for `path`.
  enum class Kind { kIncomplete, kRefused, kGet, kHead };
  Kind kind = Kind::kIncomplete;
  int status = 0;
  // These point into the parsed bytes.
  std::string_view path;                 // without the query
  std::optional<std::string_view> host;  // the value of the header Host
};

// Parses all bytes that a connection has received so far. Refuses a bad request as early as possible, without waiting
// for the end of the head: 400 for anything but HTTP/1.x and for two Host headers, 405 for methods other than GET and
// HEAD, 431 for a head over kMaxHttpHeadBytes. Ignores the other header fields and the body.
// `scan` belongs to the connection: it keeps the results of earlier calls, so that a head that arrives byte by byte is
// searched only once.
struct HttpScan {
  std::optional<size_t> line_end;  // where the request line ends
  size_t searched_bytes = 0;       // of `received`, in which the end of the line, and then of the head, is not
  size_t work_bytes = 0;           // looked at in all calls together
};
HttpRequest ParseHttpRequest(std::string_view received, HttpScan* scan);

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain";
  std::string body;
  std::string security_policy;  // the Content-Security-Policy; empty: none
};

// The bytes of `response`, after which the connection closes. `head_only` leaves out the body, for the answer to HEAD.
std::string EncodeHttpResponse(const HttpResponse& response, bool head_only);

// A plain-text response such as "404 Not Found\n"; `why` is a sentence that goes on behind it.
HttpResponse HttpError(int status, std::string_view why = "");

}  // namespace normd

#endif  // NORMD_SERVER_ADMIN_HTTP_REQUEST_H_
