#include "server/rpc/edge/live_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/server/rpc/edge/silent_call.h"

namespace normd::rpc {
namespace {

std::shared_ptr<RpcCall> MakeCall(const CallHost& host) {
  return SilentCall::Make(host, std::make_shared<Connection>(Connection::Facts()), SilentCall::Reads::kEnd);
}

// Whoever looks at the calls reads members of each: memory that was used before must not be taken for a call.
// The sanitizers see it best.
TEST(LiveCallsTest, ACallIsFoundOnlyWhenItIsWhole) {
  LiveCalls live;
  ConnectionTable connections({.max_connections = 1, .max_per_address = 1});
  const CallHost host = {.live = &live, .connections = &connections};
  std::atomic<bool> ending = false;
  std::atomic<int> found = 0;
  std::thread looker([&] {
    while (!ending) {
      found += static_cast<int>(live.Collect([](const RpcCall& s) { return s.in_progress() || s.cancelled(); }).size());
    }
  });
  for (int i = 0; i < 20'000; ++i) MakeCall(host);
  ending = true;
  looker.join();
  EXPECT_EQ(found, 0);
  live.WaitForNone();
}

TEST(LiveCallsTest, FindsTheStreamsThatAreWanted) {
  LiveCalls live;
  ConnectionTable connections({.max_connections = 1, .max_per_address = 1});
  const std::shared_ptr<RpcCall> stream = MakeCall({.live = &live, .connections = &connections});
  EXPECT_EQ(live.Collect([](const RpcCall&) { return true; }).size(), 1U);
  EXPECT_TRUE(live.Collect([](const RpcCall&) { return false; }).empty());
}

}  // namespace
}  // namespace normd::rpc
