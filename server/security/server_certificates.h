// The certificates that the server shows now. Watches the files by their content, and exchanges certificate, key and
// client CA together, so that new connections see the new ones without a restart; connections that exist are not
// touched. When new files cannot be used, the last good ones stay.
// In the path: both transports ask for current() at each handshake (server/net/tls_contexts.h,
// server/rpc/grpc/tls_credentials.h).
// Ownership: borrows the clock, which must outlive this object.
// Threads: everything is safe from any thread. The watch has a thread of its own, on which the observer runs, unless it
// runs in Reload.
#ifndef NORMD_SERVER_SECURITY_SERVER_CERTIFICATES_H_
#define NORMD_SERVER_SECURITY_SERVER_CERTIFICATES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/base/periodic_thread.h"
#include "server/security/certificates.h"
#include "server/security/content_memory.h"

namespace normd {

// Counts for metrics.
struct CertificateStats {
  absl::Time expiry = absl::UnixEpoch();  // of the current certificates
  int64_t reloads = 0;                    // exchanges, the first load not among them
  int64_t failed_reloads = 0;
};

class ServerCertificates {
 public:
  // Every member may be null.
  struct Observer {
    std::function<void(const Certificates&)> on_loaded;    // the first time, too
    std::function<void(const Certificates&)> on_expiring;  // once for each, when less than kWarnBefore is left
    std::function<void(const Certificates&)> on_expired;   // once for each, when nothing is left
    std::function<void(const absl::Status&)> on_failed;    // once for each content that cannot be used
  };
  static constexpr absl::Duration kWarnBefore = absl::Hours(24 * 14);

  // Loads the files and watches them every `interval`. Returns the error of ReadCertificates or CheckCertificates.
  static absl::StatusOr<std::unique_ptr<ServerCertificates>> Open(CertificatePaths paths, absl::Duration interval,
                                                                  Clock* clock, Observer observer,
                                                                  Settling settling = {});

  ServerCertificates(const ServerCertificates&) = delete;
  ServerCertificates& operator=(const ServerCertificates&) = delete;

  // Never null. A new object after each exchange, so that comparing pointers shows whether there was one.
  std::shared_ptr<const Certificates> current() const;
  bool asks_clients() const { return !paths_.client_ca.empty(); }

  // Looks at the files until they are still the same kSettleTime later, for which it blocks, or for some of them, and
  // takes them. Returns why they cannot be used, FileChangingError among the reasons; then the last good ones stay.
  absl::Status Reload();

  CertificateStats stats() const;

 private:
  ServerCertificates(CertificatePaths paths, Clock* clock, Observer observer, Settling settling);

  // One look. Nothing if the files have changed since the last look, because some may be half written, and those that
  // are replaced one after the other do not fit for a moment. Otherwise takes them if they are new and good, or reports
  // why not.
  std::optional<absl::Status> Look();
  // What the files are named by that keep changing.
  absl::Status ChangingError() const;
  absl::Status TakeIfGood(CertificateTexts texts, const std::string& fingerprint);
  void Take(Certificates certificates, const std::string& fingerprint);
  void Report(const absl::Status& failure, const std::string& fingerprint);
  void WarnOfExpiry();

  // Constant after construction.
  const CertificatePaths paths_;
  Clock* const clock_;
  const Observer observer_;
  const Settling settling_;

  mutable Mutex mu_;
  std::shared_ptr<const Certificates> current_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const Certificates> warned_ ABSL_GUARDED_BY(mu_);   // those that on_expiring has reported
  std::shared_ptr<const Certificates> expired_ ABSL_GUARDED_BY(mu_);  // those that on_expired has reported
  std::string good_ ABSL_GUARDED_BY(mu_);                             // the fingerprint of `current_`
  ContentMemory memory_ ABSL_GUARDED_BY(mu_);                         // notes fingerprints
  int64_t reloads_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t failed_reloads_ ABSL_GUARDED_BY(mu_) = 0;

  std::optional<PeriodicThread> watch_;  // last, so that it ends first
};

}  // namespace normd

#endif  // NORMD_SERVER_SECURITY_SERVER_CERTIFICATES_H_
