#include "client/cpp/local_server.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "normd/v1/normalizer.grpc.pb.h"

namespace normd::client {
namespace {

class LocalServer : public testing::Test {
 protected:
  LocalServer() {
    char name[] = "/tmp/normd-test-XXXXXX";
    EXPECT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  ~LocalServer() override { std::filesystem::remove_all(folder_); }

  std::string socket_path() const { return folder_ + "/normd.sock"; }

  std::string folder_;
};

// A listening socket.
class Listener {
 public:
  explicit Listener(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd_, 4), 0);
  }
  ~Listener() { close(fd_); }

  bool WasCalled() const {
    pollfd waiting = {.fd = fd_, .events = POLLIN, .revents = 0};
    return poll(&waiting, 1, 0) == 1;
  }

 private:
  const int fd_;
};

TEST_F(LocalServer, IsFoundAtItsSocketWhileItRuns) {
  const std::string target = "unix:" + socket_path();
  EXPECT_NE(FindUnixSocket(folder_), target) << "there is none";
  {
    const Listener listener(socket_path());
    EXPECT_EQ(FindUnixSocket(folder_), target);
    EXPECT_FALSE(listener.WasCalled()) << "a server would count a connection that comes to nothing";
  }
  EXPECT_TRUE(std::filesystem::exists(socket_path()));
  EXPECT_NE(FindUnixSocket(folder_), target) << "the server has ended";
}

TEST_F(LocalServer, IsNotFoundThroughWhatOthersCouldHavePutThere) {
  const Listener listener(socket_path());
  const std::string link = folder_ + "/link";
  std::filesystem::create_directory_symlink(folder_, link);
  EXPECT_NE(FindUnixSocket(link), "unix:" + link + "/normd.sock") << "the folder is a link";
  const std::string other = folder_ + "/other";
  std::filesystem::create_directory(other);
  std::filesystem::create_symlink(socket_path(), other + "/normd.sock");
  EXPECT_NE(FindUnixSocket(other), "unix:" + other + "/normd.sock") << "the socket is a link";
}

class DescribingService : public v1::Normalizer::Service {
 public:
  DescribingService(std::string uid, std::string unix_socket)
      : uid_(std::move(uid)), unix_socket_(std::move(unix_socket)) {}

  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*, v1::DescribeResponse* response) override {
    ++describes;
    response->set_server_uid(uid_);
    response->set_unix_socket(unix_socket_);
    return grpc::Status::OK;
  }
  std::atomic<int> describes{0};

 private:
  const std::string uid_, unix_socket_;
};

// A server at a free port of 127.0.0.1, and at a Unix socket if `at` is not empty.
struct Serving {
  Serving(const std::string& uid, const std::string& unix_socket, const std::string& at) : service(uid, unix_socket) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    if (!at.empty()) builder.AddListeningPort("unix:" + at, grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
  }
  std::string target() const { return absl::StrCat("127.0.0.1:", port); }

  DescribingService service;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

TEST_F(LocalServer, ItsSocketIsPreferredIfTheProcessIsTheSame) {
  const Serving server("uid", socket_path(), socket_path());
  EXPECT_EQ(FindUnixSocketOf(server.target(), {}), "unix:" + socket_path());
  EXPECT_EQ((*Client::Connect(server.target(), {.prefer_unix_socket = true}))->target(), "unix:" + socket_path());
  const int asked = server.service.describes;
  EXPECT_EQ((*Client::Connect(server.target()))->target(), server.target()) << "only if asked for";
  EXPECT_EQ(server.service.describes, asked);
}

TEST_F(LocalServer, ItsAddressIsKeptIfTheSocketLeadsElsewhere) {
  const Serving other("other", "", socket_path());
  const Serving server("uid", socket_path(), "");
  EXPECT_EQ(FindUnixSocketOf(server.target(), {}), std::nullopt);
  const Serving closed("uid", folder_ + "/nobody.sock", "");
  EXPECT_EQ(FindUnixSocketOf(closed.target(), {}), std::nullopt);
  const Serving silent("", socket_path(), "");  // an older server has no uid
  EXPECT_EQ(FindUnixSocketOf(silent.target(), {}), std::nullopt);
  EXPECT_EQ((*Client::Connect(server.target(), {.prefer_unix_socket = true}))->target(), server.target());
}

TEST_F(LocalServer, OnlyLoopbackAddressesAreAsked) {
  EXPECT_EQ(FindUnixSocketOf("unix:" + socket_path(), {}), std::nullopt);
  const absl::Time start = absl::Now();
  EXPECT_EQ(FindUnixSocketOf("192.0.2.1:8001", {}), std::nullopt);
  EXPECT_LT(absl::Now() - start, absl::Milliseconds(500));
  EXPECT_EQ(FindUnixSocketOf("127.0.0.1:1", {}), std::nullopt) << "nobody listens there";
}

}  // namespace
}  // namespace normd::client
