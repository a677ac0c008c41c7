#include "server/security/access_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/errors.h"
#include "tests/server/security/fake_settling.h"
#include "tests/support/temporary_file.h"

namespace normd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kMethods = {"/s/Read", "/s/Write"};
constexpr char kAllowAll[] = "[[allow]]\nidentities = [\"*\"]\nmethods = [\"*\"]\n";

class FixedClock : public Clock {
 public:
  absl::Time Now() override { return now; }
  absl::Time now = absl::FromUnixSeconds(1'800'000'000);
};

class AccessControlTest : public testing::Test {
 protected:
  std::unique_ptr<AccessControl> Open(AccessOptions options) {
    options.methods = kMethods;
    options.settling = settling_.settling();
    options.on_change = [this](RulesFile file, const absl::Status& status) {
      changes_.push_back(std::string(kRulesFileNames[static_cast<size_t>(file)]) + (status.ok() ? " taken" : " bad"));
    };
    absl::StatusOr<std::unique_ptr<AccessControl>> control = AccessControl::Open(std::move(options), &clock_);
    EXPECT_TRUE(control.ok()) << control.status();
    return control.ok() ? *std::move(control) : nullptr;
  }
  AccessOptions WithTokens() const { return {.tokens_file = tokens_.path()}; }

  // The identity that may call, or the reason why not.
  std::string Judge(AccessControl& control, const std::string& peer, const std::vector<std::string_view>& headers = {},
                    bool is_private = true, size_t method = 0) {
    AccessMemory memory;
    return Judge(control, &memory, peer, headers, is_private, method);
  }
  static std::string Judge(AccessControl& control, AccessMemory* memory, const std::string& peer,
                           const std::vector<std::string_view>& headers = {}, bool is_private = true,
                           size_t method = 0) {
    const std::string path = method < kMethods.size() ? kMethods[method] : "/s/Unknown";
    const Verdict verdict = control.Judge(
        memory, {.peer_name = [&peer] { return peer; }, .is_private = is_private, .authorization = headers},
        {.index = method, .path = path});
    if (verdict.denial.has_value()) return std::string(kDenialNames[static_cast<size_t>(*verdict.denial)]);
    return verdict.identity->name + (verdict.identity->tenant.empty() ? "" : " of " + verdict.identity->tenant);
  }

  // A look of the watch, an interval after the one before.
  void Watch(AccessControl& control) {
    settling_.now += absl::Seconds(2);
    control.Watch();
  }

  FixedClock clock_;
  FakeSettling settling_;
  TemporaryFile tokens_{TokenLine("ci", "secret") + "\n" + TokenLine("old", "expired") +
                        " expires=2020-01-01T00:00:00Z\n"};
  TemporaryFile policy_{kAllowAll};
  std::vector<std::string> changes_;
};

TEST_F(AccessControlTest, WithoutFilesLetsEverybodyInByTheNameOfTheConnection) {
  const auto control = Open({});
  EXPECT_EQ(Judge(*control, "anonymous", {}, /*is_private=*/false), "anonymous");
  EXPECT_EQ(Judge(*control, "uid:7"), "uid:7");
  EXPECT_EQ(Judge(*control, "cn:trainer", {"Bearer secret"}), "cn:trainer");
}

TEST_F(AccessControlTest, WithTokensAsksStrangersForOne) {
  const auto control = Open(WithTokens());
  EXPECT_EQ(Judge(*control, "anonymous"), "no_credentials");
  EXPECT_EQ(Judge(*control, "uid:7"), "uid:7");
  EXPECT_EQ(Judge(*control, "dns:trainer"), "dns:trainer");
  EXPECT_EQ(Judge(*control, "anonymous", {"Bearer secret"}), "token:ci");
  EXPECT_EQ(Judge(*control, "uid:7", {"bearer  secret"}), "token:ci");
}

TEST_F(AccessControlTest, AskingForCertificatesRefusesStrangers) {
  const auto control = Open({.asks_certificates = true});
  EXPECT_EQ(Judge(*control, "anonymous"), "no_credentials");
  EXPECT_EQ(Judge(*control, "cn:trainer"), "cn:trainer");
}

TEST_F(AccessControlTest, ABadTokenIsRefusedFromAnyCaller) {
  const auto control = Open(WithTokens());
  for (const char* peer : {"anonymous", "uid:7", "cn:trainer"}) {
    EXPECT_EQ(Judge(*control, peer, {"Bearer wrong"}), "unknown_token");
    EXPECT_EQ(Judge(*control, peer, {"Bearer expired"}), "expired_token");
    EXPECT_EQ(Judge(*control, peer, {"Bearer secret", "Bearer secret"}), "malformed_credentials");
    EXPECT_EQ(Judge(*control, peer, {"Bearer secret"}, /*is_private=*/false), "token_in_plain_text");
    EXPECT_EQ(Judge(*control, peer, {"Bearer wrong"}, /*is_private=*/false), "token_in_plain_text");
  }
}

TEST_F(AccessControlTest, MalformedCredentialsAreNotCompared) {
  const auto control = Open(WithTokens());
  const std::string long_one = "Bearer " + std::string(1 << 20, 'x');
  for (const std::string& header : {std::string(), std::string("secret"), std::string("Bearer"), std::string("Bearer "),
                                    std::string("Basic secret"), std::string("Bearersecret"),
                                    std::string("Bearer secret secret"), long_one, std::string(7, '\0')}) {
    EXPECT_EQ(Judge(*control, "uid:7", {header}), "malformed_credentials") << header.substr(0, 40);
  }
  EXPECT_EQ(Judge(*control, "uid:7", {std::string("Bearer \xff\0\x01", 10)}), "unknown_token");
}

TEST_F(AccessControlTest, ATokenExpiresWhileTheServerRuns) {
  tokens_.Write(TokenLine("ci", "secret") + " expires=2027-01-01T00:00:00Z\n");
  const auto control = Open(WithTokens());
  AccessMemory memory;
  clock_.now = absl::FromCivil(absl::CivilSecond(2026, 12, 31, 23, 59, 59), absl::UTCTimeZone());
  EXPECT_EQ(Judge(*control, &memory, "anonymous", {"Bearer secret"}), "token:ci");
  clock_.now += absl::Seconds(1);
  EXPECT_EQ(Judge(*control, &memory, "anonymous", {"Bearer secret"}), "expired_token");
}

TEST_F(AccessControlTest, ThePolicyDecidesByIdentityAndMethodAndGivesTheTenant) {
  policy_.Write(R"(
[[tenant]]
name = "vision"
identities = ["token:ci"]
[[deny]]
identities = ["token:*"]
methods = ["/s/Write"]
[[allow]]
identities = ["token:*", "uid:0"]
methods = ["/s/*"]
)");
  const auto control = Open({.tokens_file = tokens_.path(), .policy_file = policy_.path()});
  EXPECT_EQ(Judge(*control, "uid:0", {"Bearer secret"}), "token:ci of vision");
  EXPECT_EQ(Judge(*control, "uid:0", {"Bearer secret"}, true, 1), "method");
  EXPECT_EQ(Judge(*control, "uid:0", {}, true, 1), "uid:0");
  EXPECT_EQ(Judge(*control, "uid:7"), "method");
  EXPECT_EQ(Judge(*control, "uid:0", {}, true, /*method=*/99), "uid:0");
  EXPECT_EQ(Judge(*control, "uid:7", {}, true, /*method=*/99), "method");
}

TEST_F(AccessControlTest, DnsNamesHaveNoCaseAndOtherNamesHave) {
  policy_.Write(std::string("[[tenant]]\nname = \"one\"\nidentities = [\"dns:*.One.Example\"]\n") + kAllowAll +
                "[[deny]]\nidentities = [\"dns:Evil.example\", \"*.BAD.example\", \"cn:Evil\"]\nmethods = [\"*\"]\n");
  const auto control = Open({.policy_file = policy_.path()});
  for (const char* name : {"dns:evil.example", "dns:EVIL.EXAMPLE", "dns:a.bad.Example", "cn:Evil"}) {
    EXPECT_EQ(Judge(*control, name), "method") << name;
  }
  EXPECT_EQ(Judge(*control, "cn:evil"), "cn:evil");
  EXPECT_EQ(Judge(*control, "uri:a.bad.example"), "uri:a.bad.example");
  EXPECT_EQ(Judge(*control, "dns:a.one.example"), "dns:a.one.example of one");
}

TEST_F(AccessControlTest, ErrorsShowNoNamesToUnknownCallers) {
  const auto control = Open(WithTokens());
  for (const Denial denial : {Denial::kNoCredentials, Denial::kMalformedCredentials, Denial::kUnknownToken,
                              Denial::kExpiredToken, Denial::kTokenInPlainText}) {
    const absl::Status error = control->ErrorOf({nullptr, denial}, "/s/Read");
    EXPECT_EQ(error.code(), absl::StatusCode::kUnauthenticated) << error;
    EXPECT_TRUE(GetErrorDetail(error).has_value());
  }
  const absl::Status denied =
      control->ErrorOf({std::make_shared<Identity>(Identity{"token:ci", ""}), Denial::kMethod}, "/s/Read");
  EXPECT_EQ(denied.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(denied.message(), "method /s/Read is not allowed to token:ci by this server's policy");
}

TEST_F(AccessControlTest, ARemovedTokenStopsWorkingOnAnOpenConnection) {
  const auto control = Open(WithTokens());
  AccessMemory memory;
  EXPECT_EQ(Judge(*control, &memory, "anonymous", {"Bearer secret"}), "token:ci");
  tokens_.Write(TokenLine("ci", "fresh") + "\n");
  control->Reload();
  EXPECT_EQ(Judge(*control, &memory, "anonymous", {"Bearer secret"}), "unknown_token");
  EXPECT_EQ(Judge(*control, &memory, "anonymous", {"Bearer fresh"}), "token:ci");
}

TEST_F(AccessControlTest, CallsOfOneConnectionAreJudgedByTheirOwnTokens) {
  tokens_.Write(TokenLine("ci", "secret") + "\n" + TokenLine("web", "secrets") + "\n" + TokenLine("old", "expired") +
                " expires=2020-01-01T00:00:00Z\n");
  const auto control = Open(WithTokens());
  AccessMemory memory;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Judge(*control, &memory, "anonymous", {"Bearer secret"}), "token:ci");
    EXPECT_EQ(Judge(*control, &memory, "anonymous", {"Bearer secret"}), "token:ci");
    EXPECT_EQ(Judge(*control, &memory, "anonymous", {"Bearer secre"}), "unknown_token");
    EXPECT_EQ(Judge(*control, &memory, "anonymous", {"Bearer secrez"}), "unknown_token");
    EXPECT_EQ(Judge(*control, &memory, "anonymous", {"Bearer secrets"}), "token:web");
    EXPECT_EQ(Judge(*control, &memory, "anonymous", {"Bearer expired"}), "expired_token");
    EXPECT_EQ(Judge(*control, &memory, "anonymous", {"Bearer expired"}), "expired_token");
    EXPECT_EQ(Judge(*control, &memory, "anonymous", {"Bearer secret"}, /*is_private=*/false), "token_in_plain_text");
    EXPECT_EQ(Judge(*control, &memory, "anonymous"), "no_credentials");
  }
}

TEST_F(AccessControlTest, APolicyThatChangesHoldsForOpenConnections) {
  const auto control = Open({.policy_file = policy_.path()});
  AccessMemory memory;
  EXPECT_EQ(Judge(*control, &memory, "uid:7"), "uid:7");
  policy_.Write("[[allow]]\nidentities = [\"uid:8\"]\nmethods = [\"*\"]\n");
  control->Reload();
  EXPECT_EQ(Judge(*control, &memory, "uid:7"), "method");
}

TEST_F(AccessControlTest, TheLastGoodFileStaysInForceAndTheFailureIsReportedOnce) {
  const auto control = Open({.tokens_file = tokens_.path(), .policy_file = policy_.path()});
  policy_.Write("[[alow]]");
  for (int i = 0; i < 5; ++i) Watch(*control);
  EXPECT_THAT(changes_, ElementsAre("policy bad"));
  EXPECT_EQ(Judge(*control, "uid:7"), "uid:7");
  AccessStats stats = control->stats();
  EXPECT_EQ(stats.files[1].stale, 1);
  EXPECT_EQ(stats.files[1].failures, 1);
  EXPECT_EQ(stats.files[1].loads, 1);
  EXPECT_EQ(stats.files[0].stale, 0);
  policy_.Write(kAllowAll);
  control->Reload();
  EXPECT_THAT(changes_, ElementsAre("policy bad", "policy taken"));
  EXPECT_EQ(control->stats().files[1].stale, 0);
}

TEST_F(AccessControlTest, AFileThatIsGoneOrOpenToOthersChangesNothing) {
  const auto control = Open(WithTokens());
  tokens_.Allow(std::filesystem::perms::all);
  control->Reload();
  std::filesystem::remove(tokens_.path());
  control->Reload();
  EXPECT_THAT(changes_, ElementsAre("tokens bad", "tokens bad"));
  EXPECT_EQ(Judge(*control, "anonymous", {"Bearer secret"}), "token:ci");
}

TEST_F(AccessControlTest, TheWatchWaitsUntilAFileIsWrittenToItsEnd) {
  const auto control = Open({.policy_file = policy_.path()});
  policy_.Write("# so far it makes sense\n");
  Watch(*control);
  EXPECT_EQ(Judge(*control, "uid:7"), "uid:7");
  policy_.Write(std::string(kAllowAll) + "# whole\n");
  Watch(*control);
  Watch(*control);
  EXPECT_EQ(Judge(*control, "uid:7"), "uid:7");
  EXPECT_EQ(control->stats().files[1].loads, 2);
}

TEST_F(AccessControlTest, RefusesToOpenWithFilesThatCannotBeUsed) {
  tokens_.Allow(std::filesystem::perms::owner_read | std::filesystem::perms::others_read);
  const absl::Status open = AccessControl::Open({.tokens_file = tokens_.path()}, &clock_).status();
  EXPECT_EQ(open.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(open.message()), HasSubstr("--tokens_file " + tokens_.path() + ": is open to other users"));
  const absl::Status missing = AccessControl::Open({.policy_file = "/nonexistent/p"}, &clock_).status();
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("--policy_file /nonexistent/p: cannot be opened: No such file"));
  const absl::Status folder = AccessControl::Open({.policy_file = tokens_.folder()}, &clock_).status();
  EXPECT_THAT(std::string(folder.message()), HasSubstr("is no regular file"));
}

// Writes versions of a policy in place, one piece at each step: empty at first, then without its last rule, which
// denies.
class InPlaceWriter {
 public:
  explicit InPlaceWriter(const TemporaryFile& file) : path_(file.path()) {}

  void Step() {
    if (written_ == text_.size()) {
      text_ = std::string(kAllowAll) + "# version " + std::to_string(++version_) + "\n" +
              "[[deny]]\nidentities = [\"uid:7\"]\nmethods = [\"/s/Write\"]\n";
      written_ = 0;
      std::ofstream(path_, std::ios::trunc).flush();
      return;
    }
    const size_t end = written_ == 0 ? text_.find("[[deny]]") : text_.size();
    std::ofstream(path_, std::ios::app) << text_.substr(written_, end - written_);
    written_ = end;
  }
  void Finish() {
    do Step();
    while (written_ != text_.size());
  }

 private:
  const std::string path_;
  std::string text_;
  size_t written_ = 0;
  int version_ = 0;
};

TEST_F(AccessControlTest, ARuleOfEveryVersionHoldsWhileThePolicyIsWrittenInPlaceUnderReloads) {
  InPlaceWriter writer(policy_);
  writer.Finish();
  const auto control = Open({.policy_file = policy_.path()});
  settling_.meanwhile = [&] {
    writer.Step();
    EXPECT_EQ(Judge(*control, "uid:7", {}, true, 1), "method");
    EXPECT_EQ(Judge(*control, "uid:7"), "uid:7");
  };
  for (int i = 0; i < 10; ++i) {
    writer.Step();
    control->Reload();
    EXPECT_EQ(Judge(*control, "uid:7", {}, true, 1), "method");
    EXPECT_EQ(Judge(*control, "uid:7"), "uid:7");
  }
  EXPECT_THAT(changes_, ElementsAre("policy bad")) << "told once";
  EXPECT_EQ(control->stats().files[1].stale, 1);
  EXPECT_EQ(control->stats().files[1].loads, 1);
  writer.Finish();
  settling_.meanwhile = nullptr;
  for (int i = 0; i < 2; ++i) Watch(*control);
  EXPECT_THAT(changes_, ElementsAre("policy bad", "policy taken")) << "the watch looks again";
  EXPECT_EQ(control->stats().files[1].stale, 0);
}

TEST_F(AccessControlTest, TheSameHalfOfTwoVersionsIsNoSettledFile) {
  const auto control = Open({.policy_file = policy_.path()});
  // The clock of files may not have moved between two writes of a test.
  auto changed = std::filesystem::last_write_time(policy_.path());
  settling_.meanwhile = [&] {
    policy_.Write("");
    std::filesystem::last_write_time(policy_.path(), changed += std::chrono::milliseconds(50));
  };
  settling_.meanwhile();
  control->Reload();
  EXPECT_EQ(Judge(*control, "uid:7"), "uid:7");
  EXPECT_EQ(control->stats().files[1].loads, 1);
}

TEST_F(AccessControlTest, AReloadTakesAFileThatWasRenamedIntoPlace) {
  const auto control = Open(WithTokens());
  TemporaryFile next(TokenLine("web", "fresh") + "\n");
  std::filesystem::rename(next.path(), tokens_.path());
  control->Reload();
  EXPECT_EQ(Judge(*control, "anonymous", {"Bearer fresh"}), "token:web");
  EXPECT_EQ(settling_.slept, kSettleTime);
  control->Reload();
  EXPECT_EQ(settling_.slept, kSettleTime) << "nothing has changed, so nothing is waited for";
}

// Two policies are put in force in turn, each of which allows both methods to one user alone.
TEST_F(AccessControlTest, NoCallIsJudgedByHalfOfTwoPolicies) {
  const auto of = [](const std::string& uid, const std::string& tenant) {
    return "[[tenant]]\nname = \"" + tenant + "\"\nidentities = [\"*\"]\n[[allow]]\nidentities = [\"" + uid +
           "\"]\nmethods = [\"*\"]\n";
  };
  policy_.Write(of("uid:1", "one"));
  const auto control = Open({.policy_file = policy_.path()});
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0}, judged{0};
  std::vector<std::thread> callers;
  for (const char* uid : {"uid:1", "uid:2"}) {
    callers.emplace_back([&, uid = std::string(uid)] {
      AccessMemory memory;
      const std::string right = uid == "uid:1" ? "uid:1 of one" : "uid:2 of two";
      while (!done) {
        const std::string got = Judge(*control, &memory, uid);
        if (got != right && got != "method") ++wrong;
        ++judged;
      }
    });
  }
  for (int i = 0; i < 60; ++i) {
    policy_.Write(i % 2 == 0 ? of("uid:2", "two") : of("uid:1", "one"));
    control->Reload();
  }
  while (judged < 1000) std::this_thread::yield();
  done = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace normd
