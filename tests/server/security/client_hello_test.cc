#include "server/security/client_hello.h"

#include <gtest/gtest.h>

#include <string>

namespace normd {
namespace {

TEST(ClientHelloTest, IsOneWholeRecordThatOffersHttp2) {
  const std::string hello = MakeClientHello();
  ASSERT_GT(hello.size(), 6U);
  EXPECT_EQ(hello[0], 22);
  EXPECT_EQ(hello[5], 1);
  const size_t length = static_cast<unsigned char>(hello[3]) << 8 | static_cast<unsigned char>(hello[4]);
  EXPECT_EQ(hello.size(), 5 + length);
  EXPECT_NE(hello.find("\x02h2"), std::string::npos);
  EXPECT_NE(hello, MakeClientHello()) << "its random bytes are new";
}

TEST(ClientHelloTest, AnAlertIsNoServerHello) {
  EXPECT_TRUE(IsServerHello(std::string("\x16\x03\x03\x00\x7a\x02", 6)));
  EXPECT_FALSE(IsServerHello(std::string("\x15\x03\x03\x00\x02\x02", 6)));
  EXPECT_FALSE(IsServerHello("HTTP/1"));
}

}  // namespace
}  // namespace normd
