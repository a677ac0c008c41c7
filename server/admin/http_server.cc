#include "server/admin/http_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/admin/host_header.h"
#include "server/base/steady_time.h"
#include "server/net/listen_tcp.h"

namespace normd {
namespace {

// Probes and one or two scrapers need only a few connections. A new connection displaces the oldest one instead of
// being refused, because an honest caller sends its request within milliseconds, and connections that are held open are
// older.
constexpr size_t kMaxConnections = 64;
// The time from accept to the last byte, whatever the caller sends or reads. Probes give up after 1 s by default.
constexpr absl::Duration kDeadline = absl::Seconds(2);

// Whether a failed call on a non-blocking socket is worth repeating.
bool TryLater() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// The error for a request to `host`.
HttpResponse MisdirectedError(std::string_view host) {
  constexpr size_t kMaxShownBytes = 64;
  const absl::string_view shown(host.data(), std::min(host.size(), kMaxShownBytes));
  return HttpError(421, absl::StrCat("Host is \"", absl::CHexEscape(shown),
                                     "\", which is no address, not localhost and no name of --admin_hosts"));
}

}  // namespace

class HttpServer::Connection final : public net::Handler {
 public:
  Connection(HttpServer* server, uint64_t id, UniqueFd fd)
      : id(id), server_(server), fd_(std::move(fd)), deadline_([this] { server_->Close(*this); }) {}

  bool Open(std::shared_ptr<Connection> self) {
    if (!server_->loop_.Add(std::move(self), fd_.get(), EPOLLIN)) return false;
    server_->loop_.timers().Set(&deadline_, SteadyNow() + kDeadline);
    return true;
  }
  // Closes the descriptor at once.
  void Close() {
    server_->loop_.timers().Cancel(&deadline_);
    server_->loop_.Remove(this, fd_.get());
    fd_.Close();
  }

  void OnEvents(uint32_t /*events*/) override {
    if (fd_.valid() && !Advance()) server_->Close(*this);
  }
  // Sends the response. Returns whether the connection goes on, as the others do.
  bool Respond(const HttpResponse& response) {
    response_ = EncodeHttpResponse(response, head_only);
    Enter(State::kWriting, EPOLLOUT);
    return Write();
  }
  // Waits for a slow page. With no events epoll still reports that the connection broke; bytes that the caller sends
  // meanwhile are ignored.
  void AwaitPage() { Enter(State::kWaiting, 0); }

  const uint64_t id;
  bool head_only = false;

 private:
  // What the connection waits for: the rest of the request; the slow page; room to send; or the caller's end of the
  // connection. The last is awaited because closing with unread bytes sends a reset, which could destroy the response.
  enum class State { kReading, kWaiting, kWriting, kLingering };

  void Enter(State state, uint32_t events) {
    state_ = state;
    server_->loop_.Change(this, fd_.get(), events);
  }
  bool Advance();
  bool Read();
  bool Write();
  bool Linger();

  HttpServer* const server_;
  UniqueFd fd_;
  net::Timer deadline_;
  State state_ = State::kReading;
  std::string received_;
  HttpScan scan_;
  std::string response_;
  size_t sent_ = 0;
};

bool HttpServer::Connection::Advance() {
  switch (state_) {
    case State::kReading:
      return Read();
    case State::kWaiting:
      return false;
    case State::kWriting:
      return Write();
    case State::kLingering:
      return Linger();
  }
  return false;
}

bool HttpServer::Connection::Read() {
  char buffer[kMaxHttpHeadBytes];
  const ssize_t count = recv(fd_.get(), buffer, kMaxHttpHeadBytes - received_.size(), 0);
  if (count <= 0) return count < 0 && TryLater();
  received_.append(buffer, static_cast<size_t>(count));
  const HttpRequest request = ParseHttpRequest(received_, &scan_);
  return request.kind == HttpRequest::Kind::kIncomplete || server_->Answer(*this, request);
}

bool HttpServer::Connection::Write() {
  const std::string_view rest = std::string_view(response_).substr(sent_);
  const ssize_t count = send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (count < 0) return TryLater();
  sent_ += static_cast<size_t>(count);
  if (sent_ < response_.size()) return true;
  Enter(State::kLingering, EPOLLIN);
  return shutdown(fd_.get(), SHUT_WR) == 0;
}

bool HttpServer::Connection::Linger() {
  char buffer[kMaxHttpHeadBytes];
  const ssize_t count = recv(fd_.get(), buffer, sizeof(buffer), 0);
  return count > 0 || (count < 0 && TryLater());
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& host, int port,
                                                              std::vector<HttpPage> pages,
                                                              std::vector<std::string> names) {
  const auto failed = [&host, port](const absl::Status& why) {
    const bool v6 = host.find(':') != std::string::npos;
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", v6 ? "[" : "", host, v6 ? "]:" : ":", port, ": ", why.message()));
  };
  absl::StatusOr<std::vector<UniqueFd>> bound = net::ListenTcp(host, port);
  if (!bound.ok()) return failed(bound.status());
  const int bound_port = net::BoundPort(bound->front().get());
  std::vector<net::ListeningSocket> listeners;
  for (UniqueFd& fd : *bound) listeners.emplace_back(fd.Release(), /*is_unix=*/false);
  names.push_back(absl::AsciiStrToLower(host));
  std::unique_ptr<HttpServer> server(new HttpServer(bound_port, std::move(pages), std::move(names)));
  if (const absl::Status opened = server->loop_.Open(); !opened.ok()) return failed(opened);
  if (const absl::Status opened = server->acceptor_.Open(std::move(listeners)); !opened.ok()) return failed(opened);
  server->loop_.Start();
  server->page_maker_ = std::thread([raw = server.get()] { raw->MakeSlowPages(); });
  return server;
}

// A connection of an operator is worth the last descriptor.
HttpServer::HttpServer(int port, std::vector<HttpPage> pages, std::vector<std::string> names)
    : port_(port),
      pages_(std::move(pages)),
      names_(std::move(names)),
      acceptor_(&loop_, this, {.at_once = 1, .serves_last = true}) {}

HttpServer::~HttpServer() {
  loop_.Run([this] {
    acceptor_.Close();
    while (!connections_.empty()) Close(*connections_.front());
  });
  loop_.Stop();
  {
    MutexLock lock(mu_);
    ending_ = true;
    job_added_.SignalAll();
  }
  if (page_maker_.joinable()) page_maker_.join();
}

void HttpServer::OnAccepted(UniqueFd fd, const sockaddr_storage& /*peer*/, const net::ListeningSocket& /*listener*/) {
  if (connections_.size() >= kMaxConnections) MakeRoom();
  auto connection = std::make_shared<Connection>(this, next_id_++, std::move(fd));
  if (connection->Open(connection)) connections_.push_back(std::move(connection));
}

bool HttpServer::MakeRoom() {
  if (connections_.empty()) return false;
  Close(*connections_.front());
  return true;
}

void HttpServer::Close(Connection& connection) {
  connection.Close();
  // The loop keeps the connection until its turn ends.
  std::erase_if(connections_, [&connection](const auto& other) { return other.get() == &connection; });
}

bool HttpServer::Answer(Connection& connection, const HttpRequest& request) {
  if (request.kind == HttpRequest::Kind::kRefused) return connection.Respond(HttpError(request.status));
  connection.head_only = request.kind == HttpRequest::Kind::kHead;
  // Without the header nobody is misled: every browser sends it.
  if (request.host.has_value() && !IsOwnHost(*request.host, names_)) {
    return connection.Respond(MisdirectedError(*request.host));
  }
  const auto page = std::find_if(pages_.begin(), pages_.end(),
                                 [&request](const HttpPage& candidate) { return candidate.path == request.path; });
  if (page == pages_.end()) return connection.Respond(HttpError(404));
  if (!page->slow) return connection.Respond(page->make());
  if (!MakeLater(connection, *page)) return connection.Respond(HttpError(503));
  connection.AwaitPage();
  return true;
}

bool HttpServer::MakeLater(const Connection& connection, const HttpPage& page) {
  MutexLock lock(mu_);
  // The limit also counts jobs whose callers have gone.
  if (jobs_.size() >= kMaxConnections) return false;
  jobs_.push_back({connection.id, &page});
  job_added_.Signal();
  return true;
}

void HttpServer::MakeSlowPages() {
  while (true) {
    SlowJob job;
    {
      MutexLock lock(mu_);
      while (jobs_.empty() && !ending_) job_added_.Wait(mu_);
      if (ending_) return;
      job = jobs_.front();
      jobs_.pop_front();
    }
    loop_.Post([this, id = job.connection, response = job.page->make()] {
      const auto found = std::find_if(connections_.begin(), connections_.end(),
                                      [id](const auto& connection) { return connection->id == id; });
      if (found == connections_.end()) return;
      const std::shared_ptr<Connection> connection = *found;
      if (!connection->Respond(response)) Close(*connection);
    });
  }
}

}  // namespace normd
