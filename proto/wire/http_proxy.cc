#include "proto/wire/http_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace normd::wire {
namespace {

constexpr std::string_view kBlanks = " \t";

bool ConsumePrefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::string Lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  return out;
}

// getenv is not safe beside threads that change the environment, which makes clang-tidy refuse it.
std::optional<std::string> Variable(std::string_view name) {
  for (char** variable = environ; *variable != nullptr; ++variable) {
    std::string_view text = *variable;
    if (ConsumePrefix(text, name) && ConsumePrefix(text, "=")) return std::string(text);
  }
  return std::nullopt;
}

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> out;
  while (true) {
    const size_t comma = text.find(',');
    out.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return out;
    text.remove_prefix(comma + 1);
  }
}

// The addresses of a target without their scheme: "dns://8.8.8.8/a:1" is "a:1".
std::vector<std::string_view> AddressesOf(std::string_view target) {
  for (const std::string_view scheme : {"dns:", "ipv4:", "ipv6:", "xds:"}) {
    if (!ConsumePrefix(target, scheme)) continue;
    if (ConsumePrefix(target, "//")) target.remove_prefix(std::min(target.find('/'), target.size()));
    ConsumePrefix(target, "/");
    break;
  }
  return Split(target);
}

struct HostAndPort {
  std::string host;       // without brackets and zone, in lower case
  std::string_view port;  // may be empty
};

HostAndPort SplitHost(std::string_view address) {
  std::string_view host = address, port;
  if (ConsumePrefix(host, "[")) {
    const size_t end = std::min(host.find(']'), host.size());
    port = host.substr(end);
    if (!ConsumePrefix(port, "]:")) port = {};
    host = host.substr(0, end);
  } else if (const size_t colon = host.find(':'); colon != std::string_view::npos && colon == host.rfind(':')) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  std::string name = Lower(host.substr(0, host.find('%')));
  if (name.size() > 1 && name.ends_with('.')) name.pop_back();  // the root of names
  return {std::move(name), port};
}

// The bytes of an IP address, of IPv4 and of IPv4 mapped into IPv6 the same four; empty for names.
std::string AddressBytes(const std::string& host) {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return {reinterpret_cast<const char*>(&v4), sizeof(v4)};
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return "";
  const std::string bytes(reinterpret_cast<const char*>(&v6), sizeof(v6));
  return IN6_IS_ADDR_V4MAPPED(&v6) ? bytes.substr(12) : bytes;
}

// True if the first `bits` of two addresses of one family are the same.
bool SameNetwork(const std::string& a, const std::string& b, size_t bits) {
  if (a.size() != b.size() || bits > 8 * a.size()) return false;
  if (std::memcmp(a.data(), b.data(), bits / 8) != 0) return false;
  if (bits % 8 == 0) return true;
  const auto differing = static_cast<unsigned char>(a[bits / 8] ^ b[bits / 8]);
  return differing >> (8 - bits % 8) == 0;
}

// True if `entry` is a network, as "10.0.0.0/8", that holds `host`.
bool IsInNetwork(const std::string& host, const std::string& entry) {
  const size_t slash = entry.find('/');
  if (slash == std::string::npos) return false;
  const std::string bits = entry.substr(slash + 1);
  const bool is_number = !bits.empty() && bits.size() < 4 && bits.find_first_not_of("0123456789") == std::string::npos;
  const std::string address = AddressBytes(host), network = AddressBytes(SplitHost(entry.substr(0, slash)).host);
  return is_number && !address.empty() && SameNetwork(address, network, std::strtoul(bits.c_str(), nullptr, 10));
}

// True if an entry of no_proxy names the host: "*", a name and all below it, an address, a network, each with a port or
// without.
bool Excludes(std::string_view raw, const HostAndPort& target) {
  const size_t first = raw.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return false;
  const std::string entry = Lower(raw.substr(first, raw.find_last_not_of(kBlanks) + 1 - first));
  if (entry == "*" || IsInNetwork(target.host, entry)) return true;
  HostAndPort named = SplitHost(entry);
  if (!named.port.empty() && named.port != target.port) return false;
  std::string_view name = named.host;
  if (ConsumePrefix(name, "*.")) name = std::string_view(named.host).substr(2);
  ConsumePrefix(name, ".");
  if (name.empty()) return false;
  if (const std::string bytes = AddressBytes(std::string(name)); !bytes.empty()) {
    return bytes == AddressBytes(target.host);
  }
  const std::string_view host = target.host;
  return host == name || (host.ends_with(name) && host[host.size() - name.size() - 1] == '.');
}

bool IsExcluded(const HostAndPort& target) {
  for (const std::string_view variable : {"no_grpc_proxy", "no_proxy", "NO_PROXY"}) {
    const std::string entries = Variable(variable).value_or("");
    for (const std::string_view entry : Split(entries)) {
      if (Excludes(entry, target)) return true;
    }
  }
  return false;
}

}  // namespace

bool IsLoopbackHost(std::string_view text) {
  const std::string host = SplitHost(text).host;
  if (host == "localhost" || host.ends_with(".localhost")) return true;
  const std::string bytes = AddressBytes(host);
  if (bytes.size() == 4) return bytes[0] == 127 || bytes == std::string(4, '\0');
  return bytes == std::string(16, '\0') || bytes == std::string(15, '\0') + '\1';
}

bool IsLoopbackTarget(std::string_view target) {
  if (target.starts_with("unix:") || target.starts_with("unix-abstract:")) return true;
  const std::vector<std::string_view> addresses = AddressesOf(target);
  return std::all_of(addresses.begin(), addresses.end(),
                     [](std::string_view address) { return IsLoopbackHost(SplitHost(address).host); });
}

std::optional<HttpProxy> HttpProxyOf(std::string_view target) {
  if (IsLoopbackTarget(target)) return std::nullopt;
  const std::vector<std::string_view> addresses = AddressesOf(target);
  if (addresses.size() != 1 || IsExcluded(SplitHost(addresses[0]))) return std::nullopt;
  for (const std::string_view variable : {"grpc_proxy", "https_proxy", "http_proxy"}) {
    const std::optional<std::string> value = Variable(variable);
    if (!value.has_value()) continue;
    // gRPC looks no further than at the first one that is set, and takes http://[USER:PASSWORD@]HOST:PORT alone.
    std::string_view proxy = *value;
    if (!ConsumePrefix(proxy, "http://")) return std::nullopt;
    proxy = proxy.substr(0, proxy.find('/'));
    if (const size_t at = proxy.rfind('@'); at != std::string_view::npos) proxy.remove_prefix(at + 1);
    if (proxy.empty()) return std::nullopt;
    return HttpProxy{std::string(variable), std::string(proxy), SplitHost(addresses[0]).host};
  }
  return std::nullopt;
}

}  // namespace normd::wire
