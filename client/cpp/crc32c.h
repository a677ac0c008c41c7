// CRC-32C (Castagnoli), as chunks carry it. Pure, safe from any thread.
#ifndef NORMD_CLIENT_CPP_CRC32C_H_
#define NORMD_CLIENT_CPP_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace normd::client {

uint32_t Crc32c(absl::string_view bytes);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_CRC32C_H_
