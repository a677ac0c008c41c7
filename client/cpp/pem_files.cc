#include "client/cpp/pem_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <memory>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace normd::client {
namespace {

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

absl::StatusOr<Owned<BIO>> Open(absl::string_view what, const std::string& path) {
  errno = 0;
  Owned<BIO> file(BIO_new_file(path.c_str(), "r"));
  const int why = errno;
  ERR_clear_error();
  if (file != nullptr) return file;
  return absl::InvalidArgumentError(
      absl::StrCat("cannot read the ", what, " file ", path, ": ", std::generic_category().message(why)));
}

absl::StatusOr<Owned<X509>> ReadCertificate(absl::string_view what, const std::string& path) {
  const absl::StatusOr<Owned<BIO>> file = Open(what, path);
  if (!file.ok()) return file.status();
  Owned<X509> certificate(PEM_read_bio_X509(file->get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate != nullptr) return certificate;
  return absl::InvalidArgumentError(absl::StrCat("the ", what, " file ", path, " holds no certificate in PEM form"));
}

absl::StatusOr<Owned<EVP_PKEY>> ReadKey(const std::string& path) {
  const absl::StatusOr<Owned<BIO>> file = Open("key", path);
  if (!file.ok()) return file.status();
  bool asked = false;
  // OpenSSL's own would ask at the terminal.
  const auto no_passphrase = [](char*, int, int, void* was_asked) {
    *static_cast<bool*>(was_asked) = true;
    return -1;
  };
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(file->get(), nullptr, no_passphrase, &asked));
  ERR_clear_error();
  if (key != nullptr) return key;
  return absl::InvalidArgumentError(absl::StrCat(
      "the key file ", path, asked ? " has a passphrase; it must have none" : " holds no private key in PEM form"));
}

}  // namespace

absl::Status CheckRootCertificates(const std::string& path) { return ReadCertificate("CA", path).status(); }

absl::Status CheckClientCertificate(const std::string& certificate_path, const std::string& key_path) {
  const absl::StatusOr<Owned<X509>> certificate = ReadCertificate("certificate", certificate_path);
  if (!certificate.ok()) return certificate.status();
  const absl::StatusOr<Owned<EVP_PKEY>> key = ReadKey(key_path);
  if (!key.ok()) return key.status();
  const bool matches = X509_check_private_key(certificate->get(), key->get()) == 1;
  ERR_clear_error();
  if (matches) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the key file ", key_path, " is not the key of the certificate file ", certificate_path));
}

}  // namespace normd::client
