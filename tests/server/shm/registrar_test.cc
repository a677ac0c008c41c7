#include "server/shm/registrar.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "proto/wire/shm_registration.h"
#include "tests/server/shm/fixtures.h"

namespace normd {
namespace {

using ::testing::HasSubstr;
using wire::ShmReply;
using wire::ShmRequest;

constexpr int32_t kOk = 0, kInvalidArgument = 3, kNotFound = 5, kPermissionDenied = 7, kResourceExhausted = 8;
constexpr int32_t kClosed = -1;  // no reply, but the end of the connection

// The other end of a connection, well-behaved or not.
class Peer {
 public:
  explicit Peer(const std::string& path) : socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    connected_ = connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    const timeval limit{.tv_sec = 20, .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }

  bool connected() const { return connected_; }
  int socket_fd() const { return socket_.get(); }

  bool SendBytes(std::string_view bytes, const std::vector<int>& descriptors = {}, int flags = 0) const {
    iovec data{const_cast<char*>(bytes.data()), bytes.size()};
    std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* const part = CMSG_FIRSTHDR(&message);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size() * sizeof(int));
    }
    return sendmsg(socket_.get(), &message, MSG_NOSIGNAL | flags) == static_cast<ssize_t>(bytes.size());
  }

  ShmReply Receive() const {
    ShmReply reply;
    const ssize_t got = recv(socket_.get(), &reply, sizeof(reply), 0);
    if (got == sizeof(reply)) return reply;
    reply.code = got == 0 || errno == ECONNRESET ? kClosed : -2;
    return reply;
  }

  ShmReply Ask(const ShmRequest& request, const std::vector<int>& descriptors = {}) const {
    // The server may have closed the connection already: one too many is refused before it asks.
    if (!SendBytes({reinterpret_cast<const char*>(&request), sizeof(request)}, descriptors)) {
      ShmReply closed;
      closed.code = kClosed;
      return closed;
    }
    return Receive();
  }

  ShmReply Register(int descriptor, uint64_t size_bytes) const {
    return Ask({.operation = wire::kShmRegister, .size_bytes = size_bytes}, {descriptor});
  }

  ShmReply Unregister(std::string_view region) const {
    ShmRequest request{.operation = wire::kShmUnregister};
    wire::PutShmText(region, request.region);
    return Ask(request);
  }

 private:
  UniqueFd socket_;
  bool connected_ = false;
};

class RegistrarTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/normd-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    options_.socket_path = folder_ + "/normd.sock.shm";
    options_.max_connections = 8;
    descriptors_before_ = CountDescriptors();
  }
  void TearDown() override {
    registrar_.reset();
    EXPECT_EQ(CountDescriptors(), descriptors_before_);
    EXPECT_EQ(table_.stats().regions, 0);
    EXPECT_EQ(rmdir(folder_.c_str()), 0) << "the socket is still there";
  }

  void Start() {
    absl::StatusOr<std::unique_ptr<Registrar>> registrar = Registrar::Start(options_, &table_);
    ASSERT_TRUE(registrar.ok()) << registrar.status();
    registrar_ = *std::move(registrar);
  }

  Peer Connect() const { return Peer(options_.socket_path); }

  // Waits, for at most 20 s, until `holds`.
  static bool Eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 4000; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  std::string folder_;
  RegistrarOptions options_;
  RegionTable table_{RegionLimits()};
  std::unique_ptr<Registrar> registrar_;
  int64_t descriptors_before_ = 0;
};

TEST_F(RegistrarTest, RegistersAndUnregistersAnObject) {
  Start();
  const UniqueFd memory = MakeSealedMemory(2 * kPage);
  const Peer peer = Connect();
  const ShmReply reply = peer.Register(memory.get(), 2 * kPage);
  ASSERT_EQ(reply.code, kOk) << reply.message;
  const std::string name = wire::GetShmText(reply.region);
  {
    const absl::StatusOr<RegionRange> range = table_.Acquire(/*tenant=*/"", name, kPage, 1);
    ASSERT_TRUE(range.ok());
    ASSERT_EQ(pwrite(memory.get(), "x", 1, kPage), 1);
    EXPECT_EQ(Load(range->data), 'x');
  }
  EXPECT_EQ(peer.Unregister(name).code, kOk);
  EXPECT_FALSE(table_.Acquire(/*tenant=*/"", name, 0, 1).ok());
  EXPECT_EQ(peer.Unregister(name).code, kNotFound);
}

TEST_F(RegistrarTest, ARegionIsOfTheTenantOfItsUser) {
  options_.hooks.tenant_of = [](uid_t uid) { return uid == geteuid() ? "vision" : "nobody"; };
  Start();
  const UniqueFd memory = MakeSealedMemory(kPage);
  const Peer peer = Connect();
  const ShmReply reply = peer.Register(memory.get(), kPage);
  ASSERT_EQ(reply.code, kOk) << reply.message;
  const std::string name = wire::GetShmText(reply.region);
  EXPECT_TRUE(table_.Acquire("vision", name, 0, 1).ok());
  EXPECT_FALSE(table_.Acquire(/*tenant=*/"", name, 0, 1).ok());
  EXPECT_EQ(peer.Unregister(name).code, kOk);
}

TEST_F(RegistrarTest, MakesASocketThatOnlyItsUserCanReach) {
  Start();
  struct stat info {};
  ASSERT_EQ(stat(options_.socket_path.c_str(), &info), 0);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(RegistrarTest, RefusesOtherUsers) {
  options_.allowed_uids = {geteuid() + 1};
  Start();
  const Peer peer = Connect();
  EXPECT_EQ(peer.Receive().code, kPermissionDenied);
  EXPECT_EQ(peer.Receive().code, kClosed);
}

TEST_F(RegistrarTest, DropsTheRegionsOfAClientThatIsGone) {
  Start();
  const UniqueFd memory = MakeSealedMemory(kPage);
  const Peer other = Connect();
  const std::string others = wire::GetShmText(other.Register(memory.get(), kPage).region);
  {
    const Peer peer = Connect();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(peer.Register(memory.get(), kPage).code, kOk);
    EXPECT_EQ(table_.stats().regions, 4);
  }
  EXPECT_TRUE(Eventually([&] { return table_.stats().regions == 1; }));
  EXPECT_TRUE(table_.Acquire(/*tenant=*/"", others, 0, 1).ok());
}

TEST_F(RegistrarTest, LetsNobodyUnregisterTheRegionsOfAnother) {
  Start();
  const UniqueFd memory = MakeSealedMemory(kPage);
  const Peer one = Connect(), two = Connect();
  const std::string name = wire::GetShmText(one.Register(memory.get(), kPage).region);
  const ShmReply reply = two.Unregister(name);
  EXPECT_EQ(reply.code, kNotFound);
  EXPECT_EQ(wire::GetShmText(reply.message).find(name), std::string::npos);
  EXPECT_TRUE(table_.Acquire(/*tenant=*/"", name, 0, 1).ok());
}

TEST_F(RegistrarTest, ClosesEveryDescriptorItDoesNotKeep) {
  Start();
  const UniqueFd memory = MakeSealedMemory(kPage);
  const Peer peer = Connect();
  EXPECT_EQ(peer.Register(memory.get(), kPage).code, kOk);  // the connection is there now
  const int64_t before = CountDescriptors();
  const ShmRequest request{.operation = wire::kShmRegister, .size_bytes = kPage};
  EXPECT_EQ(peer.Ask(request).code, kInvalidArgument);
  EXPECT_EQ(peer.Ask(request, {memory.get(), memory.get()}).code, kInvalidArgument);
  EXPECT_EQ(peer.Ask(request, {peer.socket_fd()}).code, kInvalidArgument);
  EXPECT_EQ(peer.Register(memory.get(), 0).code, kInvalidArgument);
  EXPECT_EQ(peer.Register(memory.get(), UINT64_MAX).code, kInvalidArgument);
  EXPECT_EQ(peer.Ask({.operation = wire::kShmUnregister}, {memory.get()}).code, kInvalidArgument);
  EXPECT_EQ(peer.Ask({.operation = 7}, {memory.get()}).code, kInvalidArgument);
  EXPECT_EQ(peer.Register(memory.get(), kPage).code, kOk);  // sealed: not kept
  EXPECT_EQ(CountDescriptors(), before);
}

TEST_F(RegistrarTest, NamesTheErrorOfARequest) {
  Start();
  const UniqueFd memory = MakeSealedMemory(kPage);
  const ShmReply reply = Connect().Register(memory.get(), kPage + 1);
  EXPECT_EQ(reply.code, kInvalidArgument);
  EXPECT_EQ(reply.operation, wire::kShmRegister);
  EXPECT_THAT(wire::GetShmText(reply.message), HasSubstr("size_bytes is 4097; it must be at most 4096"));
}

TEST_F(RegistrarTest, EndsAConnectionThatSendsNoRequests) {
  Start();
  const UniqueFd memory = MakeSealedMemory(kPage);
  const ShmRequest wrong_magic{.magic = 1, .operation = wire::kShmRegister, .size_bytes = kPage};
  const ShmRequest wrong_version{.version = 9, .operation = wire::kShmRegister, .size_bytes = kPage};
  const ShmRequest good{.operation = wire::kShmRegister, .size_bytes = kPage};
  const std::vector<std::string> packets = {
      std::string(reinterpret_cast<const char*>(&good), sizeof(good)) + "x",
      "x",
      std::string(sizeof(ShmRequest) - 1, 'x'),
      std::string(sizeof(ShmRequest) + 1, 'x'),
      std::string(4096, 'x'),
      std::string(reinterpret_cast<const char*>(&wrong_magic), sizeof(wrong_magic)),
      std::string(reinterpret_cast<const char*>(&wrong_version), sizeof(wrong_version))};
  for (const std::string& packet : packets) {
    for (const std::vector<int>& descriptors : {std::vector<int>(), std::vector<int>(1, memory.get())}) {
      const Peer peer = Connect();
      EXPECT_TRUE(peer.SendBytes(packet, descriptors));
      EXPECT_EQ(peer.Receive().code, kInvalidArgument) << packet.size();
      EXPECT_EQ(peer.Receive().code, kClosed) << packet.size();
    }
  }
  const Peer empty = Connect();
  EXPECT_TRUE(empty.SendBytes("", {memory.get()}));
  EXPECT_EQ(empty.Receive().code, kClosed);
}

TEST_F(RegistrarTest, ClosesMoreDescriptorsThanItHasRoomFor) {
  Start();
  const UniqueFd memory = MakeSealedMemory(kPage);
  const ShmRequest request{.operation = wire::kShmRegister, .size_bytes = kPage};
  const Peer peer = Connect();
  EXPECT_EQ(peer.Ask(request, std::vector<int>(200, memory.get())).code, kInvalidArgument);
  EXPECT_EQ(peer.Receive().code, kClosed);
}

TEST_F(RegistrarTest, BoundsItsConnectionsAndTakesNewOnesWhenSomeClose) {
  options_.max_connections = 2;
  Start();
  const UniqueFd memory = MakeSealedMemory(kPage);
  const Peer one = Connect();
  EXPECT_EQ(one.Register(memory.get(), kPage).code, kOk);
  {
    const Peer two = Connect();
    EXPECT_EQ(two.Register(memory.get(), kPage).code, kOk);
    const Peer three = Connect();
    EXPECT_EQ(three.Receive().code, kResourceExhausted);
    EXPECT_EQ(three.Receive().code, kClosed);
  }
  EXPECT_TRUE(Eventually([&] { return Connect().Register(memory.get(), kPage).code == kOk; }));
}

TEST_F(RegistrarTest, ConnectionsWithoutARegionKeepNobodyOut) {
  options_.max_connections = 3;
  Start();
  const UniqueFd memory = MakeSealedMemory(kPage);
  const Peer useful = Connect();
  EXPECT_EQ(useful.Register(memory.get(), kPage).code, kOk);
  const Peer done = Connect();
  EXPECT_EQ(done.Unregister(done.Register(memory.get(), kPage).region).code, kOk);
  const Peer silent = Connect();
  const Peer next = Connect();
  EXPECT_EQ(next.Register(memory.get(), kPage).code, kOk);
  EXPECT_EQ(done.Receive().code, kClosed) << "the oldest one";
  const Peer last = Connect();
  EXPECT_EQ(last.Register(memory.get(), kPage).code, kOk);
  EXPECT_EQ(silent.Receive().code, kClosed);
  EXPECT_EQ(Connect().Receive().code, kResourceExhausted) << "all have regions";
  EXPECT_EQ(useful.Register(memory.get(), kPage).code, kOk) << "it had a region";
}

TEST_F(RegistrarTest, IsNotHeldUpByAClientThatFloodsAndDoesNotRead) {
  Start();
  const UniqueFd memory = MakeSealedMemory(kPage);
  const Peer flood = Connect();
  const ShmRequest bad{.operation = 7};
  const std::string packet(reinterpret_cast<const char*>(&bad), sizeof(bad));
  std::atomic<bool> done = false;
  std::thread flooder([&] {
    while (!done) flood.SendBytes(packet, {memory.get()}, MSG_DONTWAIT);
  });
  for (int i = 0; i < 50; ++i) {
    const Peer peer = Connect();
    EXPECT_EQ(peer.Register(memory.get(), kPage).code, kOk);
  }
  done = true;
  flooder.join();
}

TEST_F(RegistrarTest, GoesOnWhenTheProcessHasNoDescriptorsLeft) {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  GTEST_SKIP() << "UBSan looks at memory through a pipe: without descriptors it takes every object for a broken one";
#endif
#endif
  Start();
  const UniqueFd memory = MakeSealedMemory(kPage);
  const Peer before = Connect();
  EXPECT_EQ(before.Register(memory.get(), kPage).code, kOk);
  std::vector<UniqueFd> fillers;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit low = limit;
  low.rlim_cur = static_cast<rlim_t>(CountDescriptors()) + 8;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  while (fillers.empty() || fillers.back().valid()) fillers.push_back(Duplicate(memory));
  fillers.pop_back();
  fillers.pop_back();  // one is left, for the peer's socket
  {
    const Peer late = Connect();
    EXPECT_TRUE(late.connected());
    EXPECT_EQ(before.Register(memory.get(), kPage).code, kInvalidArgument);  // its descriptor could not arrive
    fillers.clear();
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(Connect().Register(memory.get(), kPage).code, kOk);
}

TEST_F(RegistrarTest, StopsWithConnectionsOpenAndRegionsInUse) {
  Start();
  const UniqueFd memory = MakeSealedMemory(kPage);
  const Peer peer = Connect(), idle = Connect();
  const std::string name = wire::GetShmText(peer.Register(memory.get(), kPage).region);
  const RegionRange range = *table_.Acquire(/*tenant=*/"", name, 0, kPage);
  registrar_->Stop();
  registrar_->Stop();
  EXPECT_EQ(peer.Receive().code, kClosed);
  EXPECT_FALSE(Connect().connected());
  EXPECT_FALSE(table_.Acquire(/*tenant=*/"", name, 0, 1).ok());
  range.data[0] = std::byte{1};
}

TEST_F(RegistrarTest, CanBeStartedAgainAtTheSamePlace) {
  Start();
  EXPECT_EQ(Registrar::Start(options_, &table_).status().code(), absl::StatusCode::kUnavailable);
  registrar_.reset();
  Start();
  EXPECT_TRUE(Connect().connected());
}

TEST_F(RegistrarTest, RefusesSocketPathsThatCannotBeBound) {
  for (const std::string& path : {std::string(), std::string(200, 'x')}) {
    options_.socket_path = path;
    EXPECT_EQ(Registrar::Start(options_, &table_).status().code(), absl::StatusCode::kInvalidArgument);
  }
  options_.socket_path = folder_ + "/none/normd.sock.shm";
  EXPECT_EQ(Registrar::Start(options_, &table_).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RegistrarTest, ServesManyClientsThatComeAndGo) {
  options_.max_connections = 64;
  Start();
  std::vector<std::thread> clients;
  for (int thread = 0; thread < 4; ++thread) {
    clients.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const UniqueFd memory = MakeMemory(kPage);
        const Peer peer = Connect();
        const ShmReply reply = peer.Register(memory.get(), kPage);
        ASSERT_EQ(reply.code, kOk) << reply.message;
        const absl::StatusOr<RegionRange> range =
            table_.Acquire(/*tenant=*/"", wire::GetShmText(reply.region), 0, kPage);
        ASSERT_TRUE(range.ok()) << range.status();
        EXPECT_EQ(ftruncate(memory.get(), i % 2 == 0 ? 0 : kPage), 0);
        EXPECT_EQ(Load(range->data), 0);
        EXPECT_EQ(range->truncated(), i % 2 == 0);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(Eventually([&] { return table_.stats().regions == 0; }));
}

TEST_F(RegistrarTest, AHookMayRefuseRegistrationsAndHearsOfEach) {
  bool allowed = false;
  std::vector<absl::StatusCode> heard;
  options_.hooks.may_register = [&allowed](uid_t uid) {
    EXPECT_EQ(uid, geteuid());
    return allowed ? absl::OkStatus() : absl::PermissionDeniedError("by the policy");
  };
  options_.hooks.on_registration = [&heard](uid_t uid, const absl::Status& status) {
    EXPECT_EQ(uid, geteuid());
    heard.push_back(status.code());
  };
  Start();
  const Peer peer = Connect();
  const UniqueFd memory = MakeMemory(kPage);
  const ShmReply refused = peer.Register(memory.get(), kPage);
  EXPECT_EQ(refused.code, kPermissionDenied);
  EXPECT_EQ(table_.stats().regions, 0);
  allowed = true;
  EXPECT_EQ(peer.Register(memory.get(), kPage).code, kOk);
  EXPECT_EQ(table_.stats().regions, 1);
  registrar_.reset();
  EXPECT_EQ(heard, (std::vector<absl::StatusCode>{absl::StatusCode::kPermissionDenied, absl::StatusCode::kOk}));
}

}  // namespace
}  // namespace normd
