#include "server/admin/http_request.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace normd {
namespace {

std::string_view Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Status";
  }
}

HttpRequest Refused(int status) { return {.kind = HttpRequest::Kind::kRefused, .status = status}; }

bool IsMethod(std::string_view text) {
  constexpr size_t kLongestMethod = 16;
  return !text.empty() && text.size() <= kLongestMethod &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

// Parses a complete request line, such as "GET /path?query HTTP/1.1".
HttpRequest ParseRequestLine(std::string_view line) {
  const size_t after_method = line.find(' ');
  const size_t before_version = line.rfind(' ');
  if (after_method == std::string_view::npos || before_version <= after_method) return Refused(400);
  const std::string_view method = line.substr(0, after_method);
  const std::string_view version = line.substr(before_version + 1);
  std::string_view path = line.substr(after_method + 1, before_version - after_method - 1);
  if (!IsMethod(method) || (version != "HTTP/1.1" && version != "HTTP/1.0")) return Refused(400);
  if (path.empty() || path.find(' ') != std::string_view::npos) return Refused(400);
  if (method != "GET" && method != "HEAD") return Refused(405);
  path = path.substr(0, path.find('?'));
  return {.kind = method == "GET" ? HttpRequest::Kind::kGet : HttpRequest::Kind::kHead, .path = path};
}

// Adds the header fields to `request`; each of them ends with \r\n.
HttpRequest AddFields(std::string_view fields, HttpRequest request) {
  constexpr absl::string_view kHost = "host:";
  while (!fields.empty()) {
    const size_t end = fields.find("\r\n");
    const absl::string_view field(fields.data(), std::min(end, fields.size()));
    fields.remove_prefix(std::min(end + 2, fields.size()));
    if (!absl::StartsWithIgnoreCase(field, kHost)) continue;
    if (request.host.has_value()) return Refused(400);
    const absl::string_view value = absl::StripAsciiWhitespace(field.substr(kHost.size()));
    request.host = std::string_view(value.data(), value.size());
  }
  return request;
}

// The position of `what` in the part of `received` that was not searched yet.
std::optional<size_t> FindNew(std::string_view received, std::string_view what, HttpScan* scan) {
  const size_t from = scan->searched_bytes;
  const size_t place = received.find(what, from);
  scan->work_bytes += std::min(place, received.size()) - from;
  if (place != std::string_view::npos) return place;
  // The last bytes may be the beginning of `what`.
  scan->searched_bytes = std::max(from, received.size() - std::min(received.size(), what.size() - 1));
  return std::nullopt;
}

}  // namespace

HttpRequest ParseHttpRequest(std::string_view received, HttpScan* scan) {
  if (!scan->line_end.has_value()) {
    scan->line_end = FindNew(received, "\r\n", scan);
    if (scan->line_end.has_value()) {
      const HttpRequest request = ParseRequestLine(received.substr(0, *scan->line_end));
      if (request.kind == HttpRequest::Kind::kRefused) return request;
      // The search starts at the request line's own end of line, because in a head without fields this is the first
      // half of the end of the head.
      scan->searched_bytes = *scan->line_end;
    } else if (!received.empty() && !IsMethod(received.substr(0, std::min(received.size(), received.find(' '))))) {
      return Refused(400);
    }
  }
  if (scan->line_end.has_value()) {
    if (const std::optional<size_t> end = FindNew(received, "\r\n\r\n", scan); end.has_value()) {
      if (*end + 4 > kMaxHttpHeadBytes) return Refused(431);
      return AddFields(received.substr(*scan->line_end + 2, *end - *scan->line_end),
                       ParseRequestLine(received.substr(0, *scan->line_end)));
    }
  }
  return received.size() < kMaxHttpHeadBytes ? HttpRequest() : Refused(431);
}

std::string EncodeHttpResponse(const HttpResponse& response, bool head_only) {
  const std::string policy = response.security_policy.empty()
                                 ? ""
                                 : absl::StrCat("Content-Security-Policy: ", response.security_policy, "\r\n",
                                                "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n");
  return absl::StrCat("HTTP/1.1 ", response.status, " ", std::string(Reason(response.status)), "\r\n",
                      response.status == 405 ? "Allow: GET, HEAD\r\n" : "", "Content-Type: ", response.content_type,
                      "\r\n", policy, "Content-Length: ", response.body.size(), "\r\nConnection: close\r\n\r\n",
                      head_only ? "" : response.body);
}

HttpResponse HttpError(int status, std::string_view why) {
  return {
      .status = status,
      .body = absl::StrCat(status, " ", std::string(Reason(status)), why.empty() ? "" : ": ", std::string(why), "\n")};
}

}  // namespace normd
