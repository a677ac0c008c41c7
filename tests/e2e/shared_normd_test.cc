// The server as main starts it, with its own registrar, table and limits.
#include <sstream>

#include "absl/strings/strip.h"
#include "server/server.h"
#include "tests/e2e/shared_server.h"

namespace normd::e2e {
namespace {

class SharedNormdTest : public testing::Test {
 protected:
  std::unique_ptr<Server> StartNormd(std::vector<std::string> args, const std::string& other_listener = "") {
    args.insert(args.end(), {"--listen=" + other_listener + target(), "--admin_listen=", "--session_store=memory"});
    return Server::Start(ParseConfig(args, {}).value(), &log_).value();
  }
  std::string target() const { return "unix:" + folder_.path() + "/s"; }
  bool RegistrarIsThere() const { return access((folder_.path() + "/s.shm").c_str(), F_OK) == 0; }

  TemporaryFolder folder_;
  std::ostringstream out_;
  SystemClock clock_;
  Log log_{{.level = LogLevel::kInfo, .out = &out_}, &clock_};
};

TEST_F(SharedNormdTest, ServesAClientThatSharesAndLeavesNothingBehind) {
  std::unique_ptr<Server> server = StartNormd({"--max_regions=3", "--max_region_bytes=1GiB"});
  const auto client = Client::Connect(target(), {.shared_memory = true}).value();
  const v1::DescribeResponse limits = client->Describe().value();
  EXPECT_EQ(limits.limits().max_regions(), 3);
  EXPECT_EQ(limits.limits().max_region_bytes(), int64_t{1} << 30);
  v1::NormalizeRequest request = LargeRequest(64);
  const v1::NormalizeResponse want = client->Normalize(request).value();
  EXPECT_EQ(client->shared_calls(), 1);
  const client::SharedBlock x = MoveToBlock(*client, request.mutable_x());
  const client::SharedBlock y = AddSharedOutput(*client, v1::OUTPUT_KIND_Y, 64 << 12, &request);
  ASSERT_TRUE(client->Normalize(request).ok());
  EXPECT_TRUE(BytesOf(y) == want.outputs(0).tensor().data());
  EXPECT_TRUE(x.registered());
  server->Drain();
  EXPECT_FALSE(x.registered()) << "dropped once the requests have finished";
  server.reset();
  EXPECT_FALSE(RegistrarIsThere());
}

TEST_F(SharedNormdTest, IsOffWhenToldAndSaysSo) {
  const std::unique_ptr<Server> server = StartNormd({"--shared_memory=off"});
  EXPECT_FALSE(RegistrarIsThere());
  const auto client = Client::Connect(target(), {.shared_memory = true}).value();
  EXPECT_TRUE(client->Normalize(LargeRequest(64)).ok());
  EXPECT_EQ(client->shared_calls(), 0);
  EXPECT_EQ(client->Describe()->limits().max_regions(), 0);
  v1::NormalizeRequest request = LargeRequest(1);
  request.mutable_x()->mutable_shared()->set_region("r");
  EXPECT_EQ(client::GetErrorInfo(client->Normalize(request).status())->field, "x.shared");
  EXPECT_NE(out_.str().find("for=off"), std::string::npos) << out_.str();
}

TEST_F(SharedNormdTest, TellsCallersOverLoopbackWhereItsUnixSocketIs) {
  const std::unique_ptr<Server> server = StartNormd({}, "127.0.0.1:0,");
  const std::string tcp(absl::StripPrefix(server->listeners().front(), "grpc="));
  const v1::DescribeResponse over_tcp = Client::Connect(tcp).value()->Describe().value();
  EXPECT_EQ("unix:" + over_tcp.unix_socket(), target());
  const v1::DescribeResponse over_unix = Client::Connect("unix:" + over_tcp.unix_socket()).value()->Describe().value();
  EXPECT_EQ(over_tcp.server_uid(), over_unix.server_uid());
  EXPECT_EQ(over_tcp.server_uid().size(), 32);
}

TEST_F(SharedNormdTest, EveryProcessHasAUidOfItsOwn) {
  const auto uid = [&] { return Client::Connect(target()).value()->Describe()->server_uid(); };
  std::unique_ptr<Server> server = StartNormd({});
  const std::string first = uid();
  server.reset();
  server = StartNormd({});
  EXPECT_NE(uid(), first);
}

TEST_F(SharedNormdTest, NamesNoSocketWhereSharedMemoryIsOff) {
  const std::unique_ptr<Server> server = StartNormd({"--shared_memory=off"});
  EXPECT_EQ(Client::Connect(target()).value()->Describe()->unix_socket(), "");
}

}  // namespace
}  // namespace normd::e2e
