// An HTTP/1.1 listener for a few pages, which callers cannot make unreachable. Each connection serves one request and
// closes; it has 2 s in all, and when there are more than 64 connections, the oldest is closed. The listener keeps
// working when the process runs out of descriptors.
// In the path: beside it; admin_server.cc has the pages.
// Threads: a loop serves all connections and makes the quick pages; a second thread makes the slow pages, one at a
// time. So no page waits for a caller, and no quick page waits for a slow one. Whatever pages use must outlive the
// server.
#ifndef NORMD_SERVER_ADMIN_HTTP_SERVER_H_
#define NORMD_SERVER_ADMIN_HTTP_SERVER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/admin/http_request.h"
#include "server/base/mutex.h"
#include "server/base/unique_fd.h"
#include "server/net/acceptor.h"
#include "server/net/event_loop.h"

namespace normd {

struct HttpPage {
  std::string path;
  std::function<HttpResponse()> make;
  bool slow = false;  // whether making the page takes longer than reading a few atomics
};

class HttpServer : private net::Acceptor::Owner {
 public:
  // Binds every address of `host` and serves until destruction. Port 0 means any free port. Requests whose Host is not
  // one of ours (IsOwnHost) get 421; `names` are those beside `host`. Returns UNAVAILABLE, naming the address, when it
  // cannot be bound, or when no descriptor is left.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& host, int port,
                                                           std::vector<HttpPage> pages,
                                                           std::vector<std::string> names = {});

  // Closes every connection, and waits for the slow page that is being made, if any.
  ~HttpServer() override;

  int port() const { return port_; }

 private:
  class Connection;

  struct SlowJob {
    uint64_t connection = 0;
    const HttpPage* page = nullptr;
  };

  HttpServer(int port, std::vector<HttpPage> pages, std::vector<std::string> names);

  void OnAccepted(UniqueFd fd, const sockaddr_storage& peer, const net::ListeningSocket& listener) override;
  bool MakeRoom() override;
  void Close(Connection& connection);
  // Returns whether the connection goes on.
  bool Answer(Connection& connection, const HttpRequest& request);
  // Queues the page for the thread that makes slow ones. Returns false when too many are queued.
  bool MakeLater(const Connection& connection, const HttpPage& page);
  void MakeSlowPages();

  // Constant after construction.
  const int port_;
  const std::vector<HttpPage> pages_;
  const std::vector<std::string> names_;  // the own names, in lower case

  net::EventLoop loop_;
  net::Acceptor acceptor_;
  // Used by the loop's thread only.
  std::deque<std::shared_ptr<Connection>> connections_;  // the oldest first
  uint64_t next_id_ = 0;

  Mutex mu_;
  CondVar job_added_;
  std::deque<SlowJob> jobs_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;

  std::thread page_maker_;
};

}  // namespace normd

#endif  // NORMD_SERVER_ADMIN_HTTP_SERVER_H_
