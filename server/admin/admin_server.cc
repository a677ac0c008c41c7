#include "server/admin/admin_server.h"

#include <sstream>

#include "absl/strings/str_cat.h"

namespace normd {
namespace {

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::vector<HttpPage> PagesOf(AdminPages pages) {
  std::vector<HttpPage> result;
  result.push_back({"/healthz", [] { return HttpResponse{.body = "ok\n"}; }});
  result.push_back({"/readyz", [state = std::move(pages.state)] {
                      const ServingState now = state();
                      return HttpResponse{.status = now == ServingState::kServing ? 200 : 503,
                                          .body = absl::StrCat(std::string(Name(now)), "\n")};
                    }});
  result.push_back({"/metrics",
                    [metrics = std::move(pages.metrics)] {
                      return HttpResponse{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                                          .body = metrics()};
                    },
                    /*slow=*/true});
  result.push_back({"/",
                    [status = std::move(pages.status)] {
                      return HttpResponse{.content_type = "text/html; charset=utf-8", .body = StatusPage(status())};
                    },
                    /*slow=*/true});
  return result;
}

}  // namespace

std::string_view Name(ServingState state) {
  switch (state) {
    case ServingState::kStarting:
      return "starting";
    case ServingState::kServing:
      return "serving";
    case ServingState::kUnreachable:
      return "unreachable";
    case ServingState::kDraining:
      return "draining";
  }
  return "";
}

std::string StatusPage(const StatusFacts& facts) {
  std::ostringstream out;
  out << "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>normd</title></head><body>\n"
      << "<h1>normd</h1>\n<table>\n";
  for (const auto& [name, value] : facts.facts) {
    out << "<tr><th align=\"left\">" << EscapeHtml(name) << "</th><td>" << EscapeHtml(value) << "</td></tr>\n";
  }
  out << "</table>\n<h2>Requests</h2>\n<table>\n";
  for (const auto& [method, count] : facts.requests) {
    out << "<tr><td>" << EscapeHtml(method) << "</td><td align=\"right\">" << count << "</td></tr>\n";
  }
  out << "</table>\n<p><a href=\"/metrics\">metrics</a> <a href=\"/healthz\">health</a> <a href=\"/readyz\">ready</a>"
      << "</p>\n</body></html>\n";
  return out.str();
}

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(const std::string& host, int port, AdminPages pages) {
  absl::StatusOr<std::unique_ptr<HttpServer>> server = HttpServer::Start(host, port, PagesOf(std::move(pages)));
  if (!server.ok()) {
    return absl::Status(server.status().code(), absl::StrCat("--admin_listen: ", server.status().message()));
  }
  return std::unique_ptr<AdminServer>(new AdminServer(*std::move(server)));
}

}  // namespace normd
