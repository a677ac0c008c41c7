// Which targets go through the environment's HTTP proxy.
#include "proto/wire/http_proxy.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace normd::wire {
namespace {

// Sets the variables for one test, and all others that name a proxy are unset.
class HttpProxyTest : public testing::Test {
 protected:
  HttpProxyTest() { Clear(); }
  ~HttpProxyTest() override { Clear(); }

  static void Set(const char* name, const char* value) {
    setenv(name, value, 1);  // NOLINT(concurrency-mt-unsafe): no other thread reads it
  }
  static void Clear() {
    for (const char* name : {"grpc_proxy", "https_proxy", "http_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy",
                             "no_grpc_proxy", "no_proxy", "NO_PROXY"}) {
      unsetenv(name);  // NOLINT(concurrency-mt-unsafe): no other thread reads it
    }
  }
  static bool IsProxied(std::string_view target) { return HttpProxyOf(target).has_value(); }
};

TEST_F(HttpProxyTest, NeverTakesWhatIsOnThisMachine) {
  Set("http_proxy", "http://proxy:1");
  for (const char* target : {"127.0.0.1:8001",
                             "127.8.9.10:80",
                             "[::1]:8001",
                             "[0:0:0:0:0:0:0:1]:8001",
                             "[::1%lo]:8001",
                             "localhost:8001",
                             "LocalHost:8001",
                             "localhost.:8001",
                             "normd.localhost:8001",
                             "[::ffff:127.0.0.1]:8001",
                             "0.0.0.0:8001",
                             "[::]:8001",
                             "[::ffff:0.0.0.0]:1",
                             "unix:/run/normd.sock",
                             "unix:///run/normd.sock",
                             "unix-abstract:normd",
                             "dns:///localhost:8001",
                             "dns:localhost:8001",
                             "dns://8.8.8.8/localhost:8001",
                             "ipv4:127.0.0.1:8001",
                             "ipv4:///127.0.0.1:8001",
                             "ipv4:127.0.0.1:1,127.0.0.2:2",
                             "ipv6:[::1]:8001",
                             "::1",
                             "127.0.0.1",
                             "localhost"}) {
    EXPECT_FALSE(IsProxied(target)) << target;
    EXPECT_TRUE(IsLoopbackTarget(target)) << target;
  }
}

TEST_F(HttpProxyTest, TakesOtherTargets) {
  Set("http_proxy", "http://proxy:1");
  for (const char* target : {"10.0.0.1:8001", "127.example.org:8001", "localhost.example:8001", "notlocalhost:8001",
                             "[2001:db8::1]:8001", "[::ffff:10.0.0.1]:8001", "dns:///normd:8001", "128.0.0.1:1"}) {
    EXPECT_TRUE(IsProxied(target)) << target;
    EXPECT_FALSE(IsLoopbackTarget(target)) << target;
  }
  EXPECT_FALSE(IsProxied("ipv4:10.0.0.1:8001,10.0.0.2:8001")) << "a proxy is asked for one address";
  EXPECT_FALSE(IsLoopbackTarget("ipv4:127.0.0.1:8001,10.0.0.2:8001"));
}

TEST_F(HttpProxyTest, IsTheOneThatGrpcTakesAndIsShownWithoutCredentials) {
  Set("http_proxy", "http://third:3");
  Set("HTTP_PROXY", "http://nobody:1");
  EXPECT_EQ(HttpProxyOf("a:1")->variable, "http_proxy");
  Set("https_proxy", "http://second:2/");
  EXPECT_EQ(HttpProxyOf("a:1")->variable + HttpProxyOf("a:1")->address, "https_proxysecond:2");
  Set("grpc_proxy", "http://user:secret@first:1");
  EXPECT_EQ(HttpProxyOf("dns:///A.example:1")->variable, "grpc_proxy");
  EXPECT_EQ(HttpProxyOf("dns:///A.example:1")->address, "first:1");
  EXPECT_EQ(HttpProxyOf("dns:///A.example:1")->host, "a.example");
  for (const char* none : {"", "https://first:1", "socks5://first:1", "first:1"}) {
    Set("grpc_proxy", none);
    EXPECT_FALSE(IsProxied("a:1")) << none;
  }
  Clear();
  Set("all_proxy", "http://proxy:1");
  EXPECT_FALSE(IsProxied("a:1")) << "gRPC does not read it";
}

TEST_F(HttpProxyTest, NoProxyIsHonoured) {
  struct Case {
    const char* no_proxy;
    std::vector<std::string> direct, proxied;
  };
  const std::vector<Case> cases = {
      {"*", {"a.example:1", "10.0.0.1:1", "[2001:db8::1]:1"}, {}},
      {"example.org", {"example.org:1", "a.example.org:1", "EXAMPLE.org.:1"}, {"myexample.org:1", "example.org.uk:1"}},
      {".example.org", {"example.org:1", "a.example.org:1"}, {"myexample.org:1"}},
      {"*.example.org", {"a.example.org:1"}, {"example.com:1"}},
      {"a.example , b.example", {"a.example:1", "b.example:1"}, {"c.example:1"}},
      {"10.0.0.0/8,192.168.1.0/25", {"10.9.8.7:1", "192.168.1.127:1"}, {"11.0.0.1:1", "192.168.1.128:1"}},
      {"10.0.0.1", {"10.0.0.1:1", "[::ffff:10.0.0.1]:1"}, {"10.0.0.10:1", "110.0.0.1:1"}},
      {"2001:db8::/32,[2001:db9::1]", {"[2001:db8:1::2]:1", "[2001:db9::1]:8001"}, {"[2001:db9::2]:1"}},
      {"example.org:8001", {"example.org:8001"}, {"example.org:8002"}},
      {",, ,", {}, {"a.example:1"}},
      {"10.0.0.0/x,10.0.0.0/,10.0.0.0/33,/8", {}, {"10.0.0.1:1"}}};
  Set("http_proxy", "http://proxy:1");
  for (const char* variable : {"no_proxy", "NO_PROXY", "no_grpc_proxy"}) {
    for (const Case& one : cases) {
      Set(variable, one.no_proxy);
      for (const std::string& target : one.direct) EXPECT_FALSE(IsProxied(target)) << one.no_proxy << " " << target;
      for (const std::string& target : one.proxied) EXPECT_TRUE(IsProxied(target)) << one.no_proxy << " " << target;
    }
    unsetenv(variable);  // NOLINT(concurrency-mt-unsafe)
  }
}

}  // namespace
}  // namespace normd::wire
