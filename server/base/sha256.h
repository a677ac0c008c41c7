// SHA-256 (FIPS 180-4), by OpenSSL.
// In the path: tokens of callers, and the digests of sessions. Pure functions, safe from any thread.
#ifndef NORMD_SERVER_BASE_SHA256_H_
#define NORMD_SERVER_BASE_SHA256_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace normd {

using Sha256Digest = std::array<uint8_t, 32>;

// Nothing if OpenSSL cannot compute it, as without memory.
std::optional<Sha256Digest> Sha256(std::string_view bytes);

}  // namespace normd

#endif  // NORMD_SERVER_BASE_SHA256_H_
