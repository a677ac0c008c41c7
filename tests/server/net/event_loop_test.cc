#include "server/net/event_loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/steady_time.h"
#include "server/base/unique_fd.h"

namespace normd::net {
namespace {

// Writes down what its loop asks of it. Removes itself when the other end is closed.
class Scribe final : public Handler {
 public:
  Scribe(EventLoop* loop, UniqueFd fd, std::string name, std::vector<std::string>* log)
      : loop_(loop), fd_(std::move(fd)), name_(std::move(name)), log_(log) {}

  void OnEvents(uint32_t /*events*/) override {
    char byte = 0;
    if (read(fd_.get(), &byte, 1) <= 0) {
      log_->push_back(name_ + " ends");
      loop_->Remove(this, fd_.get());
      return;
    }
    log_->push_back(name_ + " hears");
    loop_->Activate(self);
  }
  void Deliver() override { log_->push_back(name_ + " delivers"); }
  void Flush() override { log_->push_back(name_ + " flushes"); }
  int fd() const { return fd_.get(); }

  std::shared_ptr<Scribe> self;

 private:
  EventLoop* const loop_;
  const UniqueFd fd_;
  const std::string name_;
  std::vector<std::string>* const log_;
};

class EventLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(loop_.Open().ok());
    for (const char* name : {"one", "two"}) {
      int fds[2];
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
      peers_.emplace_back(fds[0]);
      scribes_.push_back(std::make_shared<Scribe>(&loop_, UniqueFd(fds[1]), name, &log_));
      scribes_.back()->self = scribes_.back();
      ASSERT_TRUE(loop_.Add(scribes_.back(), scribes_.back()->fd(), EPOLLIN));
    }
  }

  void TearDown() override {
    Await([this] {
      for (const auto& scribe : scribes_) {
        loop_.Remove(scribe.get(), scribe->fd());
        scribe->self.reset();
      }
    });
    loop_.Stop();
  }

  // Runs `task` on the loop, and waits until it has run.
  template <typename Task>
  void Await(Task task) {
    std::promise<void> done;
    loop_.Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

  EventLoop loop_;
  std::vector<UniqueFd> peers_;
  std::vector<std::shared_ptr<Scribe>> scribes_;
  std::vector<std::string> log_;  // of the loop's thread, while it runs
};

TEST_F(EventLoopTest, AllHandlersOfATurnDeliverBeforeAnyFlushes) {
  for (const UniqueFd& peer : peers_) ASSERT_EQ(write(peer.get(), "x", 1), 1);
  loop_.Start();
  Await([] {});
  std::vector<std::string> log;
  Await([&] { log = log_; });
  EXPECT_EQ(log, (std::vector<std::string>{"one hears", "two hears", "one delivers", "two delivers", "one flushes",
                                           "two flushes"}));
}

TEST_F(EventLoopTest, CountsItsHandlersAndLetsThemGo) {
  loop_.Start();
  EXPECT_EQ(loop_.size(), 2);
  peers_.front().Close();
  while (loop_.size() > 1) std::this_thread::yield();
  std::vector<std::string> log;
  Await([&] { log = log_; });
  EXPECT_EQ(log, std::vector<std::string>{"one ends"});
}

TEST_F(EventLoopTest, RunsTasksInTheirOrderAndItsOwnAtOnce) {
  loop_.Start();
  std::vector<int> order;
  loop_.Post([&] {
    order.push_back(1);
    loop_.Run([&] { order.push_back(2); });
    loop_.Post([&] { order.push_back(4); });
    order.push_back(3);
  });
  Await([] {});
  Await([] {});
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4}));
}

TEST_F(EventLoopTest, ATurnThatDoesNotEndShows) {
  loop_.Start();
  Await([] {});
  std::promise<void> held;
  std::promise<void> release;
  loop_.Post([&] {
    held.set_value();
    release.get_future().wait();
  });
  held.get_future().wait();
  const absl::Time begin = SteadyNow();
  while (loop_.load().turn() < absl::Milliseconds(20)) ASSERT_LT(SteadyNow() - begin, absl::Seconds(10));
  release.set_value();
  while (loop_.load().turn() != absl::ZeroDuration()) ASSERT_LT(SteadyNow() - begin, absl::Seconds(10));
}

}  // namespace
}  // namespace normd::net
