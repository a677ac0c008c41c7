#include "server/admin/admin_server.h"

#include <sys/socket.h>

#include <chrono>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "httplib.h"

namespace normd {
namespace {

// Probes and one or two scrapers; more callers wait for their turn.
constexpr size_t kThreads = 4;
// A caller that sends or reads nothing for so long gives its thread back; kept-alive ones, too.
constexpr int kTimeoutSeconds = 2;
constexpr size_t kMaxPayloadBytes = 1024;  // no page takes a body

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

void AddPages(httplib::Server& server, const AdminPages& pages) {
  server.Get("/metrics", [metrics = pages.metrics](const httplib::Request&, httplib::Response& response) {
    response.set_content(metrics(), "text/plain; version=0.0.4; charset=utf-8");
  });
  server.Get("/healthz",
             [](const httplib::Request&, httplib::Response& response) { response.set_content("ok\n", "text/plain"); });
  server.Get("/readyz", [state = pages.state](const httplib::Request&, httplib::Response& response) {
    const ServingState now = state();
    response.status = now == ServingState::kServing ? 200 : 503;
    response.set_content(absl::StrCat(std::string(Name(now)), "\n"), "text/plain");
  });
  server.Get("/", [status = pages.status](const httplib::Request&, httplib::Response& response) {
    response.set_content(StatusPage(status()), "text/html; charset=utf-8");
  });
}

void SetLimits(httplib::Server& server) {
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_payload_max_length(kMaxPayloadBytes);
  server.set_read_timeout(kTimeoutSeconds);
  server.set_write_timeout(kTimeoutSeconds);
  server.set_keep_alive_timeout(kTimeoutSeconds);
  // The library's default is SO_REUSEPORT, which would let two servers share a port in silence.
  server.set_socket_options([](int fd) {
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  });
}

}  // namespace

std::string_view Name(ServingState state) {
  switch (state) {
    case ServingState::kStarting:
      return "starting";
    case ServingState::kServing:
      return "serving";
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
  auto server = std::make_unique<httplib::Server>();
  SetLimits(*server);
  AddPages(*server, pages);
  const int bound = port == 0 ? server->bind_to_any_port(host) : (server->bind_to_port(host, port) ? port : -1);
  if (bound < 0) {
    return absl::UnavailableError(absl::StrCat("--admin_listen: cannot listen on ", host, ":", port,
                                               ": the port is in use or the address is not this machine's"));
  }
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(server), bound));
}

AdminServer::AdminServer(std::unique_ptr<httplib::Server> server, int port)
    : server_(std::move(server)), port_(port), thread_([this] { server_->listen_after_bind(); }) {
  // stop() before the loop runs would be lost, and the destructor wait for ever.
  while (!server_->is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

AdminServer::~AdminServer() {
  server_->stop();
  thread_.join();
}

}  // namespace normd
