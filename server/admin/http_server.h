// An HTTP/1.1 listener for a few pages that its callers cannot make unreachable: one thread polls all connections,
// reads a request's head, answers and closes. A connection has 2 s for all of that, however it spends them; of more
// than 64 the oldest goes. It goes on where the process has no descriptor left. In the path: beside it; admin_server.cc
// has the pages. Threads: the polling thread makes the quick pages, a second one the slow pages, one after another; so
// no page waits for a caller, and no quick page for a slow one. What pages call must outlive the server.
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
  bool slow = false;  // whether it takes longer than a look at a few atomics
};

class HttpServer {
 public:
  // Binds and serves. Port 0: any free one. UNAVAILABLE, naming the address, when it cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& host, int port,
                                                           std::vector<HttpPage> pages);

  // Closes every connection, and waits for a slow page that is being made.
  ~HttpServer();

  int port() const { return port_; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  struct Connection {
    // What comes next: the rest of the request; the slow page; room to send; the caller's end, so that it gets the
    // response before a reset for what it sent beyond its request.
    enum class State { kReading, kWaiting, kWriting, kLingering };

    uint64_t id = 0;
    UniqueFd fd;
    Time deadline;
    State state = State::kReading;
    bool head_only = false;
    std::string received = {};
    std::string response = {};
    size_t sent = 0;
  };

  struct SlowJob {
    uint64_t connection = 0;
    const HttpPage* page = nullptr;
  };

  HttpServer(UniqueFd listener, int port, UniqueFd wake, std::vector<HttpPage> pages);

  void Poll();
  int TimeoutMilliseconds(Time now) const;
  void TakeSlowPages();
  void AcceptOne(Time now);
  bool MakeRoomForDescriptor();
  // Each returns whether the connection is to be kept.
  bool Advance(Connection& connection);
  bool Read(Connection& connection);
  bool Answer(Connection& connection, const HttpRequest& request);
  bool Respond(Connection& connection, const HttpResponse& response);
  bool Write(Connection& connection);
  static bool Linger(Connection& connection);

  void MakeSlowPages();

  // Constant after construction.
  const UniqueFd listener_;
  const int port_;
  const UniqueFd wake_;  // an eventfd: a slow page is made, or the threads are to end
  const std::vector<HttpPage> pages_;

  // Of the polling thread.
  std::vector<Connection> connections_;  // oldest first
  uint64_t next_id_ = 0;
  Time accept_after_{};
  UniqueFd spare_;  // given up to accept a connection where descriptors have run out

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
