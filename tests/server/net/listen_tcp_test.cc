#include "server/net/listen_tcp.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <vector>

namespace normd::net {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Whether a connection to the port of loopback is taken, over IPv6 or IPv4.
bool Answers(int family, int port) {
  const UniqueFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (family == AF_INET6) {
    sockaddr_in6 name{};
    name.sin6_family = AF_INET6;
    name.sin6_port = htons(port);
    name.sin6_addr = in6addr_loopback;
    return connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
  }
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
}

bool HasIpv6() { return ListenTcp("::1", 0).ok(); }

TEST(ListenTcpTest, TheUnspecifiedAddressServesBothFamilies) {
  const absl::StatusOr<std::vector<UniqueFd>> sockets = ListenTcp("::", 0);
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  ASSERT_THAT(*sockets, SizeIs(1));
  const int port = BoundPort(sockets->front().get());
  EXPECT_TRUE(Answers(AF_INET, port));
  if (HasIpv6()) {
    EXPECT_TRUE(Answers(AF_INET6, port));
  }
}

TEST(ListenTcpTest, EveryAddressOfANameHasTheSamePort) {
  const absl::StatusOr<std::vector<UniqueFd>> sockets = ListenTcp("localhost", 0);
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  const int port = BoundPort(sockets->front().get());
  EXPECT_GT(port, 0);
  for (const UniqueFd& fd : *sockets) EXPECT_EQ(BoundPort(fd.get()), port);
  EXPECT_TRUE(Answers(AF_INET, port));
}

TEST(ListenTcpTest, APortInUseIsAnErrorWithItsReason) {
  const absl::StatusOr<std::vector<UniqueFd>> first = ListenTcp("127.0.0.1", 0);
  ASSERT_TRUE(first.ok()) << first.status();
  for (const char* host : {"127.0.0.1", "localhost", "::"}) {
    const absl::Status again = ListenTcp(host, BoundPort(first->front().get())).status();
    EXPECT_EQ(again.code(), absl::StatusCode::kUnavailable) << host;
    EXPECT_THAT(again.message(), HasSubstr("in use")) << host;
  }
  EXPECT_FALSE(ListenTcp("no such host", 0).ok());
}

// Has socket(AF_INET6, ...) fail as on a system that was started with ipv6.disable=1.
bool ForbidIpv6() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_socket, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog filter = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(ListenTcpTest, WithoutIpv6TheUnspecifiedAddressIsThatOfIpv4) {
  const auto listen_without = [] {
    if (!ForbidIpv6()) _exit(2);
    const absl::StatusOr<std::vector<UniqueFd>> sockets = ListenTcp("::", 0);
    _exit(sockets.ok() && Answers(AF_INET, BoundPort(sockets->front().get())) ? 0 : 1);
  };
  EXPECT_EXIT(listen_without(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace normd::net
