// TLS, client certificates and tokens of normd::Client, against servers of gRPC in this process.
#include "client/cpp/security.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "client/cli/security_flags.h"
#include "client/cpp/client.h"
#include "client/normctl/commands.h"
#include "client/normload/options.h"
#include "tests/client/tls_server.h"

namespace normd {
namespace {

using client::SecurityOptions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Security : public testing::Test {
 protected:
  static void SetUpTestSuite() { certificates_ = new Certificates; }
  static void TearDownTestSuite() {
    delete certificates_;
    certificates_ = nullptr;
  }
  static const Certificates& certificates() { return *certificates_; }
  static std::string Path(absl::string_view name) { return certificates().Path(name); }

  // With the CA of the servers.
  static SecurityOptions WithCa() {
    SecurityOptions security;
    security.ca_file = Path("ca.crt");
    return security;
  }
  static SecurityOptions WithCertificate() {
    SecurityOptions security = WithCa();
    security.certificate_file = Path("client.crt");
    security.key_file = Path("client.key");
    return security;
  }

  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& target, SecurityOptions security) {
    ClientOptions options;
    options.deadline = absl::Seconds(20);
    options.retry.initial_backoff = options.retry.max_backoff = absl::Milliseconds(1);
    options.security = std::move(security);
    return Client::Connect(target, options);
  }
  // The status of a call that is sent once.
  static absl::Status Call(const std::string& target, const SecurityOptions& security) {
    const auto client = Connect(target, security);
    return client.ok() ? (*client)->CheckHealth().status() : client.status();
  }
  // What Connect refuses.
  static std::string Refusal(const std::string& target, const SecurityOptions& security) {
    const absl::Status status = Connect(target, security).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

 private:
  static Certificates* certificates_;
};

Certificates* Security::certificates_ = nullptr;

v1::NormalizeRequest SmallRequest() {
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_rms_norm();
  return request;
}

TEST_F(Security, AServerIsCalledWhoseCertificateComesFromTheCa) {
  const TokenServer server(TlsOf(certificates()));
  EXPECT_EQ(Call(server.target(), WithCa()), absl::OkStatus());
  SecurityOptions other = WithCa();
  other.ca_file = Path("other/ca.crt");
  EXPECT_TRUE(absl::IsUnavailable(Call(server.target(), other)));
  SecurityOptions system;
  system.tls = true;
  EXPECT_TRUE(absl::IsUnavailable(Call(server.target(), system))) << "the system knows no such CA";
}

TEST_F(Security, AServerIsCalledWhoseCertificateHasItsName) {
  const TokenServer server(TlsOf(certificates()));
  SecurityOptions security = WithCa();
  security.server_name = "normd.example";
  EXPECT_TRUE(absl::IsUnavailable(Call(server.target(), security)));
  security.server_name = "localhost";
  EXPECT_EQ(Call(server.target(), security), absl::OkStatus());
}

TEST_F(Security, AServerThatAsksForACertificateGetsIt) {
  const TokenServer server(TlsOf(certificates(), "server.crt", true));
  EXPECT_TRUE(absl::IsUnavailable(Call(server.target(), WithCa())));
  EXPECT_EQ(Call(server.target(), WithCertificate()), absl::OkStatus());
  SecurityOptions other = WithCa();
  other.certificate_file = Path("other/client.crt");
  other.key_file = Path("other/client.key");
  EXPECT_TRUE(absl::IsUnavailable(Call(server.target(), other)));
}

TEST_F(Security, PlainTextAndTlsDoNotMix) {
  const TokenServer plain(grpc::InsecureServerCredentials()), tls(TlsOf(certificates()));
  EXPECT_TRUE(absl::IsUnavailable(Call(plain.target(), WithCa())));
  EXPECT_TRUE(absl::IsUnavailable(Call(tls.target(), {})));
}

TEST_F(Security, EveryMethodCarriesTheToken) {
  TokenServer server(TlsOf(certificates()));
  SecurityOptions security = WithCa();
  security.token = "s3cret-._~+/==";
  const auto client = Connect(server.target(), security).value();
  v1::NormalizeRequest large = SmallRequest();
  large.mutable_x()->set_data(std::string(1 << 20, 'x'));  // over the other connection
  v1::CreateSessionRequest create;
  create.set_session_id("a");
  v1::ForkSessionRequest fork;
  fork.set_session_id("a");
  const absl::Status statuses[] = {
      client->Normalize(SmallRequest()).status(), client->Normalize(large).status(),
      client->NormalizeChunked(large).status(),   client->BatchNormalize({}).status(),
      client->ComputeMoments({}).status(),        client->CreateSession(create).status(),
      client->GetSession("sessions/a").status(),  client->ListSessions({}).status(),
      client->UpdateSession({}).status(),         client->ResetSession({}).status(),
      client->ForkSession(fork).status(),         client->DeleteSession({}),
      client->CommitMoments({}).status(),         client->ExportSession("sessions/a").status(),
      client->ImportSession("record").status(),   client->CheckHealth().status(),
      client->RegisterCuda({}).status()};
  for (const absl::Status& status : statuses) {
    EXPECT_TRUE(status.ok() || absl::IsUnimplemented(status)) << status;
  }
  EXPECT_TRUE(absl::IsUnimplemented(client->OpenStream()->Finish()));
  const std::map<std::string, std::vector<std::string>> seen = server.seen().Take();
  EXPECT_EQ(seen.size(), 17u) << "the methods of the contract";
  for (const auto& [method, tokens] : seen) {
    EXPECT_THAT(tokens, testing::Each("Bearer s3cret-._~+/==")) << method;
  }
}

TEST_F(Security, ARepeatedCallCarriesTheTokenEachTime) {
  TokenServer server(TlsOf(certificates()));
  server.answer = [](int call) {
    return call < 3 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone") : grpc::Status::OK;
  };
  SecurityOptions security = WithCa();
  security.token = "t";
  EXPECT_TRUE(Connect(server.target(), security).value()->Normalize(SmallRequest()).ok());
  EXPECT_THAT(server.seen().Take()["/normd.v1.Normalizer/Normalize"], ElementsAre("Bearer t", "Bearer t", "Bearer t"));
}

TEST_F(Security, NoTokenIsSentWithoutOne) {
  TokenServer server(TlsOf(certificates()));
  EXPECT_EQ(Call(server.target(), WithCa()), absl::OkStatus());
  EXPECT_THAT(server.seen().Take()["/grpc.health.v1.Health/Check"], ElementsAre(""));
}

TEST_F(Security, ATokenTravelsOverAUnixSocketAndNeverInPlainTextOverTcp) {
  SecurityOptions security;
  security.token = "s3cret";
  const std::string refusal = Refusal("127.0.0.1:8001", security);
  EXPECT_THAT(refusal, HasSubstr("127.0.0.1:8001 would be called in plain text"));
  EXPECT_THAT(refusal, Not(HasSubstr("s3cret")));
  const std::string target = "unix:" + Path("socket");
  TokenServer server(grpc::InsecureServerCredentials(), target);
  EXPECT_EQ(Call(target, security), absl::OkStatus());
  EXPECT_THAT(server.seen().Take()["/grpc.health.v1.Health/Check"], ElementsAre("Bearer s3cret"));
}

TEST_F(Security, ATokenFileIsReadAgainWhenItChanges) {
  TokenServer server(TlsOf(certificates()));
  // As Kubernetes has them: the file is a link into a folder that is itself replaced.
  const std::string folder = Path("projected");
  for (const char* const name : {"1", "2"}) {
    std::filesystem::create_directories(absl::StrCat(folder, "/", name));
    WriteText(absl::StrCat(folder, "/", name, "/token"), absl::StrCat("token-", name, "\n"));
  }
  std::filesystem::create_symlink("1", folder + "/data");
  SecurityOptions security = WithCa();
  security.token_file = folder + "/data/token";
  const auto client = Connect(server.target(), security).value();
  const auto sent = [&] {
    EXPECT_TRUE(client->CheckHealth().ok());
    return server.seen().Take()["/grpc.health.v1.Health/Check"];
  };
  EXPECT_THAT(sent(), ElementsAre("Bearer token-1"));
  std::filesystem::create_symlink("2", folder + "/next");
  std::filesystem::rename(folder + "/next", folder + "/data");
  EXPECT_THAT(sent(), ElementsAre("Bearer token-2"));
  WriteText(folder + "/2/token", "token-3\n");
  EXPECT_THAT(sent(), ElementsAre("Bearer token-3")) << "written in place, with the same size";
  WriteText(folder + "/2/token", "\n");
  EXPECT_THAT(sent(), ElementsAre("Bearer token-3")) << "an empty file leaves the last one";
  std::filesystem::remove(folder + "/2/token");
  EXPECT_THAT(sent(), ElementsAre("Bearer token-3")) << "and so does none";
}

TEST_F(Security, AFileThatCannotBeUsedIsNamedWithTheReason) {
  const std::string target = "127.0.0.1:1";
  SecurityOptions security = WithCertificate();
  security.ca_file = Path("none");
  EXPECT_EQ(Refusal(target, security),
            absl::StrCat("cannot read the CA file ", Path("none"), ": No such file or directory"));
  security.ca_file = Path("ca.key");
  EXPECT_EQ(Refusal(target, security),
            absl::StrCat("the CA file ", Path("ca.key"), " holds no certificate in PEM form"));
  security = WithCertificate();
  security.certificate_file = Path("token");
  EXPECT_THAT(Refusal(target, security), HasSubstr("the certificate file"));
  security = WithCertificate();
  security.key_file = Path("server.key");
  EXPECT_EQ(Refusal(target, security), absl::StrCat("the key file ", Path("server.key"),
                                                    " is not the key of the certificate file ", Path("client.crt")));
  RunShell(absl::StrCat("openssl ec -aes128 -passout pass:x -in ", Path("client.key"), " -out ", Path("locked.key"),
                        " 2>", Path("log")));
  security.key_file = Path("locked.key");
  EXPECT_EQ(Refusal(target, security),
            absl::StrCat("the key file ", Path("locked.key"), " has a passphrase; it must have none"));
  security.key_file = "";
  EXPECT_THAT(Refusal(target, security), HasSubstr("without its key"));
}

TEST_F(Security, ATokenThatIsNoneIsNotShown) {
  SecurityOptions security = WithCa();
  WriteText(Path("bad-token"), "two words");
  security.token_file = Path("bad-token");
  EXPECT_THAT(Refusal("127.0.0.1:1", security),
              HasSubstr(absl::StrCat("the token file ", Path("bad-token"), " has a character")));
  security.token = "also";
  EXPECT_THAT(Refusal("127.0.0.1:1", security), HasSubstr("leave one of the two out"));
  security.token_file = "";
  for (const std::string& bad : {std::string("s3cret\r\nx: y"), std::string(5000, 'a'), std::string(" ")}) {
    security.token = bad;
    const std::string refusal = Refusal("127.0.0.1:1", security);
    EXPECT_THAT(refusal, HasSubstr("the token "));
    EXPECT_THAT(refusal, Not(HasSubstr("s3cret")));
  }
  security.token = "";
  security.token_file = Path("none");
  EXPECT_THAT(Refusal("127.0.0.1:1", security), HasSubstr("cannot read the token file"));
}

TEST_F(Security, OptionsThatExcludeEachOtherAreRefused) {
  SecurityOptions security = WithCa();
  EXPECT_THAT(Refusal("unix:/tmp/normd.sock", security), HasSubstr("which takes no TLS"));
  security.tls = false;
  EXPECT_THAT(Refusal("127.0.0.1:1", security), HasSubstr("TLS is off"));
}

TEST_F(Security, AClientThatSpeaksTlsStaysWhereItIs) {
  // The server would name a socket in Describe; a client over TLS does not even ask.
  TokenServer server(TlsOf(certificates()));
  ClientOptions options;
  options.security = WithCa();
  options.prefer_unix_socket = true;
  EXPECT_EQ(Client::Connect(server.target(), options).value()->target(), server.target());
  EXPECT_TRUE(server.seen().Take().empty());
}

// ---- normctl

struct Outcome {
  int code;
  std::string out, err;
};

Outcome RunHealth(const std::vector<std::string>& arguments) {
  std::ostringstream out, err;
  const client::Terminal terminal{out, err, 80, false};
  std::vector<std::string> words = {"health"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const int code = client::RunNormctl(words, terminal);
  return {code, out.str(), err.str()};
}

TEST_F(Security, NormctlTakesFlags) {
  TokenServer server(TlsOf(certificates(), "server.crt", true));
  const Outcome good =
      RunHealth({"-s", server.target(), "--ca", Path("ca.crt"), "--certificate", Path("client.crt"), "--key",
                 Path("client.key"), "--server_name=localhost", "--token_file", Path("token")});
  EXPECT_EQ(good.out, "SERVING\n") << good.err;
  std::string token = certificates().Text("token");
  token.pop_back();  // the line's end
  EXPECT_THAT(server.seen().Take()["/grpc.health.v1.Health/Check"], ElementsAre("Bearer " + token));
}

client::ParsedArgs Parsed(const std::vector<std::string>& arguments) {
  return client::ParseArgs(client::NormloadSpec(), arguments).value();
}

TEST_F(Security, NormloadTakesTheSameFlags) {
  const absl::StatusOr<client::NormloadOptions> options =
      client::MakeOptions(Parsed({"--ca=ca.crt", "--certificate=c", "--key=k", "--token-file=t"}));
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->load.server, "127.0.0.1:8001") << "TLS is for TCP";
  const SecurityOptions& security = options->load.security;
  EXPECT_EQ(security.tls, true);
  EXPECT_EQ(security.ca_file, "ca.crt");
  EXPECT_EQ(security.certificate_file, "c");
  EXPECT_EQ(security.key_file, "k");
  EXPECT_EQ(security.token_file, "t");
}

// A variable of the environment for one test.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    setenv(name_.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): no other thread reads it
  }
  ~Variable() { unsetenv(name_.c_str()); }  // NOLINT(concurrency-mt-unsafe)
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const std::string name_;
};

TEST_F(Security, FlagsWinOverTheEnvironmentWhoseTlsIsForTcp) {
  const Variable ca("NORMD_CA", "env-ca"), certificate("NORMD_CERTIFICATE", "env-certificate"),
      key("NORMD_KEY", "env-key"), name("NORMD_SERVER_NAME", "env-name"), token("NORMD_TOKEN", "env-token");
  const SecurityOptions tcp = client::ReadSecurity(Parsed({}), "127.0.0.1:8001").value();
  EXPECT_TRUE(client::UsesTls(tcp));
  EXPECT_EQ(tcp.ca_file + tcp.certificate_file + tcp.key_file, "env-caenv-certificateenv-key");
  EXPECT_EQ(tcp.server_name + tcp.token, "env-nameenv-token");
  const SecurityOptions local = client::ReadSecurity(Parsed({}), "unix:/tmp/normd.sock").value();
  EXPECT_FALSE(client::UsesTls(local));
  EXPECT_EQ(local.token, "env-token");
  const SecurityOptions flags =
      client::ReadSecurity(Parsed({"--ca=ca", "--certificate=c", "--token-file=t"}), "127.0.0.1:8001").value();
  EXPECT_EQ(flags.ca_file, "ca");
  EXPECT_EQ(flags.certificate_file, "c");
  EXPECT_EQ(flags.key_file, "") << "not the key of another certificate";
  EXPECT_EQ(flags.token + flags.token_file, "t");
  EXPECT_TRUE(client::AsksForTls(Parsed({})));
  const Variable off("NORMD_TLS", "false");
  EXPECT_FALSE(client::AsksForTls(Parsed({})));
  EXPECT_FALSE(client::UsesTls(client::ReadSecurity(Parsed({}), "127.0.0.1:8001").value()));
  const Variable wrong("NORMD_TLS", "perhaps");
  EXPECT_EQ(client::ReadSecurity(Parsed({}), "127.0.0.1:8001").status().message(),
            "NORMD_TLS is perhaps; it must be true or false");
}

TEST_F(Security, NormctlSaysWhatToDo) {
  const TokenServer plain(grpc::InsecureServerCredentials()), tls(TlsOf(certificates())),
      mutual(TlsOf(certificates(), "server.crt", true)), expired(TlsOf(certificates(), "expired.crt"));
  const std::string ca = "--ca=" + Path("ca.crt");
  const auto expect = [](const std::vector<std::string>& arguments, const std::string& text) {
    const Outcome outcome = RunHealth(arguments);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.err, HasSubstr(text));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  };
  expect({"-s", tls.target()}, "speaks TLS and was called in plain text; add --tls, or --ca FILE");
  expect({"-s", plain.target(), ca}, "speaks no TLS and was called by it; leave --tls, --ca and the like out");
  expect({"-s", tls.target(), "--ca=" + Path("other/ca.crt")}, "does not come from --ca " + Path("other/ca.crt"));
  expect({"-s", tls.target(), "--tls"}, "does not come from the system's root certificates");
  expect({"-s", tls.target(), ca, "--server-name=normd.example"}, "is for other names (localhost, 127.0.0.1, ::1)");
  expect({"-s", expired.target(), ca}, "is out of date (certificate has expired)");
  expect({"-s", mutual.target(), ca}, "asks for a client certificate; give one with --certificate FILE and --key FILE");
  expect({"-s", mutual.target(), ca, "--certificate=" + Path("other/client.crt"), "--key=" + Path("other/client.key")},
         "refuses the client certificate " + Path("other/client.crt"));
  expect({"-s", plain.target(), "--token-file", Path("token")}, "would be called in plain text");
  expect({"-s", tls.target(), "--ca", Path("none")}, "cannot read the CA file " + Path("none"));
}

}  // namespace
}  // namespace normd
