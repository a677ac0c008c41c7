#include "server/admin/admin_server.h"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/random_hex.h"
#include "server/base/steady_time.h"

namespace normd {
namespace {

constexpr const char* kExpositionType = "text/plain; version=0.0.4; charset=utf-8";

// Makes the tables of the status page, all on the thread of the slow pages.
class StatusSource {
 public:
  explicit StatusSource(const AdminPages& pages) : status_(pages.status), peek_(pages.peek) {}

  std::vector<StatusTable> Tables() {
    const MetricReading metrics = peek_();
    return StatusTables(status_(), metrics, readings_.Add(metrics, SteadyNow()));
  }

 private:
  const std::function<StatusFacts()> status_;
  const std::function<MetricReading()> peek_;
  RecentReadings readings_{SteadyNow()};
};

HttpResponse StatusResponse(ServingState state, const std::vector<StatusTable>& tables) {
  const std::string nonce = RandomHex(4);
  return {.content_type = "text/html; charset=utf-8",
          .body = StatusPage(Name(state), tables, nonce),
          .security_policy = StatusPagePolicy(nonce)};
}

std::vector<HttpPage> PagesOf(AdminPages pages) {
  std::vector<HttpPage> result;
  result.push_back({"/healthz", [] { return HttpResponse{.body = "ok\n"}; }});
  result.push_back({"/readyz", [state = pages.state] {
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
  const auto source = std::make_shared<StatusSource>(pages);
  add_slow("/", [source, state = pages.state] { return StatusResponse(state(), source->Tables()); });
  add_slow("/statusz", [source] {
    return HttpResponse{.content_type = "text/plain; charset=utf-8", .body = StatusText(source->Tables())};
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
