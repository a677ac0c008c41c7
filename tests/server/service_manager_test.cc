#include "server/service_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "server/base/unique_fd.h"

namespace normd {
namespace {

// A Unix socket at `name`, as NOTIFY_SOCKET writes it, that receives datagrams.
class Manager {
 public:
  explicit Manager(const std::string& name) : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  }

  std::string Receive() {
    char buffer[256];
    const ssize_t size = recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    return size < 0 ? "nothing" : std::string(buffer, static_cast<size_t>(size));
  }

 private:
  UniqueFd fd_;
};

TEST(NotifyServiceManager, SendsTheStateToAPathAndToAnAbstractName) {
  const std::string path = "/tmp/normd-notify-" + std::to_string(getpid());
  for (const std::string& name : {path, "@" + path.substr(1)}) {
    Manager manager(name);
    EXPECT_TRUE(NotifyServiceManager(name, "READY=1").ok());
    EXPECT_EQ(manager.Receive(), "READY=1");
    EXPECT_EQ(manager.Receive(), "nothing");
  }
  unlink(path.c_str());
}

TEST(NotifyServiceManager, DoesNothingWithoutAServiceManager) { EXPECT_TRUE(NotifyServiceManager("", "READY=1").ok()); }

TEST(NotifyServiceManager, ReportsWhyANotificationFailed) {
  const std::string too_long = "/" + std::string(200, 'x');
  for (const std::string& socket : {std::string("/nonexistent/notify"), std::string("tcp:1"), too_long}) {
    const absl::Status status = NotifyServiceManager(socket, "READY=1");
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << socket;
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("NOTIFY_SOCKET: ")) << socket;
  }
}

TEST(ReloadingState, CarriesTheMonotonicTime) {
  EXPECT_THAT(ReloadingState(), ::testing::MatchesRegex("RELOADING=1\nMONOTONIC_USEC=[0-9]+"));
}

}  // namespace
}  // namespace normd
