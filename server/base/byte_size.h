// Sizes as people write them: "64MiB". Pure function.
#ifndef NORMD_SERVER_BASE_BYTE_SIZE_H_
#define NORMD_SERVER_BASE_BYTE_SIZE_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace normd {

// The bytes that `text` names: a whole number, alone or with KiB, MiB, GiB or TiB right behind it. nullopt for any
// other text, and for more bytes than an int64 counts.
std::optional<int64_t> ParseBytes(std::string_view text);

}  // namespace normd

#endif  // NORMD_SERVER_BASE_BYTE_SIZE_H_
