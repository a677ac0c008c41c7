#include "server/admin/host_header.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/ascii.h"

namespace normd {
namespace {

// `host` without its port. An address of IPv6 keeps its brackets.
std::string_view WithoutPort(std::string_view host) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  if (colon == std::string_view::npos || (bracket != std::string_view::npos && bracket > colon)) return host;
  const std::string_view port = host.substr(colon + 1);
  return std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; }) ? host.substr(0, colon)
                                                                                            : host;
}

bool IsAddress(std::string name) {
  in6_addr address{};
  if (!name.starts_with('[')) return inet_pton(AF_INET, name.c_str(), &address) == 1;
  if (!name.ends_with(']')) return false;
  name = name.substr(1, name.size() - 2);
  return inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

}  // namespace

bool IsOwnHost(std::string_view host, const std::vector<std::string>& names) {
  std::string name(WithoutPort(host));
  absl::AsciiStrToLower(&name);
  // "localhost." is the same name, from the root.
  if (name.ends_with('.')) name.pop_back();
  return name == "localhost" || IsAddress(name) || std::find(names.begin(), names.end(), name) != names.end();
}

bool HasHostNameForm(std::string_view name) {
  constexpr size_t kMaxBytes = 253;  // RFC 1035, without the root's dot
  return !name.empty() && name.size() <= kMaxBytes && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
  });
}

}  // namespace normd
