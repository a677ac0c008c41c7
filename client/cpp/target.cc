#include "client/cpp/target.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace normd::client {
namespace {

constexpr absl::string_view kForm = "it must be host:port or unix:/path";
// Schemes whose rest gRPC reads by rules of its own.
constexpr absl::string_view kOtherSchemes[] = {"unix-abstract:", "xds:", "vsock:"};
constexpr absl::string_view kAddressSchemes[] = {"dns:", "ipv4:", "ipv6:"};
constexpr absl::string_view kDigits = "0123456789";

absl::Status Refuse(absl::string_view reason) { return absl::InvalidArgumentError(reason); }

bool IsIpv6(absl::string_view text) {
  in6_addr address{};
  return inet_pton(AF_INET6, std::string(text.substr(0, text.find('%'))).c_str(), &address) == 1;
}

bool IsIpv4(absl::string_view text) {
  in_addr address{};
  return inet_pton(AF_INET, std::string(text).c_str(), &address) == 1;
}

bool IsNumber(absl::string_view text) {
  return !text.empty() && text.find_first_not_of(kDigits) == absl::string_view::npos;
}

absl::Status CheckPort(absl::string_view port) {
  int number = 0;
  if (IsNumber(port) && absl::SimpleAtoi(port, &number) && number >= 1 && number <= 65535) return absl::OkStatus();
  return Refuse(absl::StrCat("its port is ", port.empty() ? "empty" : port, "; it must be 1 to 65535, normd's is ",
                             kDefaultPort));
}

// "::1" and "::1:8001", which could also be one address, with the brackets that tell them apart; empty for what is
// none.
std::string InBrackets(absl::string_view text) {
  const size_t colon = text.rfind(':');
  const absl::string_view head = text.substr(0, colon), tail = text.substr(colon + 1);
  if (IsIpv6(head) && CheckPort(tail).ok()) return absl::StrCat("[", head, "]:", tail);
  return IsIpv6(text) ? absl::StrCat("[", text, "]:", kDefaultPort) : "";
}

absl::StatusOr<std::string> CompleteIpv6(absl::string_view address) {
  const size_t end = address.find(']');
  if (end == absl::string_view::npos) return Refuse("its bracket is not closed; write [::1]:8001");
  const absl::string_view inside = address.substr(1, end - 1), rest = address.substr(end + 1);
  if (!IsIpv6(inside)) return Refuse(absl::StrCat("its brackets hold ", inside, ", which is no IPv6 address"));
  if (rest.empty()) return absl::StrCat(address, ":", kDefaultPort);
  if (rest[0] != ':') return Refuse("a colon and the port must follow its brackets, as in [::1]:8001");
  if (absl::Status status = CheckPort(rest.substr(1)); !status.ok()) return status;
  return std::string(address);
}

absl::Status CheckHost(absl::string_view host) {
  if (host.empty()) return Refuse("it names no host; a server of this machine is 127.0.0.1:8001");
  if (absl::StrContains(host, '@')) return Refuse("a target has no user; tokens go along by an option of their own");
  if (host.find_first_not_of("0123456789.") == absl::string_view::npos && !IsIpv4(host)) {
    return Refuse(absl::StrCat("its host is ", host, ", which is no IPv4 address: four numbers from 0 to 255"));
  }
  return absl::OkStatus();
}

// One address of a target, with its port.
absl::StatusOr<std::string> CompleteAddress(absl::string_view address) {
  if (absl::StartsWith(address, "[")) return CompleteIpv6(address);
  if (absl::StrContains(address, '/')) return Refuse(absl::StrCat(kForm, ", without a path behind the port"));
  const std::vector<absl::string_view> parts = absl::StrSplit(address, ':');
  if (parts.size() > 2) {
    const std::string meant = InBrackets(address);
    return Refuse(meant.empty() ? std::string(kForm) : absl::StrCat("an IPv6 address stands in brackets: ", meant));
  }
  if (parts.size() == 1 && IsNumber(address)) {
    return Refuse(absl::StrCat("it names a port alone; a server of this machine is 127.0.0.1:", address));
  }
  if (absl::Status status = CheckHost(parts[0]); !status.ok()) return status;
  if (parts.size() == 1) return absl::StrCat(address, ":", kDefaultPort);
  if (absl::Status status = CheckPort(parts[1]); !status.ok()) return status;
  return std::string(address);
}

// host:port out of a URL.
std::string WithoutScheme(absl::string_view rest) {
  rest = rest.substr(0, rest.find_first_of("/?#"));
  if (const size_t at = rest.rfind('@'); at != absl::string_view::npos) rest.remove_prefix(at + 1);
  const absl::StatusOr<std::string> completed = CompleteAddress(rest);
  return completed.ok() ? *completed : "127.0.0.1:8001";
}

absl::StatusOr<std::string> CompleteUnix(absl::string_view target) {
  absl::string_view path = absl::StripPrefix(target, "unix:");
  const bool has_authority = absl::ConsumePrefix(&path, "//");
  if (path.empty()) return Refuse("it names no path; it must be unix:/path");
  if (has_authority && path[0] != '/') return Refuse(absl::StrCat("a path stands behind one colon: unix:/", path));
  constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() > kLongest) {
    return Refuse(absl::StrCat("its path has ", path.size(), " bytes; a Unix socket's has at most ", kLongest));
  }
  return std::string(target);
}

// All addresses behind "dns:", "ipv4:" or "ipv6:".
absl::StatusOr<std::string> CompleteList(absl::string_view scheme, absl::string_view rest) {
  std::string start(scheme);
  if (absl::StartsWith(rest, "//")) {
    const size_t slash = rest.find('/', 2);
    if (slash == absl::string_view::npos) return Refuse(absl::StrCat("write ", scheme, "///", rest.substr(2)));
    absl::StrAppend(&start, rest.substr(0, slash));
    rest.remove_prefix(slash);
  }
  if (absl::ConsumePrefix(&rest, "/")) start += '/';
  std::vector<std::string> addresses;
  for (const absl::string_view address : absl::StrSplit(rest, ',')) {
    absl::StatusOr<std::string> completed = CompleteAddress(address);
    if (!completed.ok()) return completed.status();
    addresses.push_back(*std::move(completed));
  }
  return absl::StrCat(start, absl::StrJoin(addresses, ","));
}

bool LooksLikeAPath(absl::string_view target) {
  return absl::StartsWith(target, "/") || absl::StartsWith(target, "./") || absl::StartsWith(target, "../") ||
         absl::StartsWith(target, "~/") || (absl::EndsWith(target, ".sock") && !absl::StrContains(target, ':'));
}

absl::StatusOr<std::string> Complete(absl::string_view target) {
  if (target.empty()) return Refuse(kForm);
  const auto is_blank = [](unsigned char c) { return absl::ascii_isspace(c) || absl::ascii_iscntrl(c); };
  if (std::any_of(target.begin(), target.end(), is_blank)) return Refuse(absl::StrCat(kForm, ", without blanks"));
  if (LooksLikeAPath(target)) return Refuse(absl::StrCat("a Unix socket is named with unix: before it: unix:", target));
  if (absl::StartsWith(target, "unix:")) return CompleteUnix(target);
  for (const absl::string_view scheme : kOtherSchemes) {
    if (absl::StartsWith(target, scheme)) return std::string(target);
  }
  for (const absl::string_view scheme : kAddressSchemes) {
    if (absl::StartsWith(target, scheme)) return CompleteList(scheme, target.substr(scheme.size()));
  }
  if (const size_t scheme = target.find("://"); scheme != absl::string_view::npos) {
    const absl::string_view tls = absl::StartsWith(target, "https:") ? ", and TLS is an option of its own" : "";
    return Refuse(absl::StrCat("a target has no scheme: ", WithoutScheme(target.substr(scheme + 3)), tls));
  }
  if (absl::StrContains(target, ',')) return Refuse(absl::StrCat("several addresses are given as ipv4:", target));
  return CompleteAddress(target);
}

}  // namespace

absl::StatusOr<std::string> CompleteTarget(absl::string_view field, absl::string_view target) {
  absl::StatusOr<std::string> completed = Complete(target);
  if (completed.ok()) return completed;
  const bool is_blank = target.find_first_not_of(" \t\r\n") == absl::string_view::npos;
  const bool has_blanks = target.find_first_of(" \t\r\n") != absl::string_view::npos;
  const absl::string_view quote = has_blanks ? "\"" : "";
  const std::string shown = target.empty() ? "empty" : is_blank ? "blank" : absl::StrCat(quote, target, quote);
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", shown, "; ", completed.status().message()));
}

}  // namespace normd::client
