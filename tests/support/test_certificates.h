// Certificates for tests, made on the spot: no key is ever in the repository. Keys are of P-256, which takes no time.
// Pure functions but for WriteFile; a TestCa is thread-compatible.
#ifndef NORMD_TESTS_SUPPORT_TEST_CERTIFICATES_H_
#define NORMD_TESTS_SUPPORT_TEST_CERTIFICATES_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

typedef struct evp_pkey_st EVP_PKEY;
typedef struct x509_st X509;

namespace normd {

// PEM texts that belong together.
struct TestCertificate {
  std::string certificate;
  std::string key;
};

struct TestCertificateSpec {
  std::string common_name = "normd";
  // As OpenSSL writes them: "DNS:localhost,IP:127.0.0.1,URI:spiffe://test/trainer". Empty: none.
  std::string alternative_names = "DNS:localhost,IP:127.0.0.1";
  std::string key_usage = "serverAuth,clientAuth";  // the extended one
  int64_t valid_from_seconds = -3600;               // from now on
  int64_t valid_until_seconds = 90 * 86'400;
  int rsa_bits = 0;  // 0: P-256
};

class TestCa {
 public:
  explicit TestCa(const std::string& common_name, int64_t valid_until_seconds = 365 * 86'400);

  const std::string& certificate() const { return pem_; }
  TestCertificate Issue(const TestCertificateSpec& spec = {}) const;

 private:
  std::shared_ptr<EVP_PKEY> key_;
  std::shared_ptr<X509> certificate_;
  std::string pem_;
};

// The key, encrypted with a pass phrase.
std::string EncryptedKey(const std::string& key);

// Replaces the file as renewing tools do, by a rename.
void WriteFile(const std::string& path, const std::string& text, mode_t mode = 0600);

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_TEST_CERTIFICATES_H_
