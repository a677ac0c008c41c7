#include "server/rpc/edge/route.h"

#include <gtest/gtest.h>

namespace normd::rpc {
namespace {

TEST(Route, KnowsPeersOfThisHost) {
  for (const char* peer : {"ipv4:127.0.0.1:4711", "ipv4:127.8.0.1:4711", "ipv6:[::1]:4711", "ipv6:%5B::1%5D:4711"}) {
    EXPECT_TRUE(IsLoopback(peer)) << peer;
  }
  for (const char* peer : {"ipv4:10.0.0.1:4711", "ipv4:12.7.0.1:4711", "ipv6:[::12]:4711", "ipv6:%5B::1:2%5D:4711",
                           "ipv6:[fe80::1]:4711", "unknown", ""}) {
    EXPECT_FALSE(IsLoopback(peer)) << peer;
  }
}

}  // namespace
}  // namespace normd::rpc
