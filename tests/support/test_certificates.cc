#include "tests/support/test_certificates.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "gtest/gtest.h"

namespace normd {
namespace {

std::string TextOf(BIO* writer) {
  char* text = nullptr;
  const auto size = BIO_get_mem_data(writer, &text);
  std::string copy(text, static_cast<size_t>(size));
  BIO_free(writer);
  return copy;
}

std::string PemOf(X509* certificate) {
  BIO* const writer = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(writer, certificate);
  return TextOf(writer);
}

std::shared_ptr<EVP_PKEY> NewKey(int rsa_bits) {
  EVP_PKEY* const key =
      rsa_bits > 0 ? EVP_RSA_gen(static_cast<unsigned>(rsa_bits)) : EVP_EC_gen(const_cast<char*>("P-256"));
  return {key, EVP_PKEY_free};
}

void AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  if (value.empty()) return;
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  if (extension == nullptr) std::abort();  // the test's own mistake
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// A certificate of `key` that is not signed yet.
std::shared_ptr<X509> NewCertificate(const std::string& common_name, EVP_PKEY* key, int64_t from, int64_t until) {
  std::shared_ptr<X509> certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), 2);
  uint64_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial));
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), serial >> 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), from);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), until);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1, 0);
  X509_set_pubkey(certificate.get(), key);
  return certificate;
}

}  // namespace

TestCa::TestCa(const std::string& common_name, int64_t valid_until_seconds) : key_(NewKey(0)) {
  certificate_ = NewCertificate(common_name, key_.get(), -7200, valid_until_seconds);
  X509_set_issuer_name(certificate_.get(), X509_get_subject_name(certificate_.get()));
  AddExtension(certificate_.get(), certificate_.get(), NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(certificate_.get(), certificate_.get(), NID_key_usage, "critical,keyCertSign,cRLSign");
  X509_sign(certificate_.get(), key_.get(), EVP_sha256());
  pem_ = PemOf(certificate_.get());
}

TestCertificate TestCa::Issue(const TestCertificateSpec& spec) const {
  const std::shared_ptr<EVP_PKEY> key = NewKey(spec.rsa_bits);
  const std::shared_ptr<X509> certificate =
      NewCertificate(spec.common_name, key.get(), spec.valid_from_seconds, spec.valid_until_seconds);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate_.get()));
  AddExtension(certificate.get(), certificate_.get(), NID_subject_alt_name, spec.alternative_names);
  AddExtension(certificate.get(), certificate_.get(), NID_ext_key_usage, spec.key_usage);
  X509_sign(certificate.get(), key_.get(), EVP_sha256());
  BIO* const writer = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(writer, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  return {.certificate = PemOf(certificate.get()), .key = TextOf(writer)};
}

std::string EncryptedKey(const std::string& key) {
  BIO* const reader = BIO_new_mem_buf(key.data(), static_cast<int>(key.size()));
  const std::shared_ptr<EVP_PKEY> parsed(PEM_read_bio_PrivateKey(reader, nullptr, nullptr, nullptr), EVP_PKEY_free);
  BIO_free(reader);
  BIO* const writer = BIO_new(BIO_s_mem());
  char phrase[] = "secret";
  PEM_write_bio_PKCS8PrivateKey(writer, parsed.get(), EVP_aes_256_cbc(), phrase, sizeof(phrase) - 1, nullptr, nullptr);
  return TextOf(writer);
}

void WriteFile(const std::string& path, const std::string& text, mode_t mode) {
  const std::string temporary = path + ".new";
  unlink(temporary.c_str());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  fchmod(fd, mode);
  close(fd);
  ASSERT_EQ(std::rename(temporary.c_str(), path.c_str()), 0);
}

}  // namespace normd
