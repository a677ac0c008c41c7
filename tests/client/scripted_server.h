// A server of TCP that says what a test wrote down, whoever calls: what is no normd, or one that refuses connections.
#ifndef NORMD_TESTS_CLIENT_SCRIPTED_SERVER_H_
#define NORMD_TESTS_CLIENT_SCRIPTED_SERVER_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace normd {

enum class ThenIt { kCloses, kResets, kStaysSilent };

class ScriptedServer {
 public:
  // Waits for the first bytes of each connection, unless `speaks_first`, answers `words`, and does the rest.
  ScriptedServer(std::string words, ThenIt then, bool speaks_first = false)
      : ScriptedServer(words, words, then, speaks_first) {}
  // Answers a hello of TLS by `to_hello` instead.
  ScriptedServer(std::string words, std::string to_hello, ThenIt then, bool speaks_first = false)
      : words_(std::move(words)),
        to_hello_(std::move(to_hello)),
        then_(then),
        speaks_first_(speaks_first),
        listener_(Listen()) {
    thread_ = std::thread([this] { Run(); });
  }
  ~ScriptedServer() {
    ended_ = true;
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    for (const int fd : kept_) close(fd);
    close(listener_);
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  std::string target() const { return absl::StrCat("127.0.0.1:", port_); }
  int connections() const { return connections_; }

 private:
  int Listen() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd, 16), 0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    return fd;
  }

  // Serves all connections at once: gRPC opens one after the other, and when a call is over it leaves the last one
  // without a byte.
  void Run() {
    std::vector<pollfd> polled = {{.fd = listener_, .events = POLLIN, .revents = 0}};
    while (!ended_) {
      if (poll(polled.data(), polled.size(), -1) < 0) continue;
      std::vector<pollfd> waiting = {polled.front()};
      for (const pollfd& connection : absl::MakeConstSpan(polled).subspan(1)) {
        if (connection.revents == 0) {
          waiting.push_back(connection);
        } else {
          Answer(connection.fd);
        }
      }
      if (const int fd = accept(listener_, nullptr, nullptr); fd >= 0) {
        ++connections_;
        if (speaks_first_) {
          Answer(fd);
        } else {
          waiting.push_back({.fd = fd, .events = POLLIN, .revents = 0});
        }
      }
      polled = std::move(waiting);
    }
    for (const pollfd& connection : absl::MakeConstSpan(polled).subspan(1)) close(connection.fd);
  }

  void Answer(int fd) {
    char bytes[4096];
    const bool is_hello = recv(fd, bytes, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && bytes[0] == '\x16';
    if (!speaks_first_) {
      while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
      }
    }
    const std::string& words = is_hello ? to_hello_ : words_;
    if (!words.empty()) send(fd, words.data(), words.size(), MSG_NOSIGNAL);
    // A reset would take words away that the peer has not read yet.
    if (then_ == ThenIt::kStaysSilent || (then_ == ThenIt::kResets && !words.empty())) {
      kept_.push_back(fd);
      return;
    }
    const linger at_once = {.l_onoff = 1, .l_linger = 0};  // makes close() send a reset
    if (then_ == ThenIt::kResets) setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(fd);
  }

  const std::string words_, to_hello_;
  const ThenIt then_;
  const bool speaks_first_;
  int port_ = 0;
  const int listener_;
  std::atomic<bool> ended_{false};
  std::atomic<int> connections_{0};
  std::vector<int> kept_;  // of the thread alone, until it has ended
  std::thread thread_;
};

}  // namespace normd

#endif  // NORMD_TESTS_CLIENT_SCRIPTED_SERVER_H_
