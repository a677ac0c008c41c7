#include "client/cpp/credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/pem_files.h"

namespace normd::client {
namespace {

using grpc::experimental::FileWatcherCertificateProvider;

// How often gRPC looks at the certificate files. Issuers renew hours before a certificate ends.
constexpr unsigned kWatchSeconds = 10;

bool NamesTls(const SecurityOptions& security) {
  return !security.ca_file.empty() || !security.certificate_file.empty() || !security.key_file.empty() ||
         !security.server_name.empty();
}

absl::Status CheckTls(const std::string& target, const SecurityOptions& security) {
  if (security.tls == false && NamesTls(security)) {
    return absl::InvalidArgumentError(
        "TLS is off, but certificates or a server name are given; leave one of the two out");
  }
  if (UsesTls(security) && IsUnixSocket(target)) {
    return absl::InvalidArgumentError(absl::StrCat(
        target, " is a Unix socket, which takes no TLS; leave TLS and certificates out, or call host:port"));
  }
  if (security.certificate_file.empty() != security.key_file.empty()) {
    return absl::InvalidArgumentError(security.key_file.empty() ? "a certificate is given without its key; give both"
                                                                : "a key is given without its certificate; give both");
  }
  return absl::OkStatus();
}

absl::Status CheckToken(const std::string& target, const SecurityOptions& security) {
  if (security.token.empty() && security.token_file.empty()) return absl::OkStatus();
  if (!security.token.empty() && !security.token_file.empty()) {
    return absl::InvalidArgumentError("a token and a token file are given; leave one of the two out");
  }
  if (UsesTls(security) || IsUnixSocket(target)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a token is given, and ", target,
                   " would be called in plain text, where others could read it; turn TLS on, or leave the token out"));
}

absl::Status CheckFiles(const SecurityOptions& security) {
  if (!security.ca_file.empty()) {
    if (absl::Status status = CheckRootCertificates(security.ca_file); !status.ok()) return status;
  }
  if (security.certificate_file.empty()) return absl::OkStatus();
  return CheckClientCertificate(security.certificate_file, security.key_file);
}

// The watcher of the files that are given, or null. It belongs to the credentials, and ends with the last channel.
std::shared_ptr<FileWatcherCertificateProvider> MakeWatcher(const SecurityOptions& security) {
  const auto& [ca, certificate, key] = std::tie(security.ca_file, security.certificate_file, security.key_file);
  if (certificate.empty() && ca.empty()) return nullptr;
  if (certificate.empty()) return std::make_shared<FileWatcherCertificateProvider>(ca, kWatchSeconds);
  if (ca.empty()) return std::make_shared<FileWatcherCertificateProvider>(key, certificate, kWatchSeconds);
  return std::make_shared<FileWatcherCertificateProvider>(key, certificate, ca, kWatchSeconds);
}

std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(const SecurityOptions& security) {
  if (!UsesTls(security)) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  if (auto watcher = MakeWatcher(security); watcher != nullptr) options.set_certificate_provider(watcher);
  if (!security.ca_file.empty()) options.watch_root_certs();
  if (!security.certificate_file.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

absl::StatusOr<std::unique_ptr<Token>> MakeToken(const SecurityOptions& security) {
  if (!security.token_file.empty()) return Token::FromFile(security.token_file);
  if (!security.token.empty()) return Token::FromText(security.token);
  return nullptr;
}

}  // namespace

bool UsesTls(const SecurityOptions& security) { return security.tls.value_or(NamesTls(security)); }

bool IsUnixSocket(const std::string& target) {
  return absl::StartsWith(target, "unix:") || absl::StartsWith(target, "unix-abstract:");
}

absl::StatusOr<std::unique_ptr<Credentials>> Credentials::Make(const std::string& target,
                                                               const SecurityOptions& security) {
  for (const absl::Status& status : {CheckTls(target, security), CheckToken(target, security), CheckFiles(security)}) {
    if (!status.ok()) return status;
  }
  absl::StatusOr<std::unique_ptr<Token>> token = MakeToken(security);
  if (!token.ok()) return token.status();
  return std::unique_ptr<Credentials>(new Credentials(MakeChannelCredentials(security), *std::move(token)));
}

void Credentials::AddTo(grpc::ClientContext* context) const {
  if (token_ != nullptr) context->AddMetadata("authorization", absl::StrCat("Bearer ", token_->Get()));
}

}  // namespace normd::client
