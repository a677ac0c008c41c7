#include "server/admin/http_server.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/admin/host_header.h"
#include "server/base/listen_tcp.h"

namespace normd {
namespace {

using std::chrono::milliseconds;

// Probes and one or two scrapers need only a few connections. A new connection displaces the oldest one instead of
// being refused, because an honest caller sends its request within milliseconds, and connections that are held open are
// older.
constexpr size_t kMaxConnections = 64;
// The time from accept to the last byte, whatever the caller sends or reads. Probes give up after 1 s by default.
constexpr milliseconds kDeadline(2000);
// The time for which the listener is not polled when there is no descriptor for a connection.
constexpr milliseconds kAcceptPause(50);

UniqueFd SpareDescriptor() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// Whether a failed call on a non-blocking socket is worth repeating.
bool TryLater() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

bool IsOutOfDescriptors(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

// The error for a request to `host`.
HttpResponse MisdirectedError(std::string_view host) {
  constexpr size_t kMaxShownBytes = 64;
  const absl::string_view shown(host.data(), std::min(host.size(), kMaxShownBytes));
  return HttpError(421, absl::StrCat("Host is \"", absl::CHexEscape(shown),
                                     "\", which is no address, not localhost and no name of --admin_hosts"));
}

void Wake(int fd) {
  const uint64_t one = 1;
  // The write can fail only when 2^64 - 2 wake-ups are pending.
  [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof(one));
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& host, int port,
                                                              std::vector<HttpPage> pages,
                                                              std::vector<std::string> names) {
  absl::StatusOr<std::vector<UniqueFd>> listeners = ListenTcp(host, port);
  if (!listeners.ok()) {
    const bool v6 = host.find(':') != std::string::npos;
    return absl::UnavailableError(absl::StrCat("cannot listen on ", v6 ? "[" : "", host, v6 ? "]:" : ":", port, ": ",
                                               listeners.status().message()));
  }
  UniqueFd wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake.valid()) return absl::UnavailableError("no descriptor is left for an eventfd");
  const int bound = BoundPort(listeners->front().get());
  names.push_back(absl::AsciiStrToLower(host));
  return std::unique_ptr<HttpServer>(
      new HttpServer(*std::move(listeners), bound, std::move(wake), std::move(pages), std::move(names)));
}

HttpServer::HttpServer(std::vector<UniqueFd> listeners, int port, UniqueFd wake, std::vector<HttpPage> pages,
                       std::vector<std::string> names)
    : listeners_(std::move(listeners)),
      port_(port),
      wake_(std::move(wake)),
      pages_(std::move(pages)),
      names_(std::move(names)),
      spare_(SpareDescriptor()) {
  poller_ = std::thread([this] {
    while (!ending_) Poll();
  });
  page_maker_ = std::thread([this] { MakeSlowPages(); });
}

HttpServer::~HttpServer() {
  ending_ = true;
  Wake(wake_.get());
  {
    MutexLock lock(mu_);
    job_added_.SignalAll();
  }
  poller_.join();
  page_maker_.join();
}

void HttpServer::Poll() {
  const Time before = std::chrono::steady_clock::now();
  std::vector<pollfd> polled = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  for (const UniqueFd& listener : listeners_) {
    polled.push_back({.fd = before < accept_after_ ? -1 : listener.get(), .events = POLLIN, .revents = 0});
  }
  const size_t fixed = polled.size();
  for (const Connection& connection : connections_) {
    short events = POLLIN;
    // With no events, poll still reports that the connection broke; bytes that the caller sends meanwhile are ignored.
    if (connection.state == Connection::State::kWaiting) events = 0;
    if (connection.state == Connection::State::kWriting) events = POLLOUT;
    polled.push_back({.fd = connection.fd.get(), .events = events, .revents = 0});
  }
  if (poll(polled.data(), polled.size(), TimeoutMilliseconds(before)) < 0) return;  // EINTR
  const Time now = std::chrono::steady_clock::now();
  std::vector<Connection> kept;
  for (size_t i = 0; i < connections_.size(); ++i) {
    Connection& connection = connections_[i];
    const bool keep = polled[i + fixed].revents == 0 || Advance(connection);
    if (keep && now < connection.deadline) kept.push_back(std::move(connection));
  }
  connections_ = std::move(kept);
  if (polled[0].revents != 0) TakeSlowPages();
  bool accepted = false;
  for (size_t i = 0; i < listeners_.size(); ++i) {
    if (polled[i + 1].revents == 0) continue;
    AcceptOne(listeners_[i].get(), now);
    accepted = true;
  }
  if (!accepted && !spare_.valid()) spare_ = SpareDescriptor();
}

int HttpServer::TimeoutMilliseconds(Time now) const {
  std::optional<Time> next;
  if (!connections_.empty()) next = connections_.front().deadline;
  if (now < accept_after_) next = next.has_value() ? std::min(*next, accept_after_) : accept_after_;
  if (!next.has_value()) return -1;
  const auto left = std::chrono::ceil<milliseconds>(*next - now).count();
  return static_cast<int>(std::max<int64_t>(left, 0));
}

void HttpServer::TakeSlowPages() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = read(wake_.get(), &count, sizeof(count));
  std::vector<std::pair<uint64_t, HttpResponse>> made;
  {
    MutexLock lock(mu_);
    made.swap(made_);
  }
  for (const auto& [id, response] : made) {
    const auto it = std::find_if(connections_.begin(), connections_.end(),
                                 [id = id](const Connection& connection) { return connection.id == id; });
    if (it != connections_.end() && !Respond(*it, response)) connections_.erase(it);
  }
}

// Accepts one connection of a listener per poll. With no descriptor left, accept4 fails before it checks whether a
// connection waits, so asking for a second connection could close the first to make room for nobody.
void HttpServer::AcceptOne(int listener, Time now) {
  UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.valid() && IsOutOfDescriptors(errno)) {
    if (!MakeRoomForDescriptor()) accept_after_ = now + kAcceptPause;
    return;
  }
  if (!fd.valid()) return;  // the caller has gone meanwhile
  if (connections_.size() >= kMaxConnections) connections_.erase(connections_.begin());
  connections_.push_back({.id = next_id_++, .fd = std::move(fd), .deadline = now + kDeadline});
}

// Frees a descriptor when the process has none left: first the spare one, then that of the oldest connection. Returns
// false when there was nothing to close.
bool HttpServer::MakeRoomForDescriptor() {
  if (spare_.valid()) {
    spare_.Close();
    return true;
  }
  if (connections_.empty()) return false;
  connections_.erase(connections_.begin());
  return true;
}

bool HttpServer::Advance(Connection& connection) {
  switch (connection.state) {
    case Connection::State::kReading:
      return Read(connection);
    case Connection::State::kWaiting:
      return false;
    case Connection::State::kWriting:
      return Write(connection);
    case Connection::State::kLingering:
      return Linger(connection);
  }
  return false;
}

bool HttpServer::Read(Connection& connection) {
  char buffer[kMaxHttpHeadBytes];
  const ssize_t count = recv(connection.fd.get(), buffer, kMaxHttpHeadBytes - connection.received.size(), 0);
  if (count <= 0) return count < 0 && TryLater();
  connection.received.append(buffer, static_cast<size_t>(count));
  const HttpRequest request = ParseHttpRequest(connection.received, &connection.scan);
  return request.kind == HttpRequest::Kind::kIncomplete || Answer(connection, request);
}

bool HttpServer::Answer(Connection& connection, const HttpRequest& request) {
  if (request.kind == HttpRequest::Kind::kRefused) return Respond(connection, HttpError(request.status));
  connection.head_only = request.kind == HttpRequest::Kind::kHead;
  // Without the header nobody is misled: every browser sends it.
  if (request.host.has_value() && !IsOwnHost(*request.host, names_)) {
    return Respond(connection, MisdirectedError(*request.host));
  }
  const auto page = std::find_if(pages_.begin(), pages_.end(),
                                 [&request](const HttpPage& candidate) { return candidate.path == request.path; });
  if (page == pages_.end()) return Respond(connection, HttpError(404));
  if (!page->slow) return Respond(connection, page->make());
  {
    MutexLock lock(mu_);
    // The limit also counts jobs whose callers have gone.
    if (jobs_.size() < kMaxConnections) {
      jobs_.push_back({connection.id, &*page});
      job_added_.Signal();
      connection.state = Connection::State::kWaiting;
      return true;
    }
  }
  return Respond(connection, HttpError(503));
}

bool HttpServer::Respond(Connection& connection, const HttpResponse& response) {
  connection.response = EncodeHttpResponse(response, connection.head_only);
  connection.state = Connection::State::kWriting;
  return Write(connection);
}

bool HttpServer::Write(Connection& connection) {
  const std::string_view rest = std::string_view(connection.response).substr(connection.sent);
  const ssize_t count = send(connection.fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (count < 0) return TryLater();
  connection.sent += static_cast<size_t>(count);
  if (connection.sent < connection.response.size()) return true;
  connection.state = Connection::State::kLingering;
  return shutdown(connection.fd.get(), SHUT_WR) == 0;
}

bool HttpServer::Linger(Connection& connection) {
  char buffer[kMaxHttpHeadBytes];
  const ssize_t count = recv(connection.fd.get(), buffer, sizeof(buffer), 0);
  return count > 0 || (count < 0 && TryLater());
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
    HttpResponse response = job.page->make();
    {
      MutexLock lock(mu_);
      made_.emplace_back(job.connection, std::move(response));
    }
    Wake(wake_.get());
  }
}

}  // namespace normd
