#include "client/cpp/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/wire/shm_registration.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older headers lack it
#endif

namespace normd::client {
namespace {

using wire::ShmReply;
using wire::ShmRequest;

// Closes a descriptor unless it is released.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Unmaps unless it is released.
struct Mapping {
  std::byte* data = nullptr;
  int64_t size_bytes = 0;
  ~Mapping() {
    if (data != nullptr) munmap(data, static_cast<size_t>(size_bytes));
  }
};

absl::Status SystemError(absl::StatusCode code, absl::string_view what) {
  return absl::Status(code, absl::StrCat("shared memory: ", what, ": ", std::generic_category().message(errno)));
}

absl::StatusOr<sockaddr_un> RegistrarAddress(absl::string_view target) {
  constexpr absl::string_view kScheme = "unix:";
  absl::string_view path = target;
  const bool is_unix = path.substr(0, kScheme.size()) == kScheme;
  if (is_unix) path.remove_prefix(kScheme.size());
  if (path.substr(0, 3) == "///") path.remove_prefix(2);  // gRPC's other form, unix:///path
  const std::string full = absl::StrCat(path, absl::string_view(wire::kShmSocketSuffix.data(),  //
                                                                wire::kShmSocketSuffix.size()));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (!is_unix || path.empty() || full.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("target is ", target.empty() ? "empty" : target, "; it must be unix:/path, of at most ",
                     sizeof(address.sun_path) - 1 - wire::kShmSocketSuffix.size(), " bytes of path"));
  }
  std::memcpy(address.sun_path, full.c_str(), full.size() + 1);
  return address;
}

// Takes the object's pages now, in one call if the system supports it.
absl::Status Populate(const Mapping& mapping, int64_t page_bytes) {
  const size_t size_bytes = static_cast<size_t>(mapping.size_bytes);
  // Has an effect only where the machine allows huge pages for shared memory.
  madvise(mapping.data, size_bytes, MADV_HUGEPAGE);
  if (madvise(mapping.data, size_bytes, MADV_POPULATE_WRITE) == 0) return absl::OkStatus();
  if (errno != EINVAL) {
    return SystemError(absl::StatusCode::kResourceExhausted, absl::StrCat("no memory for ", size_bytes, " bytes"));
  }
  volatile std::byte* const bytes = mapping.data;
  for (int64_t at = 0; at < mapping.size_bytes; at += page_bytes) bytes[at] = std::byte{0};
  return absl::OkStatus();
}

// Makes an object of `size_bytes`, sealed so that the server need not fear that it shrinks.
absl::StatusOr<int> MakeObject(int64_t size_bytes) {
  Descriptor object(memfd_create("normd-region", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (object.get() < 0) return SystemError(absl::StatusCode::kResourceExhausted, "cannot make an object");
  if (ftruncate(object.get(), size_bytes) != 0) {
    return SystemError(absl::StatusCode::kResourceExhausted, absl::StrCat("no object of ", size_bytes, " bytes"));
  }
  if (fcntl(object.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return SystemError(absl::StatusCode::kInternal, "cannot seal the object");
  }
  return object.release();
}

absl::Status Map(int object, Mapping* mapping) {
  const size_t size_bytes = static_cast<size_t>(mapping->size_bytes);
  void* const data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, object, 0);
  if (data == MAP_FAILED) return SystemError(absl::StatusCode::kResourceExhausted, "cannot map the object");
  mapping->data = static_cast<std::byte*>(data);
  return absl::OkStatus();
}

absl::StatusOr<int> ConnectTo(const sockaddr_un& address, absl::Duration timeout) {
  Descriptor connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (connection.get() < 0) return SystemError(absl::StatusCode::kUnavailable, "cannot make a socket");
  // SO_SNDTIMEO also bounds connect(). A timeout of zero would mean no limit.
  const timeval limit = absl::ToTimeval(std::max(timeout, absl::Milliseconds(1)));
  setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  int result = 0;
  do {
    result = connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return connection.release();
  const bool denied = errno == EACCES || errno == EPERM;
  return SystemError(denied ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kUnavailable,
                     "the server takes no registrations");
}

// Returns false and sets errno if the packet was not sent.
bool SendRegister(int connection, int object, int64_t size_bytes) {
  ShmRequest request;
  request.operation = wire::kShmRegister;
  request.size_bytes = static_cast<uint64_t>(size_bytes);
  iovec data{&request, sizeof(request)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(part), &object, sizeof(object));
  ssize_t sent = 0;
  do {
    sent = sendmsg(connection, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof(request));
}

absl::StatusOr<ShmReply> ReceiveReply(int connection) {
  ShmReply reply;
  ssize_t got = 0;
  // A server that refuses the connection may have closed it while the request was on its way. That error is reported
  // once; the server's reason can be read after it.
  bool was_reset = false;
  while (true) {
    got = recv(connection, &reply, sizeof(reply), MSG_TRUNC);
    if (got >= 0 || (errno != EINTR && (errno != ECONNRESET || was_reset))) break;
    was_reset = errno == ECONNRESET;
  }
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    return absl::UnavailableError("shared memory: the server did not answer in time");
  }
  if (got < 0) return SystemError(absl::StatusCode::kUnavailable, "the server did not answer");
  if (got == 0) return absl::UnavailableError("shared memory: the server closed the connection");
  if (got != sizeof(reply) || reply.magic != wire::kShmMagic || reply.version != wire::kShmVersion) {
    return absl::InternalError("shared memory: the reply is not one of a normd server of this version");
  }
  return reply;
}

// Returns the name that the server gave.
absl::StatusOr<std::string> Register(int connection, int object, int64_t size_bytes) {
  const bool sent = SendRegister(connection, object, size_bytes);
  if (!sent && errno != EPIPE && errno != ECONNRESET) {
    return SystemError(absl::StatusCode::kUnavailable, "the registration could not be sent");
  }
  absl::StatusOr<ShmReply> reply = ReceiveReply(connection);  // after a refusal: the reason
  if (!reply.ok()) return reply.status();
  if (reply->code != 0) {
    return absl::Status(static_cast<absl::StatusCode>(reply->code), wire::GetShmText(reply->message));
  }
  std::string name = wire::GetShmText(reply->region);
  if (!sent || name.empty()) return absl::InternalError("shared memory: the server registered nothing");
  return name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedRegion>> SharedRegion::Create(const std::string& unix_target, int64_t size_bytes,
                                                                   absl::Duration timeout) {
  const absl::StatusOr<sockaddr_un> address = RegistrarAddress(unix_target);
  if (!address.ok()) return address.status();
  constexpr int64_t kMaxBytes = int64_t{1} << 40;
  if (size_bytes < 1 || size_bytes > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat("size_bytes is ", size_bytes, "; it must be 1 to ", kMaxBytes));
  }
  // Connects before taking memory, which would be wasted without a server.
  absl::StatusOr<int> connected = ConnectTo(*address, timeout);
  if (!connected.ok()) return connected.status();
  Descriptor connection(*connected);
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  Mapping mapping{nullptr, (size_bytes + page_bytes - 1) / page_bytes * page_bytes};
  absl::StatusOr<int> made = MakeObject(mapping.size_bytes);
  if (!made.ok()) return made.status();
  const Descriptor object(*made);
  if (const absl::Status mapped = Map(object.get(), &mapping); !mapped.ok()) return mapped;
  // Populates before the server is asked, so that the server maps pages that already exist.
  if (const absl::Status populated = Populate(mapping, page_bytes); !populated.ok()) return populated;
  absl::StatusOr<std::string> name = Register(connection.get(), object.get(), mapping.size_bytes);
  if (!name.ok()) return name.status();
  return std::unique_ptr<SharedRegion>(new SharedRegion(*std::move(name), std::exchange(mapping.data, nullptr),
                                                        mapping.size_bytes, connection.release()));
}

bool SharedRegion::registered() const {
  char byte = 0;
  const ssize_t got = recv(connection_, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

SharedRegion::~SharedRegion() {
  close(connection_);
  munmap(data_, static_cast<size_t>(size_bytes_));
}

}  // namespace normd::client
