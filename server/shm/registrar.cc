#include "server/shm/registrar.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "proto/wire/shm_registration.h"
#include "server/base/error_reasons.h"

namespace normd {
namespace {

using wire::ShmReply;
using wire::ShmRequest;

// One descriptor belongs in a packet. There is room for more, so that a second one is seen; the system drops the rest.
constexpr size_t kMaxDescriptors = 4;
constexpr int kBacklog = 128;
// Pause of the thread when the process has no descriptors or memory left, because polling would spin.
constexpr int kPauseMs = 100;

struct Packet {
  ssize_t size = 0;              // as recvmsg's: 0 at the end, -1 for errno
  bool too_long = false;         // longer than a request
  bool descriptors_cut = false;  // more descriptors than fit, or than this process may have
  ShmRequest request;
  std::vector<UniqueFd> descriptors;  // all that came; closed in any case
};

Packet Receive(int socket) {
  Packet packet;
  iovec data{&packet.request, sizeof(packet.request)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> control;
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  packet.size = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (packet.size < 0) return packet;
  packet.too_long = (message.msg_flags & MSG_TRUNC) != 0;
  packet.descriptors_cut = (message.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; at + sizeof(int) <= part->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(part) + at, sizeof(descriptor));
      packet.descriptors.emplace_back(descriptor);
    }
  }
  return packet;
}

// Why the packet is no request. After such a packet nothing on the connection can be trusted.
absl::Status CheckForm(const Packet& packet) {
  if (packet.size != sizeof(ShmRequest) || packet.too_long) {
    return AmountError("packet", absl::StrCat(packet.size, packet.too_long ? " bytes and more" : " bytes"),
                       absl::StrCat(sizeof(ShmRequest), " bytes"), ServerReason("BAD_PACKET"));
  }
  if (packet.descriptors_cut) {
    return MakeError(
        ServerReason("BAD_DESCRIPTOR"),
        {.field = "descriptors", .value = "not all could be taken", .limit = "1, while this server has room for it"},
        "could not all be taken; send one, while this server has room for it");
  }
  if (packet.request.magic != wire::kShmMagic) {
    return OutOfRangeError("magic", absl::StrCat(packet.request.magic), absl::StrCat(wire::kShmMagic),
                           ServerReason("BAD_PACKET"));
  }
  if (packet.request.version != wire::kShmVersion) {
    return OutOfRangeError("version", absl::StrCat(packet.request.version), absl::StrCat(wire::kShmVersion),
                           ServerReason("BAD_VERSION"));
  }
  return absl::OkStatus();
}

ShmReply MakeReply(uint16_t operation, const absl::StatusOr<std::string>& region) {
  ShmReply reply;
  reply.operation = operation;
  reply.code = static_cast<int32_t>(region.status().code());
  wire::PutShmText(std::string(region.status().message()), reply.message);
  if (region.ok()) wire::PutShmText(*region, reply.region);
  return reply;
}

// False if the client is gone or does not read its replies: the registrar does not wait for it.
bool Send(int socket, const ShmReply& reply) {
  return send(socket, &reply, sizeof(reply), MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(reply));
}

// The user at the other end; nothing if the system does not tell.
std::optional<uid_t> UidOf(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer.uid;
}

bool IsAllowed(std::optional<uid_t> uid, const std::vector<uid_t>& allowed_uids) {
  return uid.has_value() && std::find(allowed_uids.begin(), allowed_uids.end(), *uid) != allowed_uids.end();
}

absl::Status ListenError(const std::string& path, std::string_view what) {
  return absl::UnavailableError(
      absl::StrCat(path, ": ", std::string(what), ": ", std::generic_category().message(errno)));
}

absl::StatusOr<UniqueFd> Listen(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return AmountError("socket_path", absl::StrCat(path.size(), " bytes"), "1 to 107 bytes",
                       ServerReason("PATH_TOO_LONG"));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener.valid()) return ListenError(path, "cannot make the socket for shared memory");
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return ListenError(path, "cannot bind the socket for shared memory");
  }
  // Nobody can connect before listen(), so nobody does before the mode is set.
  if (chmod(path.c_str(), 0600) != 0 || listen(listener.get(), kBacklog) != 0) {
    const absl::Status error = ListenError(path, "cannot listen on the socket for shared memory");
    unlink(path.c_str());
    return error;
  }
  return listener;
}

}  // namespace

// The part of the registrar that its thread runs.
class Registrar::Loop {
 public:
  Loop(UniqueFd listener, int wake, const RegistrarOptions& options, RegionTable* table)
      : listener_(std::move(listener)), wake_(wake), options_(options), table_(table) {}

  void Run() {
    while (Poll()) {
      if ((polled_[1].revents & POLLIN) != 0) Accept();
      ServeReady();
    }
    for (Connection& connection : connections_) Close(connection);
    connections_.clear();
    listener_.Close();
  }

 private:
  struct Connection {
    UniqueFd socket;
    std::string owner;  // for the table
    uid_t uid = 0;
    std::string tenant;  // of the user
    int regions = 0;     // registered and not unregistered
  };
  static constexpr size_t kFixed = 2;  // of polled_: wake_, listener_; connections_ follow in order

  // Waits until there is something to do; false when the thread must end.
  bool Poll() {
    polled_.assign({{wake_, POLLIN, 0}, {accept_paused_ ? -1 : listener_.get(), POLLIN, 0}});
    for (const Connection& connection : connections_) polled_.push_back({connection.socket.get(), POLLIN, 0});
    const int ready = poll(polled_.data(), polled_.size(), accept_paused_ ? kPauseMs : -1);
    accept_paused_ = false;
    if (ready < 0) {
      for (pollfd& each : polled_) each.revents = 0;
      if (errno != EINTR) poll(nullptr, 0, kPauseMs);  // no memory: tried again
    }
    return polled_[0].revents == 0;
  }

  void Accept() {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      accept_paused_ = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      return;
    }
    const std::optional<uid_t> uid = UidOf(socket.get());
    if (!IsAllowed(uid, options_.allowed_uids)) {
      Send(socket.get(), MakeReply(0, absl::PermissionDeniedError("user may not share memory with this server")));
      return;
    }
    if (connections_.size() >= static_cast<size_t>(options_.max_connections) && !CloseUseless()) {
      Send(socket.get(), MakeReply(0, absl::ResourceExhaustedError(absl::StrCat(
                                          "connections would be over the limit of ", options_.max_connections))));
      return;
    }
    std::string tenant = options_.hooks.tenant_of == nullptr ? std::string() : options_.hooks.tenant_of(*uid);
    connections_.push_back({std::move(socket), absl::StrCat("shm-connection-", ++accepted_), *uid, std::move(tenant)});
  }

  // Makes room for a new connection: closes the oldest connection without a region, for which others could not be
  // served. A client that sends its request right after connecting is not affected, because the request is served
  // before the next connection is accepted. False if every connection has a region.
  bool CloseUseless() {
    const auto useless = std::find_if(connections_.begin(), connections_.end(),
                                      [](const Connection& connection) { return connection.regions == 0; });
    if (useless == connections_.end()) return false;
    Close(*useless);  // ServeReady, which runs next, erases it
    return true;
  }

  // Serves one packet of each connection that has some, so that no connection keeps the others waiting.
  void ServeReady() {
    for (size_t i = 0; i + kFixed < polled_.size(); ++i) {  // a connection accepted just now is not in polled_ yet
      if (!connections_[i].socket.valid()) continue;
      if (polled_[i + kFixed].revents != 0 && !Serve(connections_[i])) Close(connections_[i]);
    }
    std::erase_if(connections_, [](const Connection& connection) { return !connection.socket.valid(); });
  }

  // False if the connection must be closed.
  bool Serve(Connection& connection) {
    Packet packet = Receive(connection.socket.get());
    if (packet.size < 0) return errno == EAGAIN || errno == EINTR;
    if (packet.size == 0) return false;  // closed, or an empty packet, which is no request
    const absl::Status form = CheckForm(packet);
    if (!form.ok()) {
      Send(connection.socket.get(), MakeReply(0, form));
      return false;
    }
    return Send(connection.socket.get(), MakeReply(packet.request.operation, Execute(connection, &packet)));
  }

  // Returns the name of the registered region, or an empty string for kShmUnregister.
  absl::StatusOr<std::string> Execute(Connection& connection, Packet* packet) {
    const size_t descriptors = packet->descriptors.size();
    switch (packet->request.operation) {
      case wire::kShmRegister:
        if (descriptors != 1)
          return OutOfRangeError("descriptors", absl::StrCat(descriptors), "1", ServerReason("BAD_DESCRIPTOR"));
        return Register(connection, std::move(packet->descriptors[0]), packet->request.size_bytes);
      case wire::kShmUnregister: {
        if (descriptors != 0)
          return OutOfRangeError("descriptors", absl::StrCat(descriptors), "0", ServerReason("BAD_DESCRIPTOR"));
        const absl::Status removed = table_->Remove(connection.owner, wire::GetShmText(packet->request.region));
        if (!removed.ok()) return removed;
        --connection.regions;
        return std::string();
      }
      default:
        return OutOfRangeError("operation", absl::StrCat(packet->request.operation), "1 (register) or 2 (unregister)",
                               ServerReason("BAD_OPERATION"));
    }
  }

  absl::StatusOr<std::string> Register(Connection& connection, UniqueFd descriptor, uint64_t size_bytes) {
    const RegistrarHooks& hooks = options_.hooks;
    const absl::Status may = hooks.may_register == nullptr ? absl::OkStatus() : hooks.may_register(connection.uid);
    absl::StatusOr<std::string> region =
        may.ok() ? table_->AddDescriptor({connection.owner, connection.tenant}, std::move(descriptor), size_bytes)
                 : may;
    if (hooks.on_registration != nullptr) hooks.on_registration(connection.uid, region.status());
    if (region.ok()) ++connection.regions;
    return region;
  }

  void Close(Connection& connection) {
    table_->RemoveOwner(connection.owner);
    connection.socket.Close();
  }

  UniqueFd listener_;
  const int wake_;
  const RegistrarOptions options_;
  RegionTable* const table_;
  std::vector<Connection> connections_;
  std::vector<pollfd> polled_;
  bool accept_paused_ = false;
  uint64_t accepted_ = 0;
};

static_assert(kMaxGrpcSocketPath == sizeof(sockaddr_un::sun_path) - 1 - wire::kShmSocketSuffix.size());

std::string RegistrarPath(std::string_view grpc_path) {
  return absl::StrCat(std::string(grpc_path), std::string(wire::kShmSocketSuffix));
}

absl::StatusOr<std::unique_ptr<Registrar>> Registrar::Start(const RegistrarOptions& options, RegionTable* table) {
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ListenError(options.socket_path, "cannot make an eventfd");
  absl::StatusOr<UniqueFd> listener = Listen(options.socket_path);
  if (!listener.ok()) return listener.status();
  auto loop = std::make_unique<Loop>(*std::move(listener), wake.get(), options, table);
  return std::unique_ptr<Registrar>(new Registrar(options, std::move(loop), std::move(wake)));
}

Registrar::Registrar(const RegistrarOptions& options, std::unique_ptr<Loop> loop, UniqueFd wake)
    : socket_path_(options.socket_path),
      loop_(std::move(loop)),
      wake_(std::move(wake)),
      thread_([this] { loop_->Run(); }) {}

Registrar::~Registrar() { Stop(); }

void Registrar::Stop() {
  if (!thread_.joinable()) return;
  unlink(socket_path_.c_str());
  const uint64_t once = 1;
  // The write fails only if the counter is full, and then `wake_` is readable already.
  if (write(wake_.get(), &once, sizeof(once)) < 0) errno = 0;
  thread_.join();
}

}  // namespace normd
