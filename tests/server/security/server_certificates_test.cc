#include "server/security/server_certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "tests/server/security/certificate_files.h"
#include "tests/server/security/fake_settling.h"

namespace normd {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kNever = absl::Hours(1);
constexpr absl::Duration kOften = absl::Milliseconds(5);

bool Eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 6000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return holds();
}

class ServerCertificatesTest : public CertificateFilesTest {
 protected:
  void Open(absl::Duration interval, Settling settling = {}) {
    ServerCertificates::Observer observer;
    observer.on_loaded = [this](const Certificates& loaded) { Note(&loaded_, loaded.subject); };
    observer.on_expiring = [this](const Certificates& expiring) { Note(&expiring_, expiring.subject); };
    observer.on_failed = [this](const absl::Status& why) { Note(&failed_, std::string(why.message())); };
    auto opened = ServerCertificates::Open(paths_, interval, &clock_, observer, std::move(settling));
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    certificates_ = *std::move(opened);
  }
  void Note(std::vector<std::string>* list, std::string text) {
    MutexLock lock(mu_);
    list->push_back(std::move(text));
  }
  std::vector<std::string> Read(const std::vector<std::string>& list) {
    MutexLock lock(mu_);
    return list;
  }
  std::string Served() const { return certificates_->current()->texts.certificate; }

  SystemClock clock_;
  Mutex mu_;
  std::vector<std::string> loaded_, expiring_, failed_;
  std::unique_ptr<ServerCertificates> certificates_;
};

TEST_F(ServerCertificatesTest, DoesNotOpenWithUnusableFiles) {
  WriteFile(paths_.key, ca_.Issue().key);
  EXPECT_FALSE(ServerCertificates::Open(paths_, kNever, &clock_, {}).ok());
}

TEST_F(ServerCertificatesTest, TheWatchTakesANewPair) {
  Open(kOften);
  const auto before = certificates_->current();
  const TestCertificate next = ca_.Issue({.common_name = "next"});
  Write(next);
  EXPECT_TRUE(Eventually([&] { return Served() == next.certificate; }));
  EXPECT_NE(certificates_->current(), before);
  EXPECT_NE(before->texts.certificate, next.certificate) << "who has the old ones keeps them";
  EXPECT_THAT(Read(loaded_), ::testing::ElementsAre("CN=normd", "CN=next"));
  EXPECT_EQ(certificates_->stats().reloads, 1);
}

TEST_F(ServerCertificatesTest, TheLastGoodPairStaysAndEachFailureIsReportedOnce) {
  Open(kOften);
  const std::string good = Served();
  WriteFile(paths_.key, ca_.Issue().key);
  ASSERT_TRUE(Eventually([&] { return certificates_->stats().failed_reloads == 1; }));
  // Many looks later it is still one.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_THAT(Read(failed_), SizeIs(1));
  EXPECT_THAT(Read(failed_)[0], HasSubstr("is not the key of the certificate"));
  EXPECT_EQ(Served(), good);
  unlink(paths_.certificate.c_str());
  ASSERT_TRUE(Eventually([&] { return certificates_->stats().failed_reloads == 2; }));
  EXPECT_THAT(Read(failed_)[1], HasSubstr("No such file"));
  EXPECT_EQ(Served(), good);
  const TestCertificate next = ca_.Issue();
  Write(next);
  EXPECT_TRUE(Eventually([&] { return Served() == next.certificate; }));
}

TEST_F(ServerCertificatesTest, ReloadLoadsAtOnceAndSaysWhyNot) {
  Open(kNever);
  EXPECT_TRUE(certificates_->Reload().ok()) << "nothing has changed";
  EXPECT_EQ(certificates_->stats().reloads, 0);
  const TestCertificate next = ca_.Issue();
  Write(next);
  EXPECT_TRUE(certificates_->Reload().ok());
  EXPECT_EQ(Served(), next.certificate);
  chmod(paths_.key.c_str(), 0644);
  EXPECT_THAT(std::string(certificates_->Reload().message()), HasSubstr("chmod 600"));
  EXPECT_FALSE(certificates_->Reload().ok());
  EXPECT_EQ(certificates_->stats().failed_reloads, 1) << "the same content counts once";
  EXPECT_EQ(Served(), next.certificate);
}

// A file of CAs that is cut off makes sense, and refuses the clients of those that are missing.
TEST_F(ServerCertificatesTest, AReloadTakesNoFileThatKeepsChanging) {
  FakeSettling settling;
  paths_.client_ca = folder_ + "/ca.pem";
  WriteFile(paths_.client_ca, ca_.certificate());
  Open(kNever, settling.settling());
  const std::string before = certificates_->current()->texts.client_ca;
  const std::string more = before + TestCa("other").certificate();
  int pieces = 0;
  settling.meanwhile = [&] { WriteFile(paths_.client_ca, more + std::string(++pieces, '\n')); };
  settling.meanwhile();
  EXPECT_THAT(std::string(certificates_->Reload().message()), HasSubstr("which keeps changing"));
  EXPECT_FALSE(certificates_->Reload().ok());
  EXPECT_EQ(certificates_->stats().failed_reloads, 1) << "told once";
  EXPECT_EQ(certificates_->current()->texts.client_ca, before);
  WriteFile(paths_.client_ca, more);
  settling.meanwhile = nullptr;
  EXPECT_TRUE(certificates_->Reload().ok());
  EXPECT_EQ(certificates_->current()->texts.client_ca, more);
}

TEST_F(ServerCertificatesTest, AFailureThatComesAgainIsReportedAgain) {
  Open(kNever);
  for (int round = 1; round <= 2; ++round) {
    chmod(paths_.key.c_str(), 0644);
    EXPECT_FALSE(certificates_->Reload().ok());
    EXPECT_EQ(certificates_->stats().failed_reloads, round);
    chmod(paths_.key.c_str(), 0600);
    EXPECT_TRUE(certificates_->Reload().ok());
  }
}

// Certificate and key are two files, and nobody can replace both at once: between two looks that is no failure.
TEST_F(ServerCertificatesTest, TheWatchGivesTheSecondFileTimeToCome) {
  Open(absl::Milliseconds(500));
  const TestCertificate next = ca_.Issue();
  Write(next);
  EXPECT_TRUE(Eventually([&] { return Served() == next.certificate; }));
  EXPECT_THAT(Read(failed_), IsEmpty());
}

TEST_F(ServerCertificatesTest, WarnsOnceOfACertificateThatExpiresWithinTwoWeeks) {
  Write(ca_.Issue({.common_name = "soon", .valid_until_seconds = 13 * 86'400}));
  Open(kNever);
  EXPECT_THAT(Read(expiring_), ::testing::ElementsAre("CN=soon"));
  EXPECT_TRUE(certificates_->Reload().ok());
  EXPECT_THAT(Read(expiring_), SizeIs(1));
  EXPECT_NEAR(absl::ToDoubleHours(certificates_->stats().expiry - absl::Now()), 13 * 24, 1);
  Write(ca_.Issue({.common_name = "late"}));
  EXPECT_TRUE(certificates_->Reload().ok());
  EXPECT_THAT(Read(expiring_), SizeIs(1));
}

// The warning of two weeks ago may have been read by nobody.
TEST_F(ServerCertificatesTest, ReportsAnExpiredCertificateOnce) {
  struct LateClock : Clock {
    absl::Time Now() override { return absl::Now() + ahead; }
    absl::Duration ahead;
  } clock;
  Write(ca_.Issue({.common_name = "soon", .valid_until_seconds = 86'400}));
  ServerCertificates::Observer observer;
  std::vector<std::string> expired;
  observer.on_expired = [&expired](const Certificates& those) { expired.push_back(those.subject); };
  auto opened = ServerCertificates::Open(paths_, kNever, &clock, observer);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_THAT(expired, IsEmpty());
  clock.ahead = absl::Hours(25);
  EXPECT_TRUE((*opened)->Reload().ok());
  EXPECT_TRUE((*opened)->Reload().ok());
  EXPECT_THAT(expired, ::testing::ElementsAre("CN=soon"));
}

}  // namespace
}  // namespace normd
