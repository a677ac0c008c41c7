// The pieces that a stored record consists of: bytes with a checksum behind them, for which a session's uid (epoch)
// counts, too. An export is one piece without it.
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

// The checksum's field, behind all others: tag and number.
inline constexpr size_t kChecksumBytes = 2 + sizeof(uint32_t);

// Seals `bytes` as a whole, without an epoch.
void AppendSeal(std::string* bytes);

// Seals what stands from `begin` on, for the session of `epoch`. Returns the checksum.
uint32_t SealPiece(size_t begin, std::string_view uid, std::string* bytes);

// What is sealed, or DATA_LOSS. An empty `epoch`: without one, as exports are and what older servers wrote.
absl::StatusOr<std::string_view> Unseal(std::string_view bytes, std::string_view uid);

// The checksum of a sealed piece. REQUIRES: Unseal has accepted it.
uint32_t ChecksumOf(std::string_view piece);

// Makes `bytes` a half whose first piece is to follow, and ends that piece. The place where it begins.
inline constexpr size_t kFirstPiece = 1 + sizeof(uint32_t);
void BeginPieces(std::string* bytes);
void EndFirstPiece(std::string* bytes);

// The first piece of a half, and what follows it; nothing: it is in one piece, as older servers wrote it, or it is cut
// within the first one.
std::optional<std::pair<std::string_view, std::string_view>> SplitPieces(std::string_view half);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_RECORD_RECORD_PIECES_H_
