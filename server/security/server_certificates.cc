#include "server/security/server_certificates.h"

#include <openssl/evp.h>

#include <utility>

#include "kernels/base/status_macros.h"

namespace normd {
namespace {

// SHA-256 of the texts, so that the watch keeps no second copy of the key.
std::string FingerprintOf(const CertificateTexts& texts) {
  std::string all;
  for (const std::string* text : {&texts.certificate, &texts.key, &texts.client_ca}) {
    // The sizes keep the texts apart.
    all.append(std::to_string(text->size())).append(":").append(*text);
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(all.data(), all.size(), digest, &size, EVP_sha256(), nullptr);
  return std::string(reinterpret_cast<const char*>(digest), size);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerCertificates>> ServerCertificates::Open(CertificatePaths paths,
                                                                             absl::Duration interval, Clock* clock,
                                                                             Observer observer) {
  std::unique_ptr<ServerCertificates> certificates(
      new ServerCertificates(std::move(paths), clock, std::move(observer)));
  std::string fingerprint;
  NORMD_RETURN_IF_ERROR(certificates->Load(&fingerprint));
  certificates->WarnOfExpiry();
  certificates->watch_.emplace(interval, [self = certificates.get()] { self->Look(); });
  return certificates;
}

ServerCertificates::ServerCertificates(CertificatePaths paths, Clock* clock, Observer observer)
    : paths_(std::move(paths)), clock_(clock), observer_(std::move(observer)) {}

std::shared_ptr<const Certificates> ServerCertificates::current() const {
  MutexLock lock(mu_);
  return current_;
}

CertificateStats ServerCertificates::stats() const {
  MutexLock lock(mu_);
  return {.expiry = current_->expiry, .reloads = reloads_, .failed_reloads = failed_reloads_};
}

absl::Status ServerCertificates::Reload() {
  std::string fingerprint;
  absl::Status loaded = Load(&fingerprint);
  if (!loaded.ok()) Report(loaded, fingerprint);
  WarnOfExpiry();
  return loaded;
}

void ServerCertificates::Look() {
  std::string fingerprint;
  const absl::Status loaded = Load(&fingerprint);
  bool again = false;
  {
    MutexLock lock(mu_);
    again = memory_.See(fingerprint);
  }
  if (!loaded.ok() && again) Report(loaded, fingerprint);
  WarnOfExpiry();
}

absl::Status ServerCertificates::Load(std::string* fingerprint) {
  absl::StatusOr<CertificateTexts> texts = ReadCertificates(paths_);
  // What cannot be read has its error for a content.
  *fingerprint = texts.ok() ? FingerprintOf(*texts) : std::string(texts.status().message());
  NORMD_RETURN_IF_ERROR(texts.status());
  {
    MutexLock lock(mu_);
    if (*fingerprint == good_) {
      memory_.Note(good_);  // a failure that comes again later is reported again
      return absl::OkStatus();
    }
  }
  NORMD_ASSIGN_OR_RETURN(Certificates certificates, CheckCertificates(paths_, *std::move(texts), clock_->Now()));
  Take(std::move(certificates), *fingerprint);
  return absl::OkStatus();
}

void ServerCertificates::Take(Certificates certificates, const std::string& fingerprint) {
  auto taken = std::make_shared<const Certificates>(std::move(certificates));
  {
    MutexLock lock(mu_);
    if (current_ != nullptr) ++reloads_;
    current_ = taken;
    good_ = fingerprint;
    memory_.Note(fingerprint);
  }
  if (observer_.on_loaded != nullptr) observer_.on_loaded(*taken);
}

void ServerCertificates::Report(const absl::Status& failure, const std::string& fingerprint) {
  {
    MutexLock lock(mu_);
    if (!memory_.Note(fingerprint)) return;
    ++failed_reloads_;
  }
  if (observer_.on_failed != nullptr) observer_.on_failed(failure);
}

void ServerCertificates::WarnOfExpiry() {
  std::shared_ptr<const Certificates> expiring;
  {
    MutexLock lock(mu_);
    if (warned_ == current_ || current_->expiry - clock_->Now() > kWarnBefore) return;
    warned_ = expiring = current_;
  }
  if (observer_.on_expiring != nullptr) observer_.on_expiring(*expiring);
}

}  // namespace normd
