#include "server/net/acceptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/temporary_file.h"

namespace normd::net {
namespace {

// Keeps what it accepts, and gives the oldest away where it may.
class Keeper : public Acceptor::Owner {
 public:
  explicit Keeper(bool makes_room) : makes_room_(makes_room) {}

  void OnAccepted(UniqueFd fd, const sockaddr_storage& /*peer*/, const ListeningSocket& listener) override {
    EXPECT_TRUE(listener.is_unix());
    EXPECT_NE(fcntl(fd.get(), F_GETFL) & O_NONBLOCK, 0);
    kept_.push_back(std::move(fd));
    ++accepted;
  }
  void OnRefused() override { ++refused; }
  bool MakeRoom() override {
    if (!makes_room_ || kept_.empty()) return false;
    kept_.erase(kept_.begin());
    return true;
  }

  std::atomic<int> accepted{0};
  std::atomic<int> refused{0};

 private:
  const bool makes_room_;
  std::vector<UniqueFd> kept_;  // of the loop's thread
};

class AcceptorTest : public ::testing::Test {
 protected:
  void TearDown() override {
    loop_.Post([this] { acceptor_->Close(); });
    loop_.Stop();
    setrlimit(RLIMIT_NOFILE, &limit_);
  }

  void Start(const Acceptor::Options& options, bool makes_room = false) {
    keeper_.emplace(makes_room);
    ASSERT_TRUE(loop_.Open().ok());
    acceptor_.emplace(&loop_, &*keeper_, options);
    absl::StatusOr<std::vector<ListeningSocket>> listeners = Listen("unix:" + Path());
    ASSERT_TRUE(listeners.ok()) << listeners.status();
    ASSERT_TRUE(acceptor_->Open(*std::move(listeners)).ok());
    loop_.Start();
  }

  // Leaves the process no descriptor, once the acceptor has what it needs.
  void TakeAllDescriptors() {
    rlimit low = limit_;
    low.rlim_cur = 200;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (int fd = dup(0); fd >= 0; fd = dup(0)) taken_.emplace_back(fd);
    ASSERT_FALSE(taken_.empty());
  }

  // With the descriptor `socket`, which is made before descriptors are short.
  void Connect(const UniqueFd& socket) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, Path().c_str());
    ASSERT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  static UniqueFd Socket() { return UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
  static bool IsClosed(const UniqueFd& socket) {
    char byte = 0;
    return recv(socket.get(), &byte, 1, 0) == 0;  // waits for the end
  }

  std::string Path() const { return folder_.folder() + "/s"; }

  const rlimit limit_ = [] {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit;
  }();
  const TemporaryFile folder_;
  std::vector<UniqueFd> taken_;
  EventLoop loop_;
  std::optional<Keeper> keeper_;
  std::optional<Acceptor> acceptor_;
};

TEST_F(AcceptorTest, AcceptsConnections) {
  Start({.at_once = 4});
  std::vector<UniqueFd> sockets;
  for (int i = 0; i < 20; ++i) {
    sockets.push_back(Socket());
    Connect(sockets.back());
  }
  EXPECT_TRUE(Eventually([&] { return keeper_->accepted == 20; }));
  EXPECT_EQ(keeper_->refused, 0);
  EXPECT_FALSE(acceptor_->is_short_of_descriptors());
}

// UndefinedBehaviorSanitizer looks at memory through a pipe, and takes every object for a broken one without it.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NORMD_SANITIZER_NEEDS_DESCRIPTORS 1
#endif
#endif

TEST_F(AcceptorTest, ClosesConnectionsForWhichNoDescriptorIsLeft) {
#ifdef NORMD_SANITIZER_NEEDS_DESCRIPTORS
  GTEST_SKIP() << "UBSan needs a descriptor of its own";
#endif
  Start({.at_once = 4});
  const UniqueFd one = Socket();
  const UniqueFd two = Socket();
  TakeAllDescriptors();
  Connect(one);
  EXPECT_TRUE(IsClosed(one));
  Connect(two);
  EXPECT_TRUE(IsClosed(two));
  EXPECT_EQ(keeper_->accepted, 0);
  EXPECT_EQ(keeper_->refused, 2);
  EXPECT_TRUE(acceptor_->is_short_of_descriptors());
  taken_.clear();
  const UniqueFd three = Socket();
  Connect(three);
  EXPECT_TRUE(Eventually([&] { return keeper_->accepted == 1; }));
}

TEST_F(AcceptorTest, WithoutDescriptorsServesWithTheSpareOneAndClosesTheOldest) {
#ifdef NORMD_SANITIZER_NEEDS_DESCRIPTORS
  GTEST_SKIP() << "UBSan needs a descriptor of its own";
#endif
  Start({.at_once = 1, .serves_last = true}, /*makes_room=*/true);
  const UniqueFd one = Socket();
  const UniqueFd two = Socket();
  TakeAllDescriptors();
  Connect(one);
  EXPECT_TRUE(Eventually([&] { return keeper_->accepted == 1; })) << "in the place of the spare one";
  Connect(two);
  EXPECT_TRUE(Eventually([&] { return keeper_->accepted == 2; })) << "in the place of the first";
  EXPECT_TRUE(IsClosed(one));
  EXPECT_EQ(keeper_->refused, 0);
}

TEST_F(AcceptorTest, WaitsWhereThereIsNoRoomToMake) {
#ifdef NORMD_SANITIZER_NEEDS_DESCRIPTORS
  GTEST_SKIP() << "UBSan needs a descriptor of its own";
#endif
  Start({.at_once = 1, .serves_last = true});
  const UniqueFd one = Socket();
  const UniqueFd two = Socket();
  TakeAllDescriptors();
  Connect(one);
  EXPECT_TRUE(Eventually([&] { return keeper_->accepted == 1; }));
  Connect(two);
  EXPECT_TRUE(Eventually([&] { return acceptor_->is_short_of_descriptors(); }));
  EXPECT_EQ(keeper_->accepted, 1);
  taken_.clear();
  EXPECT_TRUE(Eventually([&] { return keeper_->accepted == 2; })) << "once a descriptor is free";
}

}  // namespace
}  // namespace normd::net
