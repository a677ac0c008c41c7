#include "client/cpp/target.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "client/cpp/client.h"

namespace normd::client {
namespace {

TEST(Target, IsTakenAsItIsOrWithThePortOfNormd) {
  for (const auto& [target, completed] :
       std::vector<std::pair<std::string, std::string>>{{"127.0.0.1:8001", "127.0.0.1:8001"},
                                                        {"127.0.0.1", "127.0.0.1:8001"},
                                                        {"localhost", "localhost:8001"},
                                                        {"normd.example.org", "normd.example.org:8001"},
                                                        {"host-1_x:1", "host-1_x:1"},
                                                        {"normd:65535", "normd:65535"},
                                                        {"[::1]", "[::1]:8001"},
                                                        {"[fe80::1%eth0]:9", "[fe80::1%eth0]:9"},
                                                        {"dns:///normd", "dns:///normd:8001"},
                                                        {"dns:normd:9", "dns:normd:9"},
                                                        {"dns://8.8.8.8/normd", "dns://8.8.8.8/normd:8001"},
                                                        {"ipv4:10.0.0.1,10.0.0.2:9", "ipv4:10.0.0.1:8001,10.0.0.2:9"},
                                                        {"ipv6:[::1]", "ipv6:[::1]:8001"},
                                                        {"unix:/run/normd.sock", "unix:/run/normd.sock"},
                                                        {"unix:///run/normd.sock", "unix:///run/normd.sock"},
                                                        {"unix:normd.sock", "unix:normd.sock"},
                                                        {"unix-abstract:normd", "unix-abstract:normd"},
                                                        {"xds:///normd", "xds:///normd"}}) {
    EXPECT_EQ(CompleteTarget("target", target).value_or("refused"), completed) << target;
  }
}

TEST(Target, IsRefusedWithWhatWasProbablyMeant) {
  const std::string long_path(108, 'a');
  for (const auto& [target, text] : std::vector<std::pair<std::string, std::string>>{
           {"", "target is empty; it must be host:port or unix:/path"},
           {" ", "target is blank; it must be host:port or unix:/path, without blanks"},
           {"127.0.0.1:8001 ", "target is \"127.0.0.1:8001 \"; it must be host:port or unix:/path, without blanks"},
           {"127.0.0.1: 8001", "target is \"127.0.0.1: 8001\"; it must be host:port or unix:/path, without blanks"},
           {"http://127.0.0.1:9", "target is http://127.0.0.1:9; a target has no scheme: 127.0.0.1:9"},
           {"http://normd/", "target is http://normd/; a target has no scheme: normd:8001"},
           {"https://u:p@normd:9/v1?x",
            "target is https://u:p@normd:9/v1?x; a target has no scheme: normd:9, and TLS is an option "
            "of its own"},
           {"grpc://[::1]:9", "target is grpc://[::1]:9; a target has no scheme: [::1]:9"},
           {"tcp://127.0.0.1", "target is tcp://127.0.0.1; a target has no scheme: 127.0.0.1:8001"},
           {"http://", "target is http://; a target has no scheme: 127.0.0.1:8001"},
           {"/run/n.sock", "target is /run/n.sock; a Unix socket is named with unix: before it: unix:/run/n.sock"},
           {"./n.sock", "target is ./n.sock; a Unix socket is named with unix: before it: unix:./n.sock"},
           {"n.sock", "target is n.sock; a Unix socket is named with unix: before it: unix:n.sock"},
           {"unix:", "target is unix:; it names no path; it must be unix:/path"},
           {"unix://", "target is unix://; it names no path; it must be unix:/path"},
           {"unix://run/n", "target is unix://run/n; a path stands behind one colon: unix:/run/n"},
           {"unix:" + long_path,
            "target is unix:" + long_path + "; its path has 108 bytes; a Unix socket's has at most 107"},
           {":8001", "target is :8001; it names no host; a server of this machine is 127.0.0.1:8001"},
           {"8001", "target is 8001; it names a port alone; a server of this machine is 127.0.0.1:8001"},
           {"a:0", "target is a:0; its port is 0; it must be 1 to 65535, normd's is 8001"},
           {"a:65536", "target is a:65536; its port is 65536; it must be 1 to 65535, normd's is 8001"},
           {"a:-1", "target is a:-1; its port is -1; it must be 1 to 65535, normd's is 8001"},
           {"a:http", "target is a:http; its port is http; it must be 1 to 65535, normd's is 8001"},
           {"a:", "target is a:; its port is empty; it must be 1 to 65535, normd's is 8001"},
           {"a:99999999999999999999",
            "target is a:99999999999999999999; its port is 99999999999999999999; it must be 1 to "
            "65535, normd's is 8001"},
           {"::1", "target is ::1; an IPv6 address stands in brackets: [::1]:8001"},
           {"::1:9", "target is ::1:9; an IPv6 address stands in brackets: [::1]:9"},
           {"fe80::1", "target is fe80::1; an IPv6 address stands in brackets: [fe80::1]:8001"},
           {"a:b:c", "target is a:b:c; it must be host:port or unix:/path"},
           {"[::1", "target is [::1; its bracket is not closed; write [::1]:8001"},
           {"[::1]9", "target is [::1]9; a colon and the port must follow its brackets, as in [::1]:8001"},
           {"[::1]:x", "target is [::1]:x; its port is x; it must be 1 to 65535, normd's is 8001"},
           {"[normd]:9", "target is [normd]:9; its brackets hold normd, which is no IPv6 address"},
           {"127.0.0.256:9",
            "target is 127.0.0.256:9; its host is 127.0.0.256, which is no IPv4 address: four numbers from 0 to "
            "255"},
           {"u@a:9", "target is u@a:9; a target has no user; tokens go along by an option of their own"},
           {"a:9/path", "target is a:9/path; it must be host:port or unix:/path, without a path behind the port"},
           {"a:1,b:2", "target is a:1,b:2; several addresses are given as ipv4:a:1,b:2"},
           {"dns://normd:9", "target is dns://normd:9; write dns:///normd:9"},
           {"ipv4:a:1,", "target is ipv4:a:1,; it names no host; a server of this machine is 127.0.0.1:8001"}}) {
    const absl::Status status = CompleteTarget("target", target).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << target;
    EXPECT_EQ(status.message(), text);
    EXPECT_EQ(Client::Connect(target).status(), status) << target;
  }
}

TEST(Target, WithoutAPortIsThatOfAClient) {
  EXPECT_EQ(Client::Connect("localhost").value()->target(), "localhost:8001");
}

}  // namespace
}  // namespace normd::client
