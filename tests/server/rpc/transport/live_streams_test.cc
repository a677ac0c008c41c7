#include "server/rpc/transport/live_streams.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "server/rpc/transport/stream.h"

namespace normd::rpc {
namespace {

// Whoever looks at the streams reads members of each: memory that was used before must not be taken for a stream.
// The sanitizers see it best.
TEST(LiveStreamsTest, AStreamIsFoundOnlyWhenItIsWhole) {
  LiveStreams live;
  ConnectionTable connections({.max_connections = 1, .max_per_address = 1});
  const StreamHost host = {.live = &live, .connections = &connections};
  std::atomic<bool> ending = false;
  std::atomic<int> found = 0;
  std::thread looker([&] {
    while (!ending) {
      found += static_cast<int>(live.Collect([](const Stream& s) { return s.in_progress() || s.arrived(); }).size());
    }
  });
  for (int i = 0; i < 20'000; ++i) Stream::Make(host);
  ending = true;
  looker.join();
  EXPECT_EQ(found, 0);
  live.WaitForNone();
}

TEST(LiveStreamsTest, FindsTheStreamsThatAreWanted) {
  LiveStreams live;
  ConnectionTable connections({.max_connections = 1, .max_per_address = 1});
  const std::shared_ptr<Stream> stream = Stream::Make({.live = &live, .connections = &connections});
  EXPECT_EQ(live.Collect([](const Stream&) { return true; }).size(), 1U);
  EXPECT_TRUE(live.Collect([](const Stream&) { return false; }).empty());
}

}  // namespace
}  // namespace normd::rpc
