#include "server/security/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "absl/time/clock.h"
#include "kernels/base/errors.h"
#include "tests/server/security/certificate_files.h"

namespace normd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CertificatesTest : public CertificateFilesTest {
 protected:
  void WriteClientCa(const std::string& text) {
    paths_.client_ca = folder_ + "/clients.pem";
    WriteFile(paths_.client_ca, text, 0644);
  }
  absl::StatusOr<Certificates> Load() const {
    std::string states;
    absl::StatusOr<CertificateTexts> texts = ReadCertificates(paths_, &states);
    if (!texts.ok()) return texts.status();
    return CheckCertificates(paths_, *std::move(texts), absl::Now());
  }
  std::string ErrorOfLoad() const {
    const absl::Status status = Load().status();
    EXPECT_EQ(status.ok() ? "" : GetErrorDetail(status)->field.substr(0, 6), "--tls_") << status.message();
    return std::string(status.message());
  }
};

TEST_F(CertificatesTest, LoadsAPairAndKnowsItsSubjectAndExpiry) {
  const absl::StatusOr<Certificates> loaded = Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->subject, "CN=normd");
  EXPECT_NEAR(absl::ToDoubleHours(loaded->expiry - absl::Now()), 90 * 24, 1);
}

TEST_F(CertificatesTest, AChainExpiresWithItsFirstMember) {
  const TestCa intermediate("Intermediate", /*valid_until_seconds=*/86'400);
  const TestCertificate pair = ca_.Issue();
  Write({.certificate = pair.certificate + intermediate.certificate(), .key = pair.key});
  const absl::StatusOr<Certificates> loaded = Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_NEAR(absl::ToDoubleHours(loaded->expiry - absl::Now()), 24, 1);
}

TEST_F(CertificatesTest, AFileThatCannotBeReadIsNamedWithTheReason) {
  unlink(paths_.certificate.c_str());
  EXPECT_EQ(ErrorOfLoad(),
            "--tls_certificate is " + paths_.certificate + ", which cannot be read: No such file or directory");
  WriteFile(paths_.certificate, ca_.Issue().certificate);
  paths_.key = folder_;
  EXPECT_EQ(ErrorOfLoad(), "--tls_key is " + folder_ + ", which is not a file");
}

TEST_F(CertificatesTest, AKeyOfAnotherCertificateIsRefused) {
  WriteFile(paths_.key, ca_.Issue().key);
  EXPECT_EQ(ErrorOfLoad(),
            "--tls_key is " + paths_.key + ", which is not the key of the certificate in " + paths_.certificate);
}

TEST_F(CertificatesTest, ExpiredAndFutureCertificatesAreRefusedWithTheirTimes) {
  Write(ca_.Issue({.valid_until_seconds = -60}));
  EXPECT_THAT(ErrorOfLoad(),
              AllOf(StartsWith("--tls_certificate is "), HasSubstr("has expired: CN=normd, valid until 2")));
  Write(ca_.Issue({.valid_from_seconds = 3600}));
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("is not valid yet: CN=normd, valid from 2"));
}

TEST_F(CertificatesTest, RefusesFilesThatAreNotPem) {
  const TestCertificate pair = ca_.Issue();
  Write({.certificate = "hello", .key = pair.key});
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("has no certificate in PEM"));
  Write({.certificate = pair.certificate.substr(0, pair.certificate.size() / 2), .key = pair.key});
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("certificate"));
  Write({.certificate = pair.certificate, .key = "hello"});
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("has no private key in PEM"));
  Write({.certificate = pair.certificate + std::string(1, '\0'), .key = pair.key});
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("null byte"));
  Write({.certificate = std::string((1 << 20) + 1, 'x'), .key = pair.key});
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("over 1 MiB"));
}

TEST_F(CertificatesTest, AnEncryptedKeyIsRefusedAndNobodyIsAskedForAPassPhrase) {
  const TestCertificate pair = ca_.Issue();
  Write({.certificate = pair.certificate, .key = EncryptedKey(pair.key)});
  EXPECT_EQ(ErrorOfLoad(), "--tls_key is " + paths_.key + ", which has a pass phrase: normd takes keys without one");
}

TEST_F(CertificatesTest, AKeyThatOpenSslFindsTooWeakIsRefusedAtTheLoadAndNotAtTheHandshake) {
  Write(ca_.Issue({.rsa_bits = 1024}));
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("cannot be used: ee key too small"));
}

TEST_F(CertificatesTest, ACertificateForClientsAloneIsRefused) {
  Write(ca_.Issue({.key_usage = "clientAuth"}));
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("no certificate for servers"));
}

TEST_F(CertificatesTest, AKeyThatOthersMayReadIsRefused) {
  for (const mode_t mode : {0644, 0604, 0606, 0620, 0660}) {
    chmod(paths_.key.c_str(), mode);
    EXPECT_THAT(ErrorOfLoad(), AllOf(StartsWith("--tls_key is "), HasSubstr("chmod 600"))) << mode;
    EXPECT_EQ(GetErrorDetail(Load().status())->reason, "KEY_NOT_PRIVATE");
  }
  for (const mode_t mode : {0600, 0400}) {
    chmod(paths_.key.c_str(), mode);
    EXPECT_TRUE(Load().ok()) << mode;
  }
}

// A secret of Kubernetes belongs to root and is readable by the group of the pod.
TEST_F(CertificatesTest, AGroupMayReadTheKeyOnlyIfItIsOfRoot) {
  chmod(paths_.key.c_str(), 0440);
  EXPECT_EQ(Load().ok(), geteuid() == 0);
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(paths_.key.c_str(), 65534, 65534), 0);
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("chmod 440"));
}

TEST_F(CertificatesTest, AClientCaNeedsOneCertificateThatIsValid) {
  const TestCa expired("Old CA", /*valid_until_seconds=*/-60);
  WriteClientCa(expired.certificate());
  EXPECT_THAT(ErrorOfLoad(), AllOf(StartsWith("--tls_client_ca is "), HasSubstr("has expired: CN=Old CA")));
  WriteClientCa(expired.certificate() + ca_.certificate());
  EXPECT_TRUE(Load().ok());
  WriteClientCa("nothing");
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("has no certificate in PEM"));
}

}  // namespace
}  // namespace normd
