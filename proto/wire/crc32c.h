// CRC-32C (Castagnoli). The Abseil of Debian 12 has none.
// In the path: the checksum of stored records, which the store makes and checks, and of chunks on the wire, which both
// ends do. Pure functions, safe from any thread.
#ifndef NORMD_PROTO_WIRE_CRC32C_H_
#define NORMD_PROTO_WIRE_CRC32C_H_

#include <cstdint>
#include <string_view>

namespace normd::wire {

// The checksum of `bytes`. Crc32c("123456789") is 0xe3069283.
uint32_t Crc32c(std::string_view bytes);
// The checksum of a text followed by `bytes`, where `crc` is the checksum of the text; 0 is the checksum of the empty
// text.
uint32_t ExtendCrc32c(uint32_t crc, std::string_view bytes);

// Crc32c without the CPU's instruction, which not every CPU has. For its test.
uint32_t Crc32cByTable(std::string_view bytes);

}  // namespace normd::wire

#endif  // NORMD_PROTO_WIRE_CRC32C_H_
