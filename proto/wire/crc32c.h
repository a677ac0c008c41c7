// CRC-32C (Castagnoli), the checksum of stored records and of chunks on the wire. Shared by server and client. Abseil
// of this release has none. Pure function, safe from any thread.
#ifndef NORMD_PROTO_WIRE_CRC32C_H_
#define NORMD_PROTO_WIRE_CRC32C_H_

#include <cstdint>
#include <string_view>

namespace normd::wire {

// Crc32c("123456789") is 0xe3069283.
uint32_t Crc32c(std::string_view bytes);
// That of what `crc` is the checksum of, 0 being that of nothing, and `bytes` after it.
uint32_t ExtendCrc32c(uint32_t crc, std::string_view bytes);

// The same without the CPU's instruction for it, which not every CPU has; for its test.
uint32_t Crc32cByTable(std::string_view bytes);

}  // namespace normd::wire

#endif  // NORMD_PROTO_WIRE_CRC32C_H_
