#include "server/session/record/record_pieces.h"

#include "proto/wire/crc32c.h"
#include "server/base/errors.h"

namespace normd {

namespace {

// The checksum's field comes last, whatever its number: tag of field 20 as fixed32, then the CRC of all before it.
constexpr std::string_view kChecksumTag = "\xa5\x01";
// The same of field 22: the CRC goes on over the session's epoch, which the piece itself does not hold.
constexpr std::string_view kEpochChecksumTag = "\xb5\x01";

// A half begins with a byte that no message begins with, and the length of its first piece.
constexpr char kPieces = '\0';

void AppendNumber(uint32_t number, std::string* bytes) {
  for (int shift = 0; shift < 32; shift += 8) *bytes += static_cast<char>((number >> shift) & 0xff);
}

// REQUIRES: 4 bytes at least.
uint32_t ReadNumber(std::string_view bytes) {
  uint32_t number = 0;
  for (int i = 3; i >= 0; --i) number = (number << 8) | static_cast<uint8_t>(bytes[i]);
  return number;
}

static_assert(kChecksumTag.size() + sizeof(uint32_t) == kChecksumBytes);

}  // namespace

void AppendSeal(std::string* bytes) {
  const uint32_t crc = wire::Crc32c(*bytes);
  *bytes += kChecksumTag;
  AppendNumber(crc, bytes);
}

uint32_t SealPiece(size_t begin, std::string_view epoch, std::string* bytes) {
  const uint32_t crc = wire::ExtendCrc32c(wire::Crc32c(std::string_view(*bytes).substr(begin)), epoch);
  *bytes += kEpochChecksumTag;
  AppendNumber(crc, bytes);
  return crc;
}

void BeginPieces(std::string* bytes) { bytes->assign(kFirstPiece, kPieces); }

void EndFirstPiece(std::string* bytes) {
  std::string size;
  AppendNumber(static_cast<uint32_t>(bytes->size() - kFirstPiece), &size);
  bytes->replace(1, size.size(), size);
}

absl::StatusOr<std::string_view> Unseal(std::string_view bytes, std::string_view epoch) {
  if (bytes.size() < kChecksumBytes || bytes.size() > INT32_MAX) return DataLossError("not a session record");
  const std::string_view body = bytes.substr(0, bytes.size() - kChecksumBytes);
  const std::string_view seal = bytes.substr(body.size());
  if (!seal.starts_with(epoch.empty() ? kChecksumTag : kEpochChecksumTag)) return DataLossError("not a session record");
  const uint32_t crc = wire::ExtendCrc32c(wire::Crc32c(body), epoch);
  if (crc == ReadNumber(seal.substr(kChecksumTag.size()))) return body;
  return DataLossError(epoch.empty() ? "wrong checksum" : "wrong checksum, or a piece of another session");
}

uint32_t ChecksumOf(std::string_view piece) { return ReadNumber(piece.substr(piece.size() - sizeof(uint32_t))); }

std::optional<std::pair<std::string_view, std::string_view>> SplitPieces(std::string_view half) {
  if (half.size() < kFirstPiece || half.front() != kPieces) return std::nullopt;
  const uint32_t first = ReadNumber(half.substr(1));
  const std::string_view pieces = half.substr(kFirstPiece);
  if (first > pieces.size()) return std::nullopt;
  return std::pair(pieces.substr(0, first), pieces.substr(first));
}

}  // namespace normd
