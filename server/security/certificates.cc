#include "server/security/certificates.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/error_reasons.h"
#include "server/base/regular_file.h"
#include "server/security/openssl_objects.h"

namespace normd {
namespace {

constexpr char kCertificateOption[] = "--tls_certificate";
constexpr char kKeyOption[] = "--tls_key";
constexpr char kClientCaOption[] = "--tls_client_ca";
constexpr size_t kMaxFileBytes = 1 << 20;

// A file of an option, for messages.
struct OptionFile {
  std::string_view option;
  const std::string& path;
};

constexpr ErrorReason kBadCertificate = ServerReason("BAD_CERTIFICATE");

// `what` completes the sentence "--tls_key is /run/key.pem, which ...".
absl::Status FileError(const OptionFile& file, std::string_view what, ErrorReason reason = kBadCertificate) {
  return MakeError(reason, {.field = std::string(file.option), .value = file.path, .limit = ""},
                   Concat("is ", file.path, ", which ", what));
}

// The last reason in OpenSSL's queue, which is emptied: "ee key too small".
std::string LibraryReason() {
  const unsigned long error = ERR_peek_last_error();  // NOLINT(google-runtime-int): OpenSSL's own type
  ERR_clear_error();
  const char* const reason = ERR_reason_error_string(error);
  return reason == nullptr ? "unknown reason" : reason;
}

using ContextPtr = std::unique_ptr<SSL_CTX, Freer<SSL_CTX_free>>;

// Whoever can read the key can pose as the server.
absl::Status CheckKeyMode(const OptionFile& file, const struct stat& info) {
  const bool others = (info.st_mode & (S_IRWXO | S_IWGRP | S_IXGRP)) != 0;
  const bool group = (info.st_mode & S_IRGRP) != 0 && info.st_uid != 0;
  if (!others && !group) return absl::OkStatus();
  return FileError(file,
                   "others can read or change: a private key must be its owner's alone (chmod 600), or of root and "
                   "readable by a group (chmod 440)",
                   ServerReason("KEY_NOT_PRIVATE"));
}

absl::StatusOr<std::string> ReadFile(const OptionFile& file, bool is_key, std::string* states) {
  const auto check = [&](const struct stat& info) {
    states->append(FileState(info)).append("\n");
    return is_key ? CheckKeyMode(file, info) : absl::OkStatus();
  };
  const auto error_of = [&](FileProblem problem, int number) {
    if (problem == FileProblem::kNotRegular) return FileError(file, "is not a file");
    if (problem == FileProblem::kTooLarge) return FileError(file, "has over 1 MiB");
    return FileError(file, Concat("cannot be read: ", std::system_category().message(number)));
  };
  NORMD_ASSIGN_OR_RETURN(std::string text, ReadRegularFile(file.path, kMaxFileBytes, check, error_of));
  // gRPC takes the text as a C string and would not see what follows.
  if (text.find('\0') != std::string::npos) return FileError(file, "is not PEM: it has a null byte");
  return text;
}

// All certificates of a PEM text, in its order. Other objects in it are passed over.
absl::StatusOr<std::vector<X509Ptr>> ParseCertificates(const OptionFile& file, const std::string& text) {
  const BioPtr reader = ReaderOf(text);
  std::vector<X509Ptr> certificates;
  ERR_clear_error();
  while (X509* const one = PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr)) certificates.emplace_back(one);
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string reason = LibraryReason();
  if (!at_end) return FileError(file, Concat("has a damaged certificate: ", reason));
  if (certificates.empty()) return FileError(file, "has no certificate in PEM");
  return certificates;
}

// Answers OpenSSL's question for a pass phrase, so that it does not ask on the terminal.
int NoPassPhrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

absl::StatusOr<KeyPtr> ParseKey(const OptionFile& file, const std::string& text) {
  const BioPtr reader = ReaderOf(text);
  bool asked = false;
  ERR_clear_error();
  KeyPtr key(PEM_read_bio_PrivateKey(reader.get(), nullptr, NoPassPhrase, &asked));
  const std::string reason = LibraryReason();
  if (key != nullptr) return key;
  if (asked) return FileError(file, "has a pass phrase: normd takes keys without one");
  return FileError(file, Concat("has no private key in PEM: ", reason));
}

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? absl::FromTimeT(timegm(&parts)) : absl::InfinitePast();
}

bool IsValid(const X509* certificate, absl::Time now) {
  return TimeOf(X509_get0_notBefore(certificate)) <= now && now < TimeOf(X509_get0_notAfter(certificate));
}

std::string NameOf(const X509* certificate) {
  const BioPtr writer(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(writer.get(), X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
  char* text = nullptr;
  const auto size = BIO_get_mem_data(writer.get(), &text);
  return std::string(text, static_cast<size_t>(size));
}

// "has expired: CN=normd, valid until 2026-01-01T00:00:00Z"
absl::Status CheckTime(const OptionFile& file, const X509* certificate, absl::Time now) {
  const absl::Time begin = TimeOf(X509_get0_notBefore(certificate));
  const absl::Time end = TimeOf(X509_get0_notAfter(certificate));
  const auto text = [](absl::Time time) { return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone()); };
  if (now < begin) {
    return FileError(file, Concat("is not valid yet: ", NameOf(certificate), ", valid from ", text(begin)));
  }
  if (now >= end) return FileError(file, Concat("has expired: ", NameOf(certificate), ", valid until ", text(end)));
  return absl::OkStatus();
}

// Loads the pair as gRPC will, because OpenSSL checks some things, such as the strength of keys, only then.
absl::Status CheckUse(const OptionFile& file, const std::vector<X509Ptr>& chain, EVP_PKEY* key) {
  const ContextPtr context(SSL_CTX_new(TLS_server_method()));
  ERR_clear_error();
  bool taken = context != nullptr && SSL_CTX_use_certificate(context.get(), chain.front().get()) == 1;
  for (size_t i = 1; i < chain.size() && taken; ++i) {
    taken = SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) == 1;
  }
  taken = taken && SSL_CTX_use_PrivateKey(context.get(), key) == 1;
  if (!taken) return FileError(file, Concat("cannot be used: ", LibraryReason()));
  if (X509_check_purpose(chain.front().get(), X509_PURPOSE_SSL_SERVER, 0) != 1) {
    return FileError(file, "is no certificate for servers (see its key usage)");
  }
  return absl::OkStatus();
}

absl::Status CheckClientCa(const OptionFile& file, const std::string& text, absl::Time now) {
  NORMD_ASSIGN_OR_RETURN(const std::vector<X509Ptr> authorities, ParseCertificates(file, text));
  const bool usable = std::any_of(authorities.begin(), authorities.end(),
                                  [now](const X509Ptr& certificate) { return IsValid(certificate.get(), now); });
  return usable ? absl::OkStatus() : CheckTime(file, authorities.front().get(), now);
}

}  // namespace

absl::StatusOr<CertificateTexts> ReadCertificates(const CertificatePaths& paths, std::string* states) {
  CertificateTexts texts;
  NORMD_ASSIGN_OR_RETURN(texts.certificate,
                         ReadFile({kCertificateOption, paths.certificate}, /*is_key=*/false, states));
  NORMD_ASSIGN_OR_RETURN(texts.key, ReadFile({kKeyOption, paths.key}, /*is_key=*/true, states));
  if (paths.client_ca.empty()) return texts;
  NORMD_ASSIGN_OR_RETURN(texts.client_ca, ReadFile({kClientCaOption, paths.client_ca}, /*is_key=*/false, states));
  return texts;
}

absl::StatusOr<Certificates> CheckCertificates(const CertificatePaths& paths, CertificateTexts texts, absl::Time now) {
  const OptionFile certificate_file = {kCertificateOption, paths.certificate};
  const OptionFile key_file = {kKeyOption, paths.key};
  NORMD_ASSIGN_OR_RETURN(const std::vector<X509Ptr> chain, ParseCertificates(certificate_file, texts.certificate));
  NORMD_ASSIGN_OR_RETURN(const KeyPtr key, ParseKey(key_file, texts.key));
  if (X509_check_private_key(chain.front().get(), key.get()) != 1) {
    ERR_clear_error();
    return FileError(key_file, Concat("is not the key of the certificate in ", paths.certificate));
  }
  absl::Time expiry = absl::InfiniteFuture();
  for (const X509Ptr& certificate : chain) {
    NORMD_RETURN_IF_ERROR(CheckTime(certificate_file, certificate.get(), now));
    expiry = std::min(expiry, TimeOf(X509_get0_notAfter(certificate.get())));
  }
  NORMD_RETURN_IF_ERROR(CheckUse(certificate_file, chain, key.get()));
  if (!paths.client_ca.empty()) {
    NORMD_RETURN_IF_ERROR(CheckClientCa({kClientCaOption, paths.client_ca}, texts.client_ca, now));
  }
  return Certificates{.texts = std::move(texts), .subject = NameOf(chain.front().get()), .expiry = expiry};
}

}  // namespace normd
