// What people read when something else than a normd listens at the target, or nobody, or a proxy stands between: from
// normctl, and from the library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "client/cli/plain_probe.h"
#include "client/cpp/client.h"
#include "client/normctl/commands.h"
#include "client/normload/normload.h"
#include "tests/client/scripted_server.h"
#include "tests/client/tls_server.h"

namespace normd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using std::string_literals::operator""s;

// Frames of HTTP/2.
const std::string kSettingsOf8Streams = "\0\0\6\4\0\0\0\0\0\0\3\0\0\0\10"s;
const std::string kPingAnswer = "\0\0\10\6\1\0\0\0\0normctl?"s;
std::string GoAway(const std::string& text) {
  const auto length = static_cast<char>(8 + text.size());
  return "\0\0"s + length + "\7\0\0\0\0\0\0\0\0\0\0\0\0\13"s + text;
}
const std::string kAlert = "\x15\3\3\0\2\2\x0a"s;  // fatal, unexpected message

struct Spoken {
  int code;
  std::string out, err;
};

Spoken Speak(int (*program)(absl::Span<const std::string>, const client::Terminal&),
             const std::vector<std::string>& arguments) {
  std::ostringstream out, err;
  const int code = program(arguments, {out, err, 100, false});
  return {code, out.str(), err.str()};
}

// The one line that normctl health prints.
std::string HealthError(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "health");
  const Spoken spoken = Speak(&client::RunNormctl, arguments);
  EXPECT_NE(spoken.code, 0);
  EXPECT_EQ(std::count(spoken.err.begin(), spoken.err.end(), '\n'), spoken.code == 2 ? 2 : 1) << spoken.err;
  return spoken.err.substr(0, spoken.err.find('\n'));
}

// The message of one call of the library, sent once.
absl::Status CallOnce(const std::string& target, client::SecurityOptions security = {}) {
  ClientOptions options;
  options.retry.max_attempts = 1;
  options.deadline = absl::Seconds(20);
  options.security = std::move(security);
  const auto client = Client::Connect(target, options);
  return client.ok() ? (*client)->Describe().status() : client.status();
}

class FirstContact : public testing::Test {
 protected:
  static void SetUpTestSuite() { certificates_ = new Certificates; }
  static void TearDownTestSuite() {
    delete certificates_;
    certificates_ = nullptr;
  }
  static std::string Ca() { return certificates_->Path("ca.crt"); }
  static client::SecurityOptions WithCa() {
    client::SecurityOptions security;
    security.ca_file = Ca();
    return security;
  }

  static Certificates* certificates_;
};

Certificates* FirstContact::certificates_ = nullptr;

TEST_F(FirstContact, TlsToAServerOfPlainTextIsNamed) {
  // As normd answers a hello of TLS: a reset without a byte, an alert, the end. Asked in plain text it speaks HTTP/2.
  const std::string answer = kSettingsOf8Streams + kPingAnswer;
  for (const ThenIt then : {ThenIt::kResets, ThenIt::kCloses}) {
    for (const std::string& first : {""s, kAlert}) {
      const ScriptedServer server(answer, first, then);
      EXPECT_THAT(HealthError({"-s", server.target(), "--ca", Ca()}),
                  HasSubstr("speaks no TLS and was called by it; leave --tls, --ca and the like out"));
      EXPECT_THAT(HealthError({"-s", server.target(), "--tls"}), HasSubstr("speaks no TLS and was called by it"));
    }
  }
  const ScriptedServer http1("HTTP/1.1 400 Bad Request\r\n\r\n", ThenIt::kCloses);
  EXPECT_THAT(HealthError({"-s", http1.target(), "--tls"}),
              HasSubstr("answers HTTP/1: that is the admin port, or another program's"));
  const ScriptedServer resets("", ThenIt::kResets);
  const absl::Status status = CallOnce(resets.target(), WithCa());
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("if it speaks no TLS, leave security's TLS options out"));
}

TEST_F(FirstContact, PlainTextToAServerOfTlsIsNamed) {
  const TokenServer tls(TlsOf(*certificates_));
  EXPECT_THAT(HealthError({"-s", tls.target()}), HasSubstr("speaks TLS and was called in plain text; add --tls"));
  const absl::Status status = CallOnce(tls.target());
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("if it speaks TLS, set security.tls or security.ca_file"));
  const ScriptedServer alert(kAlert, ThenIt::kCloses);
  EXPECT_THAT(HealthError({"-s", alert.target()}), HasSubstr("speaks TLS and was called in plain text"));
  EXPECT_THAT(HealthError({"-s", alert.target(), "--tls"}), HasSubstr("refuses to speak TLS (unexpected_message)"));
}

TEST_F(FirstContact, OtherProgramsAreNamed) {
  struct Case {
    std::string words;
    ThenIt then;
    const char* text;
  };
  for (const Case& one : std::vector<Case>{
           {"HTTP/1.1 400 Bad Request\r\n\r\n", ThenIt::kCloses,
            "answers HTTP/1: that is the admin port, or another program's; calls go to"},
           {"SSH-2.0-OpenSSH_9.2\r\n", ThenIt::kStaysSilent, "answers \"SSH-2.0-OpenSSH_9.2\", which is no HTTP/2"},
           {"-ERR unknown command\r\n", ThenIt::kCloses, "answers \"-ERR unknown command\", which is no HTTP/2"},
           {"<!DOCTYPE HTML>\n<html>", ThenIt::kCloses, "answers HTTP/1"},
           {std::string(100, '\xff'), ThenIt::kCloses,
            "answers unreadable bytes, which is no HTTP/2: another program listens there"},
           {"x", ThenIt::kCloses, "answers \"x\", which is no HTTP/2"},
           {"", ThenIt::kCloses, "closes every connection without a word; it may be at its limit of them"},
           {"", ThenIt::kResets, "closes every connection without a word; it may be at its limit of them"}}) {
    const ScriptedServer server(one.words, one.then);
    EXPECT_THAT(HealthError({"-s", server.target(), "--deadline=2s"}), HasSubstr(one.text)) << one.words;
  }
}

TEST_F(FirstContact, ASilentServerIsNamed) {
  const ScriptedServer server("", ThenIt::kStaysSilent);
  EXPECT_THAT(HealthError({"-s", server.target(), "--deadline=100ms"}),
              HasSubstr("did not answer within 100ms, and takes connections without a word; is it normd that listens"));
}

TEST_F(FirstContact, WhatAServerSaysWhenItEndsAConnectionIsShown) {
  // gRPC connects again and again until the deadline, and says no more than that it has passed.
  const ScriptedServer server(kSettingsOf8Streams + GoAway("2 of --max_connections=2 are open"), ThenIt::kCloses);
  const std::string told = server.target() + " ended the connection: 2 of --max_connections=2 are open";
  EXPECT_THAT(HealthError({"-s", server.target(), "--deadline=1s"}), HasSubstr(told));
  EXPECT_THAT(Speak(&client::RunNormload, {"-s", server.target(), "--deadline=1s"}).err, HasSubstr(told));
}

TEST_F(FirstContact, AnotherServerOfGrpcIsNamed) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  v1::Sessions::Service some;  // a server needs a service
  builder.RegisterService(&some);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const std::string target = absl::StrCat("127.0.0.1:", port);
  const Spoken describe = Speak(&client::RunNormctl, {"describe", "-s", target});
  EXPECT_EQ(describe.code, 1);
  EXPECT_THAT(describe.err, HasSubstr(target + " is another gRPC server, which does not know normd's methods"));
  const absl::Status status = CallOnce(target);
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_THAT(std::string(status.message()), StartsWith(target + " is another gRPC server"));
  server->Shutdown();
}

TEST_F(FirstContact, WhereNobodyListensTheWayOutIsNamed) {
  const absl::Status status = CallOnce("127.0.0.1:1");
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(status.message(),
            "cannot reach normd at 127.0.0.1:1 (connection refused); is it running there? start it, or name the server "
            "that Connect is to call");
  EXPECT_EQ(client::ToText(status), absl::StrCat("UNAVAILABLE: ", status.message()));
  EXPECT_THAT(std::string(CallOnce("unix:/nonexistent/n.sock").message()),
              StartsWith("cannot reach normd at unix:/nonexistent/n.sock (no such file or directory); is it"));
  const auto client = Client::Connect("127.0.0.1:1").value();
  EXPECT_THAT(std::string(client->OpenStream()->Finish().message()), StartsWith("cannot reach normd at 127.0.0.1:1 ("));
  for (const std::vector<std::string>& part : std::vector<std::vector<std::string>>{{}, {"--only", "examples"}}) {
    std::vector<std::string> arguments = {"demo", "-s", "127.0.0.1:1"};
    arguments.insert(arguments.end(), part.begin(), part.end());
    const Spoken demo = Speak(&client::RunNormctl, arguments);
    EXPECT_EQ(demo.out, "");
    EXPECT_THAT(demo.err, StartsWith("normctl demo: cannot reach normd at 127.0.0.1:1 (connection refused); is it"));
  }
}

TEST_F(FirstContact, AWrongTargetIsWrongUsageAndNamesWhereItComesFrom) {
  EXPECT_EQ(HealthError({"-s", "http://127.0.0.1:8001"}),
            "normctl health: --server is http://127.0.0.1:8001; a target has no scheme: 127.0.0.1:8001");
  EXPECT_EQ(HealthError({"--server="}), "normctl health: --server is empty; it must be host:port or unix:/path");
  const Spoken load = Speak(&client::RunNormload, {"-s", "/run/normd.sock"});
  EXPECT_EQ(load.code, 2);
  EXPECT_THAT(load.err, StartsWith("normload: --server is /run/normd.sock; a Unix socket is named with unix: before"));
}

// ---- Proxies

class Environ {
 public:
  Environ(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): no other thread reads it
  }
  ~Environ() { unsetenv(name_); }  // NOLINT(concurrency-mt-unsafe)
  Environ(const Environ&) = delete;
  Environ& operator=(const Environ&) = delete;

 private:
  const char* const name_;
};

TEST_F(FirstContact, NoProxyIsAskedForAServerOfThisMachine) {
  const ScriptedServer proxy("", ThenIt::kCloses);
  TokenServer server(grpc::InsecureServerCredentials());
  const std::string port = server.target().substr(server.target().rfind(':'));
  for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy"}) {
    const Environ variable(name, "http://" + proxy.target());
    for (const char* host : {"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "dns:///localhost"}) {
      const auto client = Client::Connect(host + port).value();
      EXPECT_TRUE(client->CheckHealth().ok()) << name << " " << host;
      EXPECT_EQ(Speak(&client::RunNormctl, {"health", "-s", host + port}).out, "SERVING\n") << name << " " << host;
    }
  }
  EXPECT_EQ(proxy.connections(), 0);
}

TEST_F(FirstContact, TheProxyOfAnotherTargetIsNamedWhereTheCallFails) {
  const std::string told =
      "http_proxy sends calls to normd.example:8001 through 127.0.0.1:1; unset it, or add normd.example to "
      "no_proxy";
  const Environ variable("http_proxy", "http://user:secret@127.0.0.1:1");
  EXPECT_EQ(HealthError({"-s", "normd.example"}),
            "normctl health: cannot reach normd at normd.example:8001 (connection refused): " + told);
  const absl::Status status = CallOnce("normd.example:8001");
  EXPECT_EQ(status.message(), "cannot reach normd at normd.example:8001 (connection refused): " + told);
  EXPECT_THAT(status.ToString(), Not(HasSubstr("secret")));
  const ScriptedServer silent("", ThenIt::kStaysSilent);
  const Environ first("grpc_proxy", "http://" + silent.target());
  EXPECT_THAT(HealthError({"-s", "normd.example:8001", "--deadline=100ms"}),
              HasSubstr("did not answer within 100ms: grpc_proxy sends calls to normd.example:8001 through " +
                        silent.target()));
  const ScriptedServer refuses("HTTP/1.1 403 Forbidden\r\n\r\n", ThenIt::kCloses);
  const Environ second("grpc_proxy", "http://" + refuses.target());
  EXPECT_THAT(HealthError({"-s", "normd.example:8001"}),
              HasSubstr("grpc_proxy sends calls to normd.example:8001 through "));
  const int before = refuses.connections();
  EXPECT_GT(before, 0);
  const Environ none("no_proxy", "foo, *");
  EXPECT_THAT(HealthError({"-s", "normd.example:8001", "--deadline=2s"}), Not(HasSubstr("grpc_proxy")));
  EXPECT_EQ(refuses.connections(), before);
}

// ---- The probe

TEST(PlainProbe, ReadsFramesAsTheyCome) {
  const std::string whole = kSettingsOf8Streams + kPingAnswer;
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(client::ReadAnswer(whole.substr(0, size)).has_value()) << size;
  }
  EXPECT_EQ(client::ReadAnswer(whole)->kind, client::PlainKind::kHttp2);
  EXPECT_EQ(client::ReadAnswer(whole)->max_streams, 8);
  EXPECT_EQ(client::ReadAnswer(GoAway("full"))->text, "full");
  EXPECT_EQ(client::ReadAnswer(kSettingsOf8Streams + GoAway("full"))->text, "full");
  EXPECT_EQ(client::ReadAnswer("HTTP/1.0 400 Bad\r\n")->kind, client::PlainKind::kHttp1);
  EXPECT_EQ(client::ReadAnswer("220 mail.example ESMTP\r\n")->text, "220 mail.example ESMTP");
  EXPECT_EQ(client::ReadAnswer("\0\0\0\4\0\0\0\0\0"s + kPingAnswer)->max_streams, std::nullopt);
}

}  // namespace
}  // namespace normd
