// A fixture with a CA, and with a server's certificate and key in files of the test's own.
#ifndef NORMD_TESTS_SERVER_SECURITY_CERTIFICATE_FILES_H_
#define NORMD_TESTS_SERVER_SECURITY_CERTIFICATE_FILES_H_

#include <gtest/gtest.h>

#include <string>

#include "server/security/certificates.h"
#include "tests/support/temporary_file.h"
#include "tests/support/test_certificates.h"

namespace normd {

class CertificateFilesTest : public ::testing::Test {
 protected:
  CertificateFilesTest() { Write(ca_.Issue()); }

  void Write(const TestCertificate& pair) {
    WriteFile(paths_.certificate, pair.certificate, 0644);
    WriteFile(paths_.key, pair.key);
  }

  const TestCa ca_{"Test CA"};
  const TemporaryFile file_;
  const std::string folder_ = file_.folder();
  CertificatePaths paths_ = {.certificate = folder_ + "/server.pem", .key = folder_ + "/server.key", .client_ca = ""};
};

}  // namespace normd

#endif  // NORMD_TESTS_SERVER_SECURITY_CERTIFICATE_FILES_H_
