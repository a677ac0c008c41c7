// The little of HTTP/1.1 that the admin listener speaks: the head of a request in, one whole response out.
// In the path: beside it; http_server.cc reads and writes sockets, admin_server.cc has the pages. Pure functions.
#ifndef NORMD_SERVER_ADMIN_HTTP_REQUEST_H_
#define NORMD_SERVER_ADMIN_HTTP_REQUEST_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace normd {

// A request line and its headers have to fit in this; the least that RFC 9112 recommends for the line alone.
inline constexpr size_t kMaxHttpHeadBytes = 8192;

struct HttpRequest {
  // kIncomplete: more bytes are needed. kRefused: `status` says why. kGet, kHead: `path` is asked for.
  enum class Kind { kIncomplete, kRefused, kGet, kHead };
  Kind kind = Kind::kIncomplete;
  int status = 0;
  std::string_view path;  // without the query; points into what was parsed
};

// Judges what a connection has sent so far. Nonsense is refused as soon as it shows, without waiting for the end of the
// head: 400 for what is not HTTP/1.x, 405 for methods other than GET and HEAD, 431 for a head over kMaxHttpHeadBytes.
// Header fields are not read, nor is a body.
HttpRequest ParseHttpRequest(std::string_view received);

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain";
  std::string body;
};

// The bytes of `response`, which ends its connection. `head_only`: the answer to HEAD, without the body.
std::string EncodeHttpResponse(const HttpResponse& response, bool head_only);

// "404 Not Found\n" and the like.
HttpResponse HttpError(int status);

}  // namespace normd

#endif  // NORMD_SERVER_ADMIN_HTTP_REQUEST_H_
