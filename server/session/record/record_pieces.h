// The pieces that the parts of a stored record consist of: bytes with a checksum behind them that also covers the
// session's uid (`epoch` in the message), so that no piece passes for another session's. An export is one piece whose
// checksum covers its bytes alone.
// In the path: record.cc. Pure functions, safe from any thread.
#ifndef NORMD_SERVER_SESSION_RECORD_RECORD_PIECES_H_
#define NORMD_SERVER_SESSION_RECORD_RECORD_PIECES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace normd {

// Size of the checksum's field, which stands behind all others: tag and number.
inline constexpr size_t kChecksumBytes = 2 + sizeof(uint32_t);

// Seals all of `bytes`, without a uid.
void AppendSeal(std::string* bytes);

// Seals what stands from `begin` on, for the session with `uid`. Returns the checksum.
uint32_t SealPiece(size_t begin, std::string_view uid, std::string* bytes);

// The bytes in front of the checksum, or DATA_LOSS if it is wrong. An empty `uid`: sealed without one, as exports are
// and as older servers wrote parts.
absl::StatusOr<std::string_view> Unseal(std::string_view bytes, std::string_view uid);

// The checksum of a sealed piece. REQUIRES: Unseal has accepted it.
uint32_t ChecksumOf(std::string_view piece);

// A part consists of a mark and the length of its first piece, then that piece at kFirstPiece, then the second one.
// BeginPieces empties `bytes` for a new part; EndFirstPiece sets the length when the first piece is there.
inline constexpr size_t kFirstPiece = 1 + sizeof(uint32_t);
void BeginPieces(std::string* bytes);
void EndFirstPiece(std::string* bytes);

// The two pieces of a part; nothing if the part is in one piece, as older servers wrote it, or ends within the first
// piece.
std::optional<std::pair<std::string_view, std::string_view>> SplitPieces(std::string_view part);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_RECORD_RECORD_PIECES_H_
