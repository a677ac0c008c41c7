#include "client/normload/background_cpu.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

namespace normd::client {
namespace {

TEST(BackgroundCpu, ReadsTheMachine) {
  const auto ticks = ParseCpuTicks("cpu  100 20 30 4000 50 6 7 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
  ASSERT_TRUE(ticks.has_value());
  EXPECT_EQ(ticks->busy, 100 + 20 + 30 + 8);
  EXPECT_EQ(ticks->total, 100 + 20 + 30 + 4000 + 50 + 6 + 7 + 8);
  for (const char* text : {"", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8 9", "cpu a b c d e f g h"}) {
    EXPECT_FALSE(ParseCpuTicks(text).has_value()) << text;
  }
}

TEST(BackgroundCpu, ReadsAProcessWhateverItsName) {
  EXPECT_EQ(ParseProcessTicks("42 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 700 77 0 0 20 0"), 777);
  for (const char* text : {"", "42 (a) S 1 2", "42 a S"}) EXPECT_FALSE(ParseProcessTicks(text).has_value()) << text;
}

TEST(BackgroundCpu, IsWhatWasBusyAndNotOurs) {
  const CpuTicks before{1000, 5000, 300};
  EXPECT_DOUBLE_EQ(*ForeignShare(before, {1500, 6000, 700}), 0.1);
  EXPECT_DOUBLE_EQ(*ForeignShare(before, {1500, 6000, 900}), 0);  // the files are read one after the other
  EXPECT_FALSE(ForeignShare(before, before).has_value());
}

TEST(BackgroundCpu, FindsListenersInTables) {
  constexpr char kTcp[] =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 0100007F:1F41 0100007F:8000 01 00000000:00000000 00:00000000 00000000  1000        0 111 1 0\n"
      "   1: 0100007F:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 222 1 0\n";
  EXPECT_EQ(ParseTcpListener(kTcp, 8001), 222);
  EXPECT_FALSE(ParseTcpListener(kTcp, 8002).has_value());
  constexpr char kUnix[] =
      "Num       RefCount Protocol Flags    Type St Inode Path\n"
      "0000: 00000003 00000000 00000000 0001 03 333 /run/normd.sock\n"
      "0000: 00000002 00000000 00010000 0001 01 444 /run/normd.sock\n";
  EXPECT_EQ(ParseUnixListener(kUnix, "/run/normd.sock"), 444);
  EXPECT_FALSE(ParseUnixListener(kUnix, "/run/other.sock").has_value());
}

TEST(BackgroundCpu, FindsTheProcessThatListens) {
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = testing::TempDir() + "background_cpu_test." + std::to_string(getpid());
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  EXPECT_EQ(FindServerPid("unix:" + path), getpid());
  close(listener);
  unlink(path.c_str());
  EXPECT_FALSE(FindServerPid("unix:" + path).has_value());
  EXPECT_FALSE(FindServerPid("127.0.0.1:none").has_value());
}

}  // namespace
}  // namespace normd::client
