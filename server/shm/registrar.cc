#include "server/shm/registrar.h"

#include <sys/epoll.h>
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
#include "kernels/base/status_macros.h"
#include "proto/wire/shm_registration.h"
#include "server/base/error_reasons.h"
#include "server/base/unique_fd.h"
#include "server/net/acceptor.h"
#include "server/net/event_loop.h"
#include "server/net/listening_socket.h"

namespace normd {
namespace {

using wire::ShmReply;
using wire::ShmRequest;

// One descriptor belongs in a packet. There is room for more, so that a second one is seen; the system drops the rest.
constexpr size_t kMaxDescriptors = 4;
constexpr int kBacklog = 128;

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

// The user at the other end; nullopt if the system does not say.
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

// What the registrar's connections share. Listens and, on the loop's thread, accepts.
class Registrar::Host final : public net::Acceptor::Owner {
 public:
  Host(const RegistrarOptions& options, RegionTable* table)
      : options_(options), table_(table), acceptor_(&loop_, this, {.at_once = 1, .serves_last = true}) {}

  absl::Status Start();
  void Stop();

  net::EventLoop& loop() { return loop_; }
  RegionTable& table() { return *table_; }
  const RegistrarHooks& hooks() const { return options_.hooks; }
  void Close(Connection& connection);

 private:
  void OnAccepted(UniqueFd fd, const sockaddr_storage& peer, const net::ListeningSocket& listener) override;
  // Closes the oldest connection without a region, for which others could not be served. A client that sends its
  // request right after connecting is not affected, because the loop serves its request before it accepts again.
  bool MakeRoom() override;

  const RegistrarOptions options_;
  RegionTable* const table_;
  net::EventLoop loop_;
  net::Acceptor acceptor_;
  bool stopped_ = false;
  // Used by the loop's thread only.
  std::vector<std::shared_ptr<Connection>> connections_;
  uint64_t accepted_ = 0;
};

class Registrar::Connection final : public net::Handler {
 public:
  // `owner` names the connection for the table; `tenant` is that of the user.
  Connection(Host* host, UniqueFd socket, std::string owner, uid_t uid, std::string tenant)
      : host_(host), socket_(std::move(socket)), owner_(std::move(owner)), uid_(uid), tenant_(std::move(tenant)) {}

  bool Open(std::shared_ptr<Connection> self) { return host_->loop().Add(std::move(self), socket_.get(), EPOLLIN); }
  // Removes the connection's regions, and closes the descriptor at once.
  void Close() {
    host_->table().RemoveOwner(owner_);
    host_->loop().Remove(this, socket_.get());
    socket_.Close();
  }
  bool has_regions() const { return regions_ > 0; }

  // Serves one packet, so that no connection keeps the others waiting.
  void OnEvents(uint32_t /*events*/) override {
    if (socket_.valid() && !Serve()) host_->Close(*this);
  }

 private:
  // False if the connection must be closed.
  bool Serve() {
    Packet packet = Receive(socket_.get());
    if (packet.size < 0) return errno == EAGAIN || errno == EINTR;
    if (packet.size == 0) return false;  // closed, or an empty packet, which is no request
    const absl::Status form = CheckForm(packet);
    if (!form.ok()) {
      Send(socket_.get(), MakeReply(0, form));
      return false;
    }
    return Send(socket_.get(), MakeReply(packet.request.operation, Execute(&packet)));
  }

  // Returns the name of the registered region, or an empty string for kShmUnregister.
  absl::StatusOr<std::string> Execute(Packet* packet) {
    const size_t descriptors = packet->descriptors.size();
    switch (packet->request.operation) {
      case wire::kShmRegister:
        if (descriptors != 1)
          return OutOfRangeError("descriptors", absl::StrCat(descriptors), "1", ServerReason("BAD_DESCRIPTOR"));
        return Register(std::move(packet->descriptors[0]), packet->request.size_bytes);
      case wire::kShmUnregister: {
        if (descriptors != 0)
          return OutOfRangeError("descriptors", absl::StrCat(descriptors), "0", ServerReason("BAD_DESCRIPTOR"));
        NORMD_RETURN_IF_ERROR(host_->table().Remove(owner_, wire::GetShmText(packet->request.region)));
        --regions_;
        return std::string();
      }
      default:
        return OutOfRangeError("operation", absl::StrCat(packet->request.operation), "1 (register) or 2 (unregister)",
                               ServerReason("BAD_OPERATION"));
    }
  }

  absl::StatusOr<std::string> Register(UniqueFd descriptor, uint64_t size_bytes) {
    const RegistrarHooks& hooks = host_->hooks();
    const absl::Status may = hooks.may_register == nullptr ? absl::OkStatus() : hooks.may_register(uid_);
    absl::StatusOr<std::string> region =
        may.ok() ? host_->table().AddDescriptor({owner_, tenant_}, std::move(descriptor), size_bytes) : may;
    if (hooks.on_registration != nullptr) hooks.on_registration(uid_, region.status());
    if (region.ok()) ++regions_;
    return region;
  }

  Host* const host_;
  UniqueFd socket_;
  const std::string owner_;
  const uid_t uid_;
  const std::string tenant_;
  int regions_ = 0;  // registered and not unregistered
};

absl::Status Registrar::Host::Start() {
  const auto failed = [this](const absl::Status& why) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options_.socket_path, ": ", why.message()));
  };
  if (const absl::Status opened = loop_.Open(); !opened.ok()) return failed(opened);
  NORMD_ASSIGN_OR_RETURN(UniqueFd socket, Listen(options_.socket_path));
  std::vector<net::ListeningSocket> listeners;
  listeners.emplace_back(socket.Release(), /*is_unix=*/true);
  if (const absl::Status opened = acceptor_.Open(std::move(listeners)); !opened.ok()) {
    unlink(options_.socket_path.c_str());
    return failed(opened);
  }
  loop_.Start();
  return absl::OkStatus();
}

void Registrar::Host::Stop() {
  if (std::exchange(stopped_, true)) return;
  unlink(options_.socket_path.c_str());
  loop_.Post([this] {
    acceptor_.Close();
    while (!connections_.empty()) Close(*connections_.back());
  });
  loop_.Stop();
}

void Registrar::Host::OnAccepted(UniqueFd fd, const sockaddr_storage& /*peer*/,
                                 const net::ListeningSocket& /*listener*/) {
  const std::optional<uid_t> uid = UidOf(fd.get());
  if (!IsAllowed(uid, options_.allowed_uids)) {
    Send(fd.get(), MakeReply(0, absl::PermissionDeniedError("user may not share memory with this server")));
    return;
  }
  if (connections_.size() >= static_cast<size_t>(options_.max_connections) && !MakeRoom()) {
    Send(fd.get(), MakeReply(0, absl::ResourceExhaustedError(absl::StrCat("connections would be over the limit of ",
                                                                          options_.max_connections))));
    return;
  }
  std::string tenant = options_.hooks.tenant_of == nullptr ? std::string() : options_.hooks.tenant_of(*uid);
  auto connection = std::make_shared<Connection>(this, std::move(fd), absl::StrCat("shm-connection-", ++accepted_),
                                                 *uid, std::move(tenant));
  if (connection->Open(connection)) connections_.push_back(std::move(connection));
}

bool Registrar::Host::MakeRoom() {
  const auto useless = std::find_if(connections_.begin(), connections_.end(),
                                    [](const auto& connection) { return !connection->has_regions(); });
  if (useless == connections_.end()) return false;
  Close(**useless);
  return true;
}

void Registrar::Host::Close(Connection& connection) {
  connection.Close();
  // The loop keeps the connection until its turn ends.
  std::erase_if(connections_, [&connection](const auto& other) { return other.get() == &connection; });
}

static_assert(kMaxGrpcSocketPath == sizeof(sockaddr_un::sun_path) - 1 - wire::kShmSocketSuffix.size());

std::string RegistrarPath(std::string_view grpc_path) {
  return absl::StrCat(std::string(grpc_path), std::string(wire::kShmSocketSuffix));
}

absl::StatusOr<std::unique_ptr<Registrar>> Registrar::Start(const RegistrarOptions& options, RegionTable* table) {
  auto host = std::make_unique<Host>(options, table);
  NORMD_RETURN_IF_ERROR(host->Start());
  return std::unique_ptr<Registrar>(new Registrar(std::move(host)));
}

Registrar::Registrar(std::unique_ptr<Host> host) : host_(std::move(host)) {}

Registrar::~Registrar() { Stop(); }

void Registrar::Stop() { host_->Stop(); }

}  // namespace normd
