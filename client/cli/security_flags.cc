#include "client/cli/security_flags.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/environment.h"

namespace normd::client {
namespace {

constexpr absl::string_view kTlsVariable = "NORMD_TLS";

std::string FromEnvironment(absl::string_view name) { return Environment(name).value_or(""); }

bool HasTlsFlag(const ParsedArgs& args) {
  constexpr absl::string_view kTlsFlags[] = {"tls", "ca", "certificate", "key", "server-name"};
  return std::any_of(std::begin(kTlsFlags), std::end(kTlsFlags),
                     [&](absl::string_view flag) { return args.Has(flag); });
}

// What the environment says of TLS.
absl::StatusOr<SecurityOptions> TlsOfEnvironment() {
  SecurityOptions out;
  if (const std::string text = FromEnvironment(kTlsVariable); !text.empty()) {
    bool on = false;
    if (!absl::SimpleAtob(text, &on)) {
      return UsageError(absl::StrCat(kTlsVariable, " is ", text, "; it must be true or false"));
    }
    out.tls = on;
    if (!on) return out;
  }
  out.ca_file = FromEnvironment("NORMD_CA");
  out.certificate_file = FromEnvironment("NORMD_CERTIFICATE");
  out.key_file = FromEnvironment("NORMD_KEY");
  out.server_name = FromEnvironment("NORMD_SERVER_NAME");
  return out;
}

void AddTlsFlags(const ParsedArgs& args, SecurityOptions& security) {
  security.tls = true;
  security.ca_file = args.GetOr("ca", security.ca_file);
  security.server_name = args.GetOr("server-name", security.server_name);
  if (!args.Has("certificate") && !args.Has("key")) return;
  security.certificate_file = args.GetOr("certificate", "");
  security.key_file = args.GetOr("key", "");
}

void AddToken(const ParsedArgs& args, SecurityOptions& security) {
  security.token_file = args.GetOr("token-file", FromEnvironment("NORMD_TOKEN_FILE"));
  if (!args.Has("token-file")) security.token = FromEnvironment("NORMD_TOKEN");
}

}  // namespace

std::vector<FlagSpec> SecurityFlags() {
  return {
      {"tls", '\0', "", "call by TLS; the next four flags turn it on, too (default: $NORMD_TLS, plain text)"},
      {"ca", '\0', "FILE", "root certificates that the server's comes from (default: $NORMD_CA, the system's)"},
      {"certificate", '\0', "FILE", "client certificate, where the server asks for one (default: $NORMD_CERTIFICATE)"},
      {"key", '\0', "FILE", "key of the client certificate (default: $NORMD_KEY)"},
      {"server-name", '\0', "NAME", "name in the server's certificate, if not the host (default: $NORMD_SERVER_NAME)"},
      {"token-file", '\0', "FILE", "file with a bearer token (default: $NORMD_TOKEN_FILE, or the token $NORMD_TOKEN)"}};
}

bool AsksForTls(const ParsedArgs& args) {
  if (HasTlsFlag(args)) return true;
  const absl::StatusOr<SecurityOptions> environment = TlsOfEnvironment();
  return environment.ok() && UsesTls(*environment);
}

absl::StatusOr<SecurityOptions> ReadSecurity(const ParsedArgs& args, const std::string& target) {
  SecurityOptions security;
  if (HasTlsFlag(args) || !IsUnixSocket(target)) {
    absl::StatusOr<SecurityOptions> environment = TlsOfEnvironment();
    if (!environment.ok()) return environment.status();
    security = *std::move(environment);
  }
  if (HasTlsFlag(args)) AddTlsFlags(args, security);
  AddToken(args, security);
  return security;
}

}  // namespace normd::client
