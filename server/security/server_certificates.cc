#include "server/security/server_certificates.h"

#include <openssl/evp.h>

#include <utility>

#include "kernels/base/status_macros.h"
#include "server/security/source_file.h"

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
                                                                             Observer observer, Settling settling) {
  std::unique_ptr<ServerCertificates> certificates(
      new ServerCertificates(std::move(paths), clock, std::move(observer), std::move(settling)));
  std::string states;  // taken as they are: there is nothing to keep meanwhile
  NORMD_ASSIGN_OR_RETURN(CertificateTexts texts, ReadCertificates(certificates->paths_, &states));
  const std::string fingerprint = FingerprintOf(texts);
  NORMD_RETURN_IF_ERROR(certificates->TakeIfGood(std::move(texts), fingerprint));
  certificates->WarnOfExpiry();
  certificates->watch_.emplace(interval, [self = certificates.get()] {
    self->Look();
    self->WarnOfExpiry();
  });
  return certificates;
}

ServerCertificates::ServerCertificates(CertificatePaths paths, Clock* clock, Observer observer, Settling settling)
    : paths_(std::move(paths)), clock_(clock), observer_(std::move(observer)), settling_(std::move(settling)) {}

std::shared_ptr<const Certificates> ServerCertificates::current() const {
  MutexLock lock(mu_);
  return current_;
}

CertificateStats ServerCertificates::stats() const {
  MutexLock lock(mu_);
  return {.expiry = current_->expiry, .reloads = reloads_, .failed_reloads = failed_reloads_};
}

absl::Status ServerCertificates::Reload() {
  std::optional<absl::Status> found;
  LookUntilSettled(settling_, [this, &found] {
    found = Look();
    return found.has_value();
  });
  WarnOfExpiry();
  return found.value_or(ChangingError());
}

std::optional<absl::Status> ServerCertificates::Look() {
  const absl::Time now = settling_.now();
  std::string states;
  absl::StatusOr<CertificateTexts> texts = ReadCertificates(paths_, &states);
  // Files that cannot be read have the error message as their fingerprint.
  const std::string fingerprint = texts.ok() ? FingerprintOf(*texts) : std::string(texts.status().message());
  bool settled = false, changing = false;
  {
    MutexLock lock(mu_);
    settled = memory_.See(states + fingerprint, now);
    changing = memory_.KeepsChanging();
    if (settled && fingerprint == good_) {
      memory_.Note(good_);  // a failure that comes again later is reported again
      return absl::OkStatus();
    }
  }
  if (changing) Report(ChangingError(), "");  // no content has this fingerprint
  if (!settled) return std::nullopt;
  const absl::Status taken = texts.ok() ? TakeIfGood(*std::move(texts), fingerprint) : texts.status();
  if (!taken.ok()) Report(taken, fingerprint);
  return taken;
}

absl::Status ServerCertificates::ChangingError() const {
  return FileChangingError("--tls_certificate", paths_.certificate);
}

absl::Status ServerCertificates::TakeIfGood(CertificateTexts texts, const std::string& fingerprint) {
  NORMD_ASSIGN_OR_RETURN(Certificates certificates, CheckCertificates(paths_, std::move(texts), clock_->Now()));
  Take(std::move(certificates), fingerprint);
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
  std::shared_ptr<const Certificates> expiring, expired;
  {
    MutexLock lock(mu_);
    const absl::Duration left = current_->expiry - clock_->Now();
    if (left <= absl::ZeroDuration() && expired_ != current_) expired = expired_ = warned_ = current_;
    if (left <= kWarnBefore && warned_ != current_) expiring = warned_ = current_;
  }
  if (expiring != nullptr && observer_.on_expiring != nullptr) observer_.on_expiring(*expiring);
  if (expired != nullptr && observer_.on_expired != nullptr) observer_.on_expired(*expired);
}

}  // namespace normd
