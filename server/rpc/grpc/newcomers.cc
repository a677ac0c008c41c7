#include "server/rpc/grpc/newcomers.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <utility>

#include "server/base/steady_time.h"
#include "server/net/timer_heap.h"
#include "server/rpc/edge/preface.h"

namespace normd::rpc {
namespace {

// The number of bytes that can be read from a socket.
size_t ReceivedBytes(int fd) {
  int bytes = 0;
  return ioctl(fd, FIONREAD, &bytes) == 0 ? static_cast<size_t>(bytes) : 0;
}

}  // namespace

class Newcomers::Newcomer final : public net::Handler {
 public:
  Newcomer(Newcomers* all, UniqueFd fd, int listener_fd, bool is_unix, ConnectionPtr connection)
      : all_(all),
        fd_(std::move(fd)),
        listener_fd_(listener_fd),
        is_unix_(is_unix),
        connection_(std::move(connection)),
        deadline_([this] { End(RefusedFor::kSetup); }) {}

  // Edge-triggered, because the bytes are only peeked at and would otherwise be reported again and again.
  bool Open(std::shared_ptr<Newcomer> self) {
    if (!all_->loop_.Add(std::move(self), fd_.get(), EPOLLIN | EPOLLRDHUP | EPOLLET)) return false;
    all_->loop_.timers().Set(&deadline_, SteadyNow() + all_->options_.setup_timeout);
    return true;
  }
  // Ends the connection, and counts why.
  void End(RefusedFor reason) {
    all_->table_->CountEnded(*connection_, reason);
    Close();
  }
  void Close() {
    all_->table_->Remove(*connection_);
    Leave();
    fd_.Close();
  }

  void OnEvents(uint32_t events) override {
    if (!fd_.valid()) return;
    const bool ended = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (!is_parting_) return Look(ended);
    Discard();
    if (ended) Close();
  }

 private:
  // Judges the bytes received so far: waits for more, ends the connection, or hands it over. `ended`: the peer sends no
  // more.
  void Look(bool ended);
  void TurnAway(Preface spoken, bool tls);
  // Reads the remaining bytes of a refused connection, up to a bound: if they stay unread, the close becomes a reset,
  // which could destroy the answer.
  void Discard();
  // Leaves the loop. The descriptor stays open.
  void Leave() {
    all_->loop_.timers().Cancel(&deadline_);
    all_->loop_.Remove(this, fd_.get());
    all_->newcomers_.erase(this);
  }

  Newcomers* const all_;
  UniqueFd fd_;
  const int listener_fd_;
  const bool is_unix_;
  const ConnectionPtr connection_;
  net::Timer deadline_;
  bool is_parting_ = false;
  int64_t discarded_bytes_ = 0;
};

void Newcomers::Newcomer::Look(bool ended) {
  char head[kPrefaceWindowBytes];
  const ssize_t got = recv(fd_.get(), head, sizeof(head), MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return End(RefusedFor::kLeft);
  const std::string_view first(head, static_cast<size_t>(got));
  const bool tls = all_->options_.tls && !is_unix_;
  const Preface spoken = tls ? JudgeClientHello(first, ReceivedBytes(fd_.get())) : JudgePreface(first);
  if (spoken == Preface::kIncomplete) {
    if (ended) End(RefusedFor::kLeft);
    return;
  }
  if (spoken != Preface::kComplete) return TurnAway(spoken, tls);
  all_->table_->CountAccepted(*connection_);
  Leave();
  all_->hand_over_(std::move(fd_), listener_fd_, is_unix_);
}

void Newcomers::Newcomer::TurnAway(Preface spoken, bool tls) {
  const Farewell farewell = FarewellTo(spoken, tls);
  if (farewell.answer.empty()) return End(farewell.reason);
  all_->table_->CountEnded(*connection_, farewell.reason);
  send(fd_.get(), farewell.answer.data(), farewell.answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  shutdown(fd_.get(), SHUT_WR);
  is_parting_ = true;
  Discard();
  all_->loop_.timers().Set(&deadline_, SteadyNow() + std::min(kFarewellTime, all_->options_.setup_timeout));
}

void Newcomers::Newcomer::Discard() {
  char bytes[4096];
  while (discarded_bytes_ < kMostDiscardedBytes) {
    const ssize_t got = recv(fd_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got <= 0) return;
    discarded_bytes_ += got;
  }
}

absl::Status Newcomers::Start() {
  absl::Status opened = loop_.Open();
  if (opened.ok()) loop_.Start();
  return opened;
}

void Newcomers::Stop() {
  loop_.Post([this] {
    stopped_ = true;
    while (!newcomers_.empty()) newcomers_.begin()->first->Close();
  });
  loop_.Stop();
}

void Newcomers::Add(UniqueFd fd, const net::ListeningSocket& listener, ConnectionPtr connection) {
  loop_.Post([this, listener_fd = listener.fd(), is_unix = listener.is_unix(), fd = std::move(fd),
              connection = std::move(connection)]() mutable {
    if (stopped_) return;
    auto newcomer = std::make_shared<Newcomer>(this, std::move(fd), listener_fd, is_unix, std::move(connection));
    if (newcomer->Open(newcomer)) {
      newcomers_.emplace(newcomer.get(), newcomer);
    } else {
      newcomer->End(RefusedFor::kDescriptors);
    }
  });
}

}  // namespace normd::rpc
