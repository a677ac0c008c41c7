#include "server/engine/gate.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace normd {
namespace {

class FakeClock : public Clock {
 public:
  absl::Time Now() override { return now; }
  absl::Time now = absl::UnixEpoch();
};

// Who was started, in order: "a", or "a!" when it was refused.
class GateTest : public testing::Test {
 protected:
  void EnterOf(Gate& gate, uint64_t caller, const std::string& name) {
    gate.Enter({.start = [this, name](const absl::Status& status) { log_ += name + (status.ok() ? " " : "! "); },
                .caller = caller});
  }
  void Enter(Gate& gate, const std::string& name, bool must_run = false) {
    gate.Enter({.start = [this, name](const absl::Status& status) { log_ += name + (status.ok() ? " " : "! "); },
                .gone = [this, name] { return gone_ == name; },
                .must_run = must_run});
  }

  FakeClock clock_;
  std::string gone_;  // who went away
  std::string log_;
};

TEST_F(GateTest, LetsInAsManyAsMayRunAndTheRestInOrder) {
  Gate gate(2, absl::Seconds(1), &clock_);
  for (const char* name : {"a", "b", "c", "d"}) Enter(gate, name);
  EXPECT_EQ(log_, "a b ");
  EXPECT_EQ(gate.waiting(), 2);
  gate.Leave();
  EXPECT_EQ(log_, "a b c ");
  gate.Leave();
  EXPECT_EQ(log_, "a b c d ");
  gate.Leave();
  gate.Leave();
  Enter(gate, "e");
  EXPECT_EQ(log_, "a b c d e ");
}

TEST_F(GateTest, CallersTakeTurnsWhateverOneOfThemPilesUp) {
  Gate gate(1, absl::Seconds(1), &clock_);
  for (const char* name : {"a1", "a2", "a3", "a4"}) EnterOf(gate, 1, name);
  for (const char* name : {"b1", "b2"}) EnterOf(gate, 2, name);
  EnterOf(gate, 3, "c1");
  for (int i = 0; i < 6; ++i) gate.Leave();
  EXPECT_EQ(log_, "a1 a2 b1 c1 a3 b2 a4 ");
  EXPECT_EQ(gate.waiting(), 0);
}

TEST_F(GateTest, AFloodOfOneCallerDoesNotMakeOthersWaitTooLong) {
  Gate gate(1, absl::Milliseconds(500), &clock_);
  for (int i = 0; i < 100; ++i) EnterOf(gate, 1, "flood");
  EnterOf(gate, 2, "other");
  for (int i = 0; i < 2; ++i) {  // each computation takes 100 ms
    clock_.now += absl::Milliseconds(100);
    gate.Leave();
  }
  EXPECT_EQ(log_, "flood flood other ");
}

TEST_F(GateTest, WhoIsGoneOnEnteringTakesNoRoom) {
  Gate gate(1, absl::Seconds(1), &clock_);
  gone_ = "a";
  Enter(gate, "a");
  Enter(gate, "b");
  EXPECT_EQ(log_, "a! b ");
}

TEST_F(GateTest, RefusesWhatHasWaitedTooLong) {
  Gate gate(1, absl::Seconds(1), &clock_);
  Enter(gate, "a");
  Enter(gate, "b");
  Enter(gate, "c", /*must_run=*/true);
  clock_.now += absl::Milliseconds(900);
  Enter(gate, "d");
  clock_.now += absl::Milliseconds(200);
  gate.Leave();
  EXPECT_EQ(log_, "a b! c ");
  gate.Leave();
  EXPECT_EQ(log_, "a b! c d ");
}

TEST_F(GateTest, DropsWhoseCallerIsGone) {
  Gate gate(1, absl::Seconds(1), &clock_);
  for (const char* name : {"a", "b", "c"}) Enter(gate, name);
  gone_ = "b";
  gate.Leave();
  EXPECT_EQ(log_, "a b! c ");
}

// Each once took a level of the stack.
TEST_F(GateTest, DropsAnyNumberOfThem) {
  Gate gate(1, absl::InfiniteDuration(), &clock_);
  Enter(gate, "a");
  bool all_gone = false;
  for (int i = 0; i < 300000; ++i) {
    gate.Enter({.start = [](const absl::Status& status) { EXPECT_FALSE(status.ok()); },
                .gone = [&all_gone] { return all_gone; }});
  }
  all_gone = true;
  gate.Leave();
  Enter(gate, "c");
  EXPECT_EQ(log_, "a c ");
}

TEST_F(GateTest, SaysWhyItRefuses) {
  Gate gate(1, absl::Milliseconds(500), &clock_);
  Enter(gate, "a");
  absl::Status refused;
  gate.Enter({.start = [&](absl::Status status) { refused = std::move(status); }});
  clock_.now += absl::Seconds(2);
  gate.Leave();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_NE(refused.message().find("queue_age"), absl::string_view::npos) << refused;
  EXPECT_NE(refused.message().find("500ms"), absl::string_view::npos) << refused;
}

TEST_F(GateTest, ServesSeveralThreads) {
  SystemClock clock;
  Gate gate(2, absl::InfiniteDuration(), &clock);
  std::atomic<int> inside{0};
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        gate.Enter({.start = [&](const absl::Status& status) {
          ASSERT_TRUE(status.ok());
          EXPECT_LE(++inside, 2);
          --inside;
          ++done;
        }});
        gate.Leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 2000);
  EXPECT_EQ(gate.waiting(), 0);
}

}  // namespace
}  // namespace normd
