#include "server/admin/host_header.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace normd {
namespace {

const std::vector<std::string> kNames = {"normd", "normd.prod.svc"};

TEST(IsOwnHost, TakesAddressesLocalhostAndTheNames) {
  for (const char* host : {"localhost", "localhost:8002", "LocalHost.", "127.0.0.1", "10.1.2.3:8002", "[::1]",
                           "[2001:db8::7]:8002", "normd", "NORMD:8002", "normd.prod.svc.:8002"}) {
    EXPECT_TRUE(IsOwnHost(host, kNames)) << host;
  }
}

TEST(IsOwnHost, TakesNoNameThatSomebodyElseMayHave) {
  for (const char* host : {"", "evil.example", "evil.example:8002", "localhost.evil.example", "127.0.0.1.evil.example",
                           "normd.evil.example", "xnormd", "localhost@evil.example", "evil.example:127.0.0.1",
                           "[evil.example]", "[::1].evil.example", "::1", "1.2.3", "0x7f000001", "normd normd",
                           "localhost,evil.example", "localhost:80:80"}) {
    EXPECT_FALSE(IsOwnHost(host, kNames)) << host;
  }
  EXPECT_FALSE(IsOwnHost("normd", {}));
}

TEST(HasHostNameForm, KnowsNamesWithoutAPort) {
  EXPECT_TRUE(HasHostNameForm("normd-0.normd.prod.svc"));
  for (const std::string& name : {std::string(), std::string("a:80"), std::string("A"), std::string("a b"),
                                  std::string("*.a"), std::string(254, 'a')}) {
    EXPECT_FALSE(HasHostNameForm(name)) << name;
  }
}

}  // namespace
}  // namespace normd
