#include "server/admin/admin_server.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/random_hex.h"

namespace normd {
namespace {

constexpr const char* kExpositionType = "text/plain; version=0.0.4; charset=utf-8";

HttpResponse StatusResponse(const std::vector<StatusTable>& tables) {
  const std::string nonce = RandomHex(4);
  return {.content_type = "text/html; charset=utf-8",
          .body = StatusPage(tables, nonce),
          .security_policy = StatusPagePolicy(nonce)};
}

std::vector<HttpPage> PagesOf(AdminPages pages) {
  std::vector<HttpPage> result;
  result.push_back({"/healthz", [] { return HttpResponse{.body = "ok\n"}; }});
  result.push_back({"/readyz", [state = std::move(pages.state)] {
                      const ServingState now = state();
                      return HttpResponse{.status = now == ServingState::kServing ? 200 : 503,
                                          .body = absl::StrCat(std::string(Name(now)), "\n")};
                    }});
  const auto add_slow = [&result](std::string path, std::function<HttpResponse()> make) {
    result.push_back({std::move(path), std::move(make), /*slow=*/true});
  };
  add_slow("/metrics", [metrics = std::move(pages.metrics)] {
    return HttpResponse{.content_type = kExpositionType, .body = metrics()};
  });
  add_slow("/statusz/metrics",
           [peek = pages.peek] { return HttpResponse{.content_type = kExpositionType, .body = peek()}; });
  const auto tables = [status = std::move(pages.status), peek = std::move(pages.peek)] {
    return StatusTables(status(), peek());
  };
  add_slow("/", [tables] { return StatusResponse(tables()); });
  add_slow("/statusz/tables", [tables] {
    return HttpResponse{.content_type = "text/html; charset=utf-8",
                        .body = StatusTablesHtml(tables()),
                        .security_policy = "default-src 'none'"};
  });
  add_slow("/statusz", [tables] {
    return HttpResponse{.content_type = "text/plain; charset=utf-8", .body = StatusText(tables())};
  });
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

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(const std::string& host, int port, AdminPages pages,
                                                                std::vector<std::string> names) {
  absl::StatusOr<std::unique_ptr<HttpServer>> server =
      HttpServer::Start(host, port, PagesOf(std::move(pages)), std::move(names));
  if (!server.ok()) {
    return absl::Status(server.status().code(), absl::StrCat("--admin_listen: ", server.status().message()));
  }
  return std::unique_ptr<AdminServer>(new AdminServer(*std::move(server)));
}

}  // namespace normd
