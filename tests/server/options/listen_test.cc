#include "server/options/listen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace normd {
namespace {

using ::testing::HasSubstr;

TEST(ListenAddress, KnowsWhetherOtherMachinesCanReachIt) {
  for (const std::string local : {"127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1", "unix:/tmp/s"}) {
    EXPECT_TRUE(ParseListenAddress("--listen", local)->IsLocal()) << local;
  }
  for (const std::string open : {"0.0.0.0:1", "[::]:1", "128.0.0.1:1", "127.0.0.1.example.org:1", "host:1"}) {
    EXPECT_FALSE(ParseListenAddress("--listen", open)->IsLocal()) << open;
  }
}

TEST(ListenAddress, SplitsHostAndPort) {
  EXPECT_EQ(ParseListenAddress("--listen", "[::1]:8001")->host, "::1");
  EXPECT_EQ(ParseListenAddress("--listen", "[::1]:8001")->port, 8001);
  EXPECT_EQ(ParseListenAddress("--listen", "unix:/a/b")->unix_path, "/a/b");
}

TEST(ListenAddress, RefusesMalformedAddresses) {
  const std::string too_long = "unix:/" + std::string(120, 'x');
  for (const std::string& bad :
       std::vector<std::string>{"", "8001", ":8001", "host", "host:", "host:x", "host:-1", "host:65536", "::1:8001",
                                "[host]:1", "unix:", "unix:/", "unix:relative", too_long}) {
    const absl::Status status = ParseListenAddress("--listen", bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--listen"));
  }
}

class UnixSocket : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/normd-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ + "/run/normd.sock";
  }
  void TearDown() override {
    if (fd_ >= 0) close(fd_);
    unlink(path_.c_str());
    rmdir((folder_ + "/run").c_str());
    rmdir(folder_.c_str());
  }

  // Leaves a bound socket at path_, as a server that died does.
  void Bind(bool listens, int type = SOCK_STREAM) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    fd_ = socket(AF_UNIX, type, 0);
    ASSERT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    if (listens) {
      ASSERT_EQ(listen(fd_, 1), 0);
    }
  }
  bool Exists() const { return access(path_.c_str(), F_OK) == 0; }
  static int Mode(const std::string& path) {
    struct stat info {};
    return stat(path.c_str(), &info) == 0 ? info.st_mode & 0777 : -1;
  }

  std::string folder_, path_;
  int fd_ = -1;
};

TEST_F(UnixSocket, GetsAPrivateFolderAndAPrivateFile) {
  ASSERT_TRUE(PrepareUnixSocket(path_).ok());
  EXPECT_EQ(Mode(folder_ + "/run"), 0700);
  Bind(true);
  ASSERT_TRUE(RestrictUnixSocket(path_).ok());
  EXPECT_EQ(Mode(path_), 0600);
  RemoveUnixSocket(path_);
  EXPECT_FALSE(Exists());
}

TEST_F(UnixSocket, CanBeOpenedToItsGroupOrToAll) {
  ASSERT_TRUE(PrepareUnixSocket(path_, {.mode = 0660, .group = getegid()}).ok());
  EXPECT_EQ(Mode(folder_ + "/run"), 0710);
  Bind(true);
  ASSERT_TRUE(RestrictUnixSocket(path_, {.mode = 0660, .group = getegid()}).ok());
  EXPECT_EQ(Mode(path_), 0660);
  const std::string all = folder_ + "/all/normd.sock";
  ASSERT_TRUE(PrepareUnixSocket(all, {.mode = 0666}).ok());
  EXPECT_EQ(Mode(folder_ + "/all"), 0711);
  rmdir((folder_ + "/all").c_str());
}

TEST_F(UnixSocket, OpensItsFolderOnlyToUsersThatMayConnect) {
  const std::string folder = folder_ + "/run";
  const auto prepare = [&](mode_t folder_mode, mode_t socket_mode) {
    mkdir(folder.c_str(), 0700);
    EXPECT_EQ(chmod(folder.c_str(), folder_mode), 0);
    return PrepareUnixSocket(path_, {.mode = socket_mode});
  };
  EXPECT_TRUE(prepare(0770, 0660).ok());
  EXPECT_TRUE(prepare(0777, 0666).ok());
  EXPECT_TRUE(prepare(02777, 0666).ok());  // a Kubernetes emptyDir with an fsGroup
  for (const mode_t socket_mode : {0600, 0660}) {
    const absl::Status status = prepare(0777, socket_mode);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("unix:" + folder + "/normd/normd.sock, which normd makes"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("--unix_socket_mode=0666"));
  }
}

TEST_F(UnixSocket, TheGroupIsANameOrANumber) {
  EXPECT_EQ(ParseUnixSocketAccess("0660", "root")->group, gid_t{0});
  EXPECT_EQ(ParseUnixSocketAccess("0660", "12345")->group, gid_t{12345});
  EXPECT_EQ(ParseUnixSocketAccess("0600", "")->group, std::nullopt);
  EXPECT_THAT(std::string(ParseUnixSocketAccess("0660", "no such group").status().message()),
              HasSubstr("--unix_socket_group is no such group"));
}

TEST_F(UnixSocket, OfADeadServerIsRemoved) {
  ASSERT_TRUE(PrepareUnixSocket(path_).ok());
  Bind(false);
  ASSERT_TRUE(Exists());
  EXPECT_TRUE(PrepareUnixSocket(path_).ok());
  EXPECT_FALSE(Exists());
}

TEST_F(UnixSocket, OfALiveServerIsLeftAlone) {
  ASSERT_TRUE(PrepareUnixSocket(path_).ok());
  Bind(true);
  const absl::Status status = PrepareUnixSocket(path_);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("in use"));
  EXPECT_TRUE(Exists());
}

// As the registrar's is.
TEST_F(UnixSocket, IsNotReplacedWhileASocketOfAnyTypeListens) {
  ASSERT_TRUE(PrepareUnixSocket(path_).ok());
  Bind(true, SOCK_SEQPACKET);
  EXPECT_EQ(PrepareUnixSocket(path_).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Exists());
}

TEST_F(UnixSocket, NeverReplacesAFile) {
  ASSERT_TRUE(PrepareUnixSocket(path_).ok());
  std::ofstream(path_) << "precious";
  EXPECT_EQ(PrepareUnixSocket(path_).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Exists());
}

TEST_F(UnixSocket, IsRefusedInAFolderWhereOthersCouldReplaceIt) {
  ASSERT_EQ(mkdir((folder_ + "/run").c_str(), 0700), 0);
  ASSERT_EQ(chmod((folder_ + "/run").c_str(), 0777), 0);
  EXPECT_EQ(PrepareUnixSocket(path_).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace normd
