#include "server/options/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "server/shm/registrar.h"

namespace normd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Environment = std::map<std::string, std::string>;

absl::StatusOr<Config> Parse(const std::vector<std::string>& args, const Environment& env = {}) {
  return ParseConfig(args, env);
}

std::string ErrorOf(const std::vector<std::string>& args, const Environment& env = {}) {
  const absl::StatusOr<Config> config = Parse(args, env);
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << config.status();
  return std::string(config.status().message());
}

TEST(Config, HasDefaultsThatServeOnlyThisMachine) {
  const absl::StatusOr<Config> config = Parse({}, {{"XDG_RUNTIME_DIR", "/run/user/7"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->listen, ElementsAre("127.0.0.1:8001", "unix:/run/user/7/normd.sock"));
  EXPECT_EQ(config->admin_listen, "127.0.0.1:8002");
  EXPECT_FALSE(config->plaintext);
  EXPECT_TRUE(config->ReflectionOn());
  EXPECT_EQ(config->max_message_bytes, 64 << 20);
  EXPECT_EQ(config->drain_timeout, absl::Seconds(30));
  EXPECT_EQ(config->drain_settle, absl::ZeroDuration());
  EXPECT_EQ(config->log_level, "info");
  EXPECT_EQ(config->help, "");
}

TEST(Config, PutsTheSocketIntoAFolderOfTheUserWithoutARuntimeDirectory) {
  const absl::StatusOr<Config> config = Parse({});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->listen[1], "unix:/tmp/normd-" + std::to_string(geteuid()) + "/normd.sock");
}

TEST(Config, TakesEveryWayOfWritingAnOption) {
  const absl::StatusOr<Config> config =
      Parse({"--max_sessions=5", "--queues", "3", "--plaintext", "--max_message_bytes=2MiB", "--drain_settle=1.5s",
             "--log_format", "json", "--admin_listen="});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->max_sessions, 5);
  EXPECT_EQ(config->queues, 3);
  EXPECT_TRUE(config->plaintext);
  EXPECT_EQ(config->max_message_bytes, 2 << 20);
  EXPECT_EQ(config->drain_settle, absl::Milliseconds(1500));
  EXPECT_EQ(config->log_format, "json");
  EXPECT_EQ(config->admin_listen, "");
}

TEST(Config, CollectsListenersAndLetsTheLastOfOtherOptionsWin) {
  const absl::StatusOr<Config> config =
      Parse({"--listen=127.0.0.1:1,[::1]:2", "--listen", "localhost:3", "--queues=1", "--queues=2"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->listen, ElementsAre("127.0.0.1:1", "[::1]:2", "localhost:3"));
  EXPECT_EQ(config->queues, 2);
}

TEST(Config, ReadsTheEnvironmentBelowTheCommandLine) {
  const Environment env = {{"NORMD_QUEUES", "5"}, {"NORMD_LOG_LEVEL", "debug"}, {"NORMD_PLAINTEXT", "true"}};
  const absl::StatusOr<Config> config = Parse({"--queues=6", "--noplaintext"}, env);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->queues, 6);
  EXPECT_EQ(config->log_level, "debug");
  EXPECT_FALSE(config->plaintext);
}

TEST(Config, IgnoresVariablesThatAreNotOptions) {
  EXPECT_TRUE(Parse({}, {{"NORMD_PORT", "tcp://10.0.0.1:8001"}, {"NORMD_VERSION", "7"}, {"NORMD_HELP", "me"}}).ok());
}

TEST(Config, ReportsVariablesThatNobodyReads) {
  const std::vector<UnknownVariable> unknown = UnknownVariables(
      {{"NORMD_MAX_SESSION", "5"}, {"NORMD_QUEUES", "2"}, {"NORMD_BOGUS", "1"}, {"NORMAL", "x"}, {"HOME", "/"}});
  ASSERT_EQ(unknown.size(), 2u);
  EXPECT_EQ(unknown[0].name, "NORMD_BOGUS");
  EXPECT_EQ(unknown[0].nearest, "");
  EXPECT_EQ(unknown[1].name, "NORMD_MAX_SESSION");
  EXPECT_EQ(unknown[1].nearest, "NORMD_MAX_SESSIONS");
}

TEST(Config, KnowsTheVariablesOfOtherPrograms) {
  EXPECT_THAT(UnknownVariables({{"NORMD_PORT", "tcp://10.0.0.1:8001"},
                                {"NORMD_PORT_8001_TCP_ADDR", "10.0.0.1"},
                                {"NORMD_SERVICE_HOST", "10.0.0.1"},
                                {"NORMD_SERVER", "127.0.0.1:8001"},
                                {"NORMD_TLS", "1"},
                                {"NORMD_CA", "ca.crt"},
                                {"NORMD_CERTIFICATE", "client.crt"},
                                {"NORMD_KEY", "client.key"},
                                {"NORMD_SERVER_NAME", "localhost"},
                                {"NORMD_TOKEN_FILE", "token"},
                                {"NORMD_TOKEN", "t"},
                                {"NORMD_PORT_FILE", "/tmp/ports"},
                                {"NORMD_VERSION", "7"}}),
              ::testing::SizeIs(0));
}

TEST(Config, SaysWhichOptionWasMeant) {
  EXPECT_THAT(ErrorOf({"--max_session=5"}), HasSubstr("did you mean --max_sessions?"));
  EXPECT_THAT(ErrorOf({"--data-dirr", "/data"}), HasSubstr("did you mean --data_dir?"));
  EXPECT_THAT(ErrorOf({"listen=127.0.0.1:1"}), HasSubstr("did you mean --listen?"));
  EXPECT_THAT(ErrorOf({"--bogus"}), ::testing::Not(HasSubstr("did you mean")));
}

TEST(Config, NamesOptionValueAndLimitOfAMistake) {
  EXPECT_THAT(ErrorOf({"--queues=65"}), AllOf(HasSubstr("--queues"), HasSubstr("65"), HasSubstr("0 to 64")));
  EXPECT_THAT(ErrorOf({"--queues=two"}), AllOf(HasSubstr("--queues"), HasSubstr("two")));
  EXPECT_THAT(ErrorOf({"--max_message_bytes=9EiB"}), HasSubstr("--max_message_bytes"));
  EXPECT_THAT(ErrorOf({"--max_message_bytes=9000000TiB"}), HasSubstr("--max_message_bytes"));
  EXPECT_THAT(ErrorOf({"--max_message_bytes=1GiB", "--max_in_flight_bytes=1MiB"}), HasSubstr("--max_in_flight_bytes"));
  EXPECT_THAT(ErrorOf({"--drain_timeout=-1s"}), AllOf(HasSubstr("--drain_timeout"), HasSubstr("-1s")));
  EXPECT_THAT(ErrorOf({"--drain_timeout=inf"}), HasSubstr("--drain_timeout"));
  EXPECT_THAT(ErrorOf({"--log_level=loud"}), AllOf(HasSubstr("loud"), HasSubstr("debug, info, warn, error")));
  EXPECT_THAT(ErrorOf({"--plaintext=perhaps"}), AllOf(HasSubstr("--plaintext"), HasSubstr("perhaps")));
  EXPECT_THAT(ErrorOf({"--queues"}), HasSubstr("--queues"));
  EXPECT_THAT(ErrorOf({"--listen="}), HasSubstr("--listen"));
  EXPECT_THAT(ErrorOf({}, {{"NORMD_QUEUES", "x"}}), HasSubstr("NORMD_QUEUES"));
}

TEST(Config, SaysAMistakeInOneSentence) {
  EXPECT_EQ(ErrorOf({"--queues=65"}), "--queues is \"65\"; it must be 0 to 64");
  EXPECT_EQ(ErrorOf({"--queues=two"}), "--queues is \"two\", which is not a whole number; it must be 0 to 64");
  EXPECT_EQ(ErrorOf({"--plaintext=perhaps"}), "--plaintext is \"perhaps\"; it must be true or false");
  EXPECT_EQ(ErrorOf({"--queues"}), "--queues needs a value");
  EXPECT_EQ(ErrorOf({"--listen="}), "--listen is missing; give at least one address");
  EXPECT_EQ(ErrorOf({"--bogus"}), "command line has \"--bogus\", which is no option; --help lists the options");
  EXPECT_EQ(ErrorOf({"--max_session=5"}),
            "command line has \"--max_session=5\", which is no option; did you mean --max_sessions?");
}

TEST(Config, RefusesUnknownOptions) {
  EXPECT_THAT(ErrorOf({"--bogus=1"}), HasSubstr("--bogus"));
  EXPECT_THAT(ErrorOf({"--noqueues"}), HasSubstr("--noqueues"));
  EXPECT_THAT(ErrorOf({"serve"}), HasSubstr("serve"));
  EXPECT_THAT(ErrorOf({"-x"}), HasSubstr("--help"));
}

TEST(Config, OpensToOtherMachinesOnlyOnRequest) {
  for (const std::string option : {"--listen", "--admin_listen"}) {
    for (const std::string address : {"0.0.0.0:8001", "[::]:8001", "10.1.2.3:8001", "example.org:8001"}) {
      EXPECT_THAT(ErrorOf({option, address}), AllOf(HasSubstr(option), HasSubstr(address), HasSubstr("--plaintext")));
      EXPECT_TRUE(Parse({option, address, "--plaintext"}).ok()) << address;
    }
  }
}

TEST(Config, TlsOpensTheListenersOfGrpcAndNotTheAdminListener) {
  const std::vector<std::string> tls = {"--tls_certificate=/a", "--tls_key=/b"};
  const auto with_tls = [&tls](std::vector<std::string> args) {
    args.insert(args.end(), tls.begin(), tls.end());
    return args;
  };
  EXPECT_TRUE(Parse(with_tls({"--listen=0.0.0.0:1"})).ok());
  EXPECT_THAT(ErrorOf(with_tls({"--admin_listen=0.0.0.0:2"})),
              AllOf(HasSubstr("--admin_listen is 0.0.0.0:2"), HasSubstr("--admin_plaintext")));
  EXPECT_TRUE(Parse(with_tls({"--admin_listen=0.0.0.0:2", "--admin_plaintext"})).ok());
  EXPECT_TRUE(Parse({"--admin_listen=0.0.0.0:2", "--admin_plaintext"}).ok());
  EXPECT_FALSE(Parse({"--listen=0.0.0.0:1", "--admin_plaintext"}).ok()) << "it names the admin listener alone";
}

TEST(Config, NamesOfTheAdminListenerHaveNoPort) {
  EXPECT_THAT(Parse({"--admin_hosts=Normd,normd.prod.svc"})->admin_hosts, ElementsAre("normd", "normd.prod.svc"));
  EXPECT_THAT(std::string(Parse({"--admin_hosts=normd:8002"}).status().message()),
              HasSubstr("--admin_hosts is \"normd:8002\"; write names without a port"));
}

TEST(Config, CertificateAndKeyComeTogether) {
  EXPECT_THAT(ErrorOf({"--tls_certificate=/a"}), HasSubstr("--tls_key is missing"));
  EXPECT_THAT(ErrorOf({"--tls_key=/a"}), HasSubstr("--tls_certificate is missing"));
  EXPECT_THAT(ErrorOf({"--tls_client_ca=/a"}), HasSubstr("--tls_certificate is missing"));
}

TEST(Config, TurnsReflectionOffByDefaultWithAListenerThatIsNotLocal) {
  EXPECT_TRUE(Parse({"--listen=127.0.0.1:1"})->ReflectionOn());
  EXPECT_FALSE(Parse({"--listen=127.0.0.1:1,0.0.0.0:2", "--plaintext"})->ReflectionOn());
  EXPECT_TRUE(Parse({"--listen=0.0.0.0:2", "--plaintext", "--reflection=on"})->ReflectionOn());
  EXPECT_FALSE(Parse({"--reflection=off"})->ReflectionOn());
}

TEST(Config, UsesTheFirstGpuWithoutDelayByDefault) {
  EXPECT_EQ(Parse({})->cuda, "auto");
  EXPECT_THAT(Parse({})->CudaDevices(), ElementsAre(0));
  EXPECT_EQ(Parse({})->batch_delay, absl::ZeroDuration());
  const absl::StatusOr<Config> config = Parse({"--cuda=off", "--cuda_device=2", "--batch_delay=250us"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->cuda, "off");
  EXPECT_THAT(config->CudaDevices(), ElementsAre(2));
  EXPECT_EQ(config->batch_delay, absl::Microseconds(250));
  EXPECT_THAT(ErrorOf({"--cuda=on"}), HasSubstr("auto, off"));
  EXPECT_THAT(ErrorOf({"--batch_delay=2s"}), HasSubstr("0s to 1s"));
}

TEST(Config, TakesSeveralGpusEachOnceByTheirNumbers) {
  EXPECT_THAT(Parse({"--cuda_device=0,1"})->CudaDevices(), ElementsAre(0, 1));
  EXPECT_THAT(Parse({"--cuda_device=1023", "--cuda_device", "2"})->CudaDevices(), ElementsAre(1023, 2));
  EXPECT_THAT(Parse({}, {{"NORMD_CUDA_DEVICE", "3,1"}})->CudaDevices(), ElementsAre(3, 1));
  for (const std::string bad : {"x", "1024", "-1", "1.5", "99999999999"}) {
    EXPECT_THAT(ErrorOf({"--cuda_device=" + bad}),
                AllOf(HasSubstr("--cuda_device"), HasSubstr(bad), HasSubstr("0 to 1023")));
    EXPECT_THAT(ErrorOf({"--cuda_device=0," + bad}), AllOf(HasSubstr("--cuda_device"), HasSubstr(bad)));
  }
  EXPECT_THAT(ErrorOf({"--cuda_device=0,0"}), AllOf(HasSubstr("--cuda_device"), HasSubstr("each device once")));
  EXPECT_THAT(ErrorOf({"--cuda_device=0", "--cuda_device=1,0"}), HasSubstr("each device once"));
  EXPECT_THAT(ErrorOf({"--cuda_device="}), HasSubstr("--cuda_device"));
  EXPECT_THAT(ErrorOf({}, {{"NORMD_CUDA_DEVICE", "x"}}), HasSubstr("NORMD_CUDA_DEVICE"));
}

TEST(Config, SharesMemoryWithCallersOfUnixSocketsByDefault) {
  EXPECT_TRUE(Parse({})->SharedMemoryOn());
  EXPECT_FALSE(Parse({"--listen=127.0.0.1:1"})->SharedMemoryOn());
  EXPECT_TRUE(Parse({"--listen=127.0.0.1:1", "--shared_memory=all"})->SharedMemoryOn());
  EXPECT_FALSE(Parse({"--shared_memory=off"})->SharedMemoryOn());
  EXPECT_FALSE(Parse({"--max_regions=1025"}).ok());
  EXPECT_TRUE(Parse({"--shm_prefix="}).ok());
  for (const char* bad : {"--shm_prefix=normd", "--shm_prefix=/a/b", "--shared_memory=tcp"}) {
    EXPECT_EQ(Parse({bad}).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(Config, WantsRoomForTheRegistrarsSocketBesideAUnixSocket) {
  const std::string longest = "--listen=unix:/" + std::string(kMaxGrpcSocketPath - 1, 'x');
  EXPECT_TRUE(Parse({longest}).ok());
  EXPECT_THAT(std::string(Parse({longest + "x"}).status().message()), HasSubstr("--shared_memory=off"));
  EXPECT_TRUE(Parse({longest + "x", "--shared_memory=off"}).ok());
}

TEST(Config, KeepsSessionsInAFileOfTheUserByDefault) {
  EXPECT_EQ(Parse({}, {{"HOME", "/home/me"}})->data_dir, "/home/me/.local/state/normd");
  EXPECT_EQ(Parse({}, {{"HOME", "/home/me"}, {"XDG_STATE_HOME", "/state"}})->data_dir, "/state/normd");
  EXPECT_EQ(Parse({})->data_dir, "/var/lib/normd");
  EXPECT_EQ(Parse({"--data-dir=/data"})->data_dir, "/data") << "a hyphen is an underscore";
  EXPECT_EQ(Parse({}, {{"NORMD_DATA_DIR", "/data"}})->data_dir, "/data");
  EXPECT_EQ(Parse({})->StoreKind(), "sqlite");
  EXPECT_EQ(Parse({"--session-store=memory"})->StoreKind(), "memory");
  EXPECT_EQ(Parse({"--durability=memory"})->StoreKind(), "memory");
  EXPECT_EQ(Parse({"--session_store=postgres://u:p@h/d"})->StoreKind(), "postgres");
  EXPECT_EQ(Parse({"--session_store=postgresql:///d"})->StoreKind(), "postgres");
  EXPECT_EQ(Parse({})->durability, "power");
}

TEST(Config, RefusesStoresThatCannotBe) {
  const std::string error = ErrorOf({"--session_store=mysql://root:secret@host/db"});
  EXPECT_THAT(error, HasSubstr("--session_store"));
  EXPECT_THAT(error, ::testing::Not(HasSubstr("secret"))) << "a mistyped URL may hold a password";
  EXPECT_THAT(ErrorOf({"--session_store=postgres:///d", "--durability=memory"}), HasSubstr("--durability"));
  EXPECT_THAT(ErrorOf({"--durability=forever"}), HasSubstr("--durability"));
  EXPECT_THAT(ErrorOf({"--session_store=memory", "--backup=/tmp/x"}), HasSubstr("--backup"));
}

TEST(Config, AnswersHelpAndVersionWithoutCheckingTheRest) {
  EXPECT_EQ(Parse({"--help"})->help, "text");
  EXPECT_EQ(Parse({"-h"})->help, "text");
  EXPECT_EQ(Parse({"--help=markdown"})->help, "markdown");
  EXPECT_TRUE(Parse({"--version", "--listen=0.0.0.0:1"})->version);
}

TEST(Config, LimitsTheInstructionSetByOptionOrEnvironment) {
  EXPECT_EQ(Parse({})->max_isa, "auto");
  EXPECT_EQ(Parse({"--max_isa=avx2"})->max_isa, "avx2");
  EXPECT_EQ(Parse({}, {{"NORMD_MAX_ISA", "plain"}})->max_isa, "plain");
}

}  // namespace
}  // namespace normd
