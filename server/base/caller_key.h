// The fair-queueing key of a call: one number for the caller's tenant and connection, so that tenants take turns, and
// within a tenant its connections. Equal for all calls of one connection and tenant; others almost always differ, and
// where they do not, they share their turns.
// In the path: made by rpc's codec, used where calls wait for each other.
// Threads: pure functions.
#ifndef NORMD_SERVER_BASE_CALLER_KEY_H_
#define NORMD_SERVER_BASE_CALLER_KEY_H_

#include <cstdint>
#include <functional>
#include <string_view>

namespace normd {

inline constexpr int kTenantBits = 32;  // the upper ones

// `connection` is a hash of the connection.
inline uint64_t CallerKey(std::string_view tenant, uint64_t connection) {
  const uint64_t of_tenant = tenant.empty() ? 0 : std::hash<std::string_view>()(tenant);
  constexpr int kConnectionBits = 64 - kTenantBits;
  return of_tenant << kConnectionBits | connection >> kTenantBits;
}

// The part that all callers of one tenant have in common.
inline uint32_t TenantOfCaller(uint64_t caller) { return static_cast<uint32_t>(caller >> (64 - kTenantBits)); }

}  // namespace normd

#endif  // NORMD_SERVER_BASE_CALLER_KEY_H_
