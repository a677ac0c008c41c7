// A listener where a server would take registrations, which answers as the test says and maps what it was given.
#ifndef NORMD_TESTS_CLIENT_FAKE_REGISTRAR_H_
#define NORMD_TESTS_CLIENT_FAKE_REGISTRAR_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "proto/wire/shm_registration.h"

namespace normd::client {

class FakeRegistrar {
 public:
  // What the server answers; empty: it closes the connection instead.
  using Answer = std::function<std::string(const wire::ShmRequest& request, int object)>;

  explicit FakeRegistrar(Answer answer) : answer_(std::move(answer)) {
    char name[] = "/tmp/normd-test-XXXXXX";
    EXPECT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (path() + ".shm").c_str());
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~FakeRegistrar() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    for (const int connection : connections_) close(connection);
    unlink((path() + ".shm").c_str());
    rmdir(folder_.c_str());
  }

  std::string path() const { return folder_ + "/normd.sock"; }
  std::string target() const { return "unix:" + path(); }

  // Whether the client has closed its `index`th connection.
  bool Closed(size_t index) {
    const std::lock_guard<std::mutex> lock(mu_);
    char byte = 0;
    return recv(connections_.at(index), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
  }

  static std::string Reply(int32_t code, std::string_view region, std::string_view message = "") {
    wire::ShmReply reply;
    reply.operation = wire::kShmRegister;
    reply.code = code;
    wire::PutShmText(region, reply.region);
    wire::PutShmText(message, reply.message);
    return std::string(reinterpret_cast<const char*>(&reply), sizeof(reply));
  }

 private:
  void Serve() {
    while (true) {
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      {
        const std::lock_guard<std::mutex> lock(mu_);
        connections_.push_back(connection);
      }
      wire::ShmRequest request;
      iovec data{&request, sizeof(request)};
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
      msghdr message{};
      message.msg_iov = &data;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) != sizeof(request)) continue;
      int object = -1;
      if (const cmsghdr* part = CMSG_FIRSTHDR(&message)) std::memcpy(&object, CMSG_DATA(part), sizeof(object));
      const std::string answer = answer_(request, object);
      close(object);
      if (answer.empty()) shutdown(connection, SHUT_RDWR);
      if (!answer.empty()) send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
    }
  }

  const Answer answer_;
  std::string folder_;
  int listener_ = -1;
  std::mutex mu_;
  std::vector<int> connections_;  // guarded by mu_
  std::thread thread_;
};

}  // namespace normd::client

#endif  // NORMD_TESTS_CLIENT_FAKE_REGISTRAR_H_
