#include "server/net/acceptor.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <cerrno>
#include <utility>

#include "server/base/steady_time.h"

namespace normd::net {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(50);
// How long one refusal counts: clients that were refused try again within a second or two.
constexpr absl::Duration kShortageTime = absl::Seconds(2);

UniqueFd SpareDescriptor() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

// Accepts when the events of all other handlers are handled, so that a connection which may be closed in favour of
// another is looked at before.
class Acceptor::Listener final : public Handler, public std::enable_shared_from_this<Acceptor::Listener> {
 public:
  Listener(Acceptor* acceptor, ListeningSocket socket) : acceptor_(acceptor), socket_(std::move(socket)) {}

  void OnEvents(uint32_t /*events*/) override {
    if (acceptor_ != nullptr) acceptor_->loop_->Activate(shared_from_this());
  }
  void Deliver() override {
    if (acceptor_ != nullptr) acceptor_->AcceptFrom(socket_);
  }
  // The loop may call once more.
  void Leave() { acceptor_ = nullptr; }
  int fd() const { return socket_.fd(); }

 private:
  Acceptor* acceptor_;
  const ListeningSocket socket_;
};

Acceptor::Acceptor(EventLoop* loop, Owner* owner, const Options& options)
    : loop_(loop), owner_(owner), options_(options), spare_(SpareDescriptor()), resume_timer_([this] { Resume(); }) {}

Acceptor::~Acceptor() = default;

absl::Status Acceptor::Open(std::vector<ListeningSocket> listeners) {
  for (ListeningSocket& socket : listeners) {
    listeners_.push_back(std::make_shared<Listener>(this, std::move(socket)));
    if (!loop_->Add(listeners_.back(), listeners_.back()->fd(), EPOLLIN)) {
      Close();
      return absl::UnavailableError("the system does not let the server wait for connections");
    }
  }
  return absl::OkStatus();
}

void Acceptor::Close() {
  loop_->timers().Cancel(&resume_timer_);
  for (const auto& listener : listeners_) {
    listener->Leave();
    loop_->Remove(listener.get(), listener->fd());
  }
  listeners_.clear();
}

void Acceptor::AcceptFrom(const ListeningSocket& listener) {
  if (!spare_.valid()) spare_ = SpareDescriptor();
  for (int i = 0; i < options_.at_once; ++i) {
    sockaddr_storage peer{};
    UniqueFd fd = AcceptOne(listener, &peer);
    if (fd.valid()) {
      owner_->OnAccepted(std::move(fd), peer, listener);
      continue;
    }
    if (errno == EMFILE || errno == ENFILE) return AcceptWithoutDescriptor(listener);
    if (errno == ENOBUFS || errno == ENOMEM) return Pause();
    // These concern one connection that is already gone; any other error ends the queue.
    if (errno != ECONNABORTED && errno != EINTR && errno != EPROTO) return;
  }
}

void Acceptor::AcceptWithoutDescriptor(const ListeningSocket& listener) {
  const bool has_spare = spare_.valid();
  spare_.Close();
  if (!has_spare && !owner_->MakeRoom()) return Pause();
  // Without a descriptor the system does not even say whether a connection waits.
  sockaddr_storage peer{};
  UniqueFd fd = AcceptOne(listener, &peer);
  if (fd.valid()) last_shortage_ns_.store(absl::ToUnixNanos(SteadyNow()), std::memory_order_relaxed);
  if (fd.valid() && options_.serves_last) {
    owner_->OnAccepted(std::move(fd), peer, listener);
  } else if (fd.valid()) {
    owner_->OnRefused();  // before its peer can tell
    fd.Close();
  }
  spare_ = SpareDescriptor();
}

UniqueFd Acceptor::AcceptOne(const ListeningSocket& listener, sockaddr_storage* peer) {
  socklen_t size = sizeof(*peer);
  return UniqueFd(accept4(listener.fd(), reinterpret_cast<sockaddr*>(peer), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

void Acceptor::Pause() {
  last_shortage_ns_.store(absl::ToUnixNanos(SteadyNow()), std::memory_order_relaxed);
  for (const auto& listener : listeners_) loop_->Change(listener.get(), listener->fd(), 0);
  loop_->timers().Set(&resume_timer_, SteadyNow() + kPause);
}

void Acceptor::Resume() {
  for (const auto& listener : listeners_) loop_->Change(listener.get(), listener->fd(), EPOLLIN);
}

bool Acceptor::is_short_of_descriptors() const {
  const int64_t last_ns = last_shortage_ns_.load(std::memory_order_relaxed);
  if (last_ns != 0 && SteadyNow() - absl::FromUnixNanos(last_ns) < kShortageTime) return true;
  return !SpareDescriptor().valid();
}

}  // namespace normd::net
