// The table's rows of what is not HTTP/2: HTTP/1 to the admin port, and registrations of shared memory, against a whole
// normd.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <string_view>

#include "proto/wire/shm_registration.h"
#include "server/shm/registrar.h"
#include "tests/amplification/cost_meter.h"
#include "tests/amplification/normd_fixture.h"
#include "tests/amplification/row_fixture.h"
#include "tests/amplification/wire.h"

namespace normd {
namespace {

using wire_bytes::Repeated;

class AmplificationLocalTable : public testing::Test {
 protected:
  void ExpectHttp(const std::string& name, const std::string& request, int times = 20) {
    ExpectWithinBound("HTTP/1: " + name,
                      {.bytes = static_cast<double>(times) * static_cast<double>(request.size()),
                       .pages = static_cast<double>(times)},
                      [&] {
                        const CostMeter meter;
                        for (int i = 0; i < times; ++i) Exchange(request);
                        return meter.Read();
                      });
  }
  void Exchange(const std::string& request) const {
    const UniqueFd fd = ConnectToPort(normd_.admin_port());
    SendWhole(fd, request);
    static char answer[64 << 10];
    while (recv(fd.get(), answer, sizeof(answer), 0) > 0) {
    }
  }

  WholeNormd normd_;
};

TEST_F(AmplificationLocalTable, PagesCostWhatTheyMay) {
  for (const std::string path : {"/healthz", "/readyz", "/metrics", "/", "/statusz", "/none"}) {
    ExpectHttp("GET " + path, "GET " + path + " HTTP/1.0\r\n\r\n");
  }
  ExpectHttp("HEAD /metrics", "HEAD /metrics HTTP/1.0\r\n\r\n");
  ExpectHttp("POST", "POST / HTTP/1.1\r\n\r\n");
  ExpectHttp("GET, 100 requests in one", Repeated("GET /metrics HTTP/1.1\r\n\r\n", 100));
  ExpectHttp("a head of 8 KB", "GET /healthz HTTP/1.1\r\n" + Repeated("a: b\r\n", 1'300) + "\r\n");
  ExpectHttp("a head of 1 MB", "GET /healthz HTTP/1.1\r\n" + Repeated("a: b\r\n", 170'000) + "\r\n");
  ExpectHttp("HTTP/2", std::string(rpc::http2::kMagic));
}

TEST_F(AmplificationLocalTable, PagesThatComeByteByByteCostWhatTheyMay) {
  const std::string request = "GET /healthz HTTP/1.1\r\n" + Repeated("a: b\r\n", 300) + "\r\n";
  ExpectWithinBound(
      "HTTP/1: a byte a packet",
      {.bytes = static_cast<double>(request.size()), .frames = static_cast<double>(request.size()), .pages = 1}, [&] {
        const CostMeter meter;
        const UniqueFd fd = ConnectToPort(normd_.admin_port());
        for (const char byte : request) SendWhole(fd, {&byte, 1});
        char answer[1024];
        while (recv(fd.get(), answer, sizeof(answer), 0) > 0) {
        }
        return meter.Read();
      });
}

// ---- Shared memory ----

std::string BytesOf(const wire::ShmRequest& request) {
  return {reinterpret_cast<const char*>(&request), sizeof(request)};
}

// Sends a packet with `descriptor`, if that is one, and waits for the answer.
wire::ShmReply Ask(const UniqueFd& fd, std::string_view packet, int descriptor) {
  iovec data = {const_cast<char*>(packet.data()), packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &descriptor, sizeof(int));
  }
  wire::ShmReply reply;
  if (sendmsg(fd.get(), &message, MSG_NOSIGNAL) > 0) recv(fd.get(), &reply, sizeof(reply), 0);
  return reply;
}

TEST_F(AmplificationLocalTable, RegistrationsCostWhatTheyMay) {
  constexpr int kTimes = 100;
  const UniqueFd memory(memfd_create("normd-cost", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(memory.get(), int64_t{1} << 30), 0);
  const auto expect = [&](const std::string& name, const std::string& packet, int descriptor) {
    ExpectWithinBound("shared memory: " + name,
                      {.bytes = static_cast<double>(kTimes) * static_cast<double>(packet.size()), .requests = kTimes},
                      [&] {
                        const CostMeter meter;
                        // Each packet on a connection of its own, which ends the region, too.
                        for (int i = 0; i < kTimes; ++i) {
                          Ask(ConnectToPath(RegistrarPath(normd_.unix_path()), SOCK_SEQPACKET), packet, descriptor);
                        }
                        return meter.Read();
                      });
  };
  expect("register 4 KiB", BytesOf({.operation = wire::kShmRegister, .size_bytes = 4096}), memory.get());
  expect("register 1 GiB", BytesOf({.operation = wire::kShmRegister, .size_bytes = 1 << 30}), memory.get());
  expect("register more than there is", BytesOf({.operation = wire::kShmRegister, .size_bytes = uint64_t{1} << 62}),
         memory.get());
  expect("register nothing", BytesOf({.operation = wire::kShmRegister, .size_bytes = 4096}), -1);
  expect("unregister what is not there", BytesOf({.operation = wire::kShmUnregister}), -1);
  expect("no request", "x", -1);
  expect("a packet of 64 KB", std::string(64'000, 'x'), -1);
}

}  // namespace
}  // namespace normd
