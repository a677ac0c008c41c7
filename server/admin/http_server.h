// An HTTP/1.1 listener for a few pages, which callers cannot make unreachable. Each connection serves one request and
// closes; it has 2 s in all, and when there are more than 64 connections, the oldest is closed. The listener keeps
// working when the process runs out of descriptors.
// In the path: beside it; admin_server.cc has the pages.
// Threads: one thread polls all connections and makes the quick pages; a second thread makes the slow pages, one at a
// time. So no page waits for a caller, and no quick page waits for a slow one. Whatever pages use must outlive the
// server.
#ifndef NORMD_SERVER_ADMIN_HTTP_SERVER_H_
#define NORMD_SERVER_ADMIN_HTTP_SERVER_H_

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/admin/http_request.h"
#include "server/base/mutex.h"
#include "server/base/unique_fd.h"

namespace normd {

struct HttpPage {
  std::string path;
  std::function<HttpResponse()> make;
  bool slow = false;  // whether making the page takes longer than reading a few atomics
};

class HttpServer {
 public:
  // Binds every address of `host` and serves until destruction. Port 0 means any free port. Requests whose Host is not
  // one of ours (IsOwnHost) get 421; `names` are those beside `host`. Returns UNAVAILABLE, naming the address, when it
  // cannot be bound, or when no descriptor is left.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& host, int port,
                                                           std::vector<HttpPage> pages,
                                                           std::vector<std::string> names = {});

  // Closes every connection, after waiting for the slow page that is being made, if any.
  ~HttpServer();

  int port() const { return port_; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  struct Connection {
    // What the connection waits for: the rest of the request; the slow page; room to send; or the caller's end of the
    // connection. The last is awaited because closing with unread bytes sends a reset, which could destroy the
    // response.
    enum class State { kReading, kWaiting, kWriting, kLingering };

    uint64_t id = 0;
    UniqueFd fd;
    Time deadline;
    State state = State::kReading;
    bool head_only = false;
    std::string received = {};
    HttpScan scan = {};
    std::string response = {};
    size_t sent = 0;
  };

  struct SlowJob {
    uint64_t connection = 0;
    const HttpPage* page = nullptr;
  };

  HttpServer(std::vector<UniqueFd> listeners, int port, UniqueFd wake, std::vector<HttpPage> pages,
             std::vector<std::string> names);

  void Poll();
  int TimeoutMilliseconds(Time now) const;
  void TakeSlowPages();
  void AcceptOne(int listener, Time now);
  bool MakeRoomForDescriptor();
  // Each of these returns whether to keep the connection.
  bool Advance(Connection& connection);
  bool Read(Connection& connection);
  bool Answer(Connection& connection, const HttpRequest& request);
  bool Respond(Connection& connection, const HttpResponse& response);
  bool Write(Connection& connection);
  static bool Linger(Connection& connection);

  void MakeSlowPages();

  // Constant after construction.
  const std::vector<UniqueFd> listeners_;
  const int port_;
  const UniqueFd wake_;  // an eventfd that wakes the polling thread: a slow page is ready, or the server ends
  const std::vector<HttpPage> pages_;
  const std::vector<std::string> names_;  // the own names, in lower case

  // Used by the polling thread only.
  std::vector<Connection> connections_;  // oldest first
  uint64_t next_id_ = 0;
  Time accept_after_{};
  UniqueFd spare_;  // closed to make room for a connection when the process has run out of descriptors

  std::atomic<bool> ending_{false};
  Mutex mu_;
  CondVar job_added_;
  std::deque<SlowJob> jobs_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<uint64_t, HttpResponse>> made_ ABSL_GUARDED_BY(mu_);

  std::thread poller_;
  std::thread page_maker_;
};

}  // namespace normd

#endif  // NORMD_SERVER_ADMIN_HTTP_SERVER_H_
