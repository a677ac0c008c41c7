#include "server/session/record/record_pieces.h"

#include "normd/store/v1/record.pb.h"
#include "proto/wire/crc32c.h"
#include "proto/wire/writer.h"
#include "server/base/errors.h"

namespace normd {

namespace {

// The field of the checksum is written last, whatever its number: it is the CRC of all bytes before it.
constexpr uint32_t kChecksum = store::v1::SessionRecord::kCrc32CFieldNumber;
// The same for pieces, in another field: the CRC goes on over the session's uid, which the piece itself does not hold.
constexpr uint32_t kEpochChecksum = store::v1::SessionRecord::kCrc32CWithEpochFieldNumber;

static_assert(wire::TagSize(kChecksum) + sizeof(uint32_t) == kChecksumBytes);
static_assert(wire::TagSize(kEpochChecksum) + sizeof(uint32_t) == kChecksumBytes);
static_assert(store::v1::ClientRecord::kCrc32CWithEpochFieldNumber == kEpochChecksum, "rows are sealed alike");

// A part begins with a byte that no message begins with, and the length of its first piece.
constexpr char kPieces = '\0';

// REQUIRES: 4 bytes at least.
uint32_t ReadNumber(std::string_view bytes) {
  uint32_t number = 0;
  for (int i = 3; i >= 0; --i) number = (number << 8) | static_cast<uint8_t>(bytes[i]);
  return number;
}

}  // namespace

void AppendSeal(std::string* bytes) {
  const uint32_t crc = wire::Crc32c(*bytes);
  wire::AppendFixed32Field(kChecksum, crc, *bytes);
}

uint32_t SealPiece(size_t begin, std::string_view uid, std::string* bytes) {
  const uint32_t crc = wire::ExtendCrc32c(wire::Crc32c(std::string_view(*bytes).substr(begin)), uid);
  wire::AppendFixed32Field(kEpochChecksum, crc, *bytes);
  return crc;
}

void BeginPieces(std::string* bytes) { bytes->assign(kFirstPiece, kPieces); }

void EndFirstPiece(std::string* bytes) {
  std::string size;
  wire::AppendFixed(static_cast<uint32_t>(bytes->size() - kFirstPiece), size);
  bytes->replace(1, size.size(), size);
}

absl::StatusOr<std::string_view> Unseal(std::string_view bytes, std::string_view uid) {
  if (bytes.size() < kChecksumBytes || bytes.size() > INT32_MAX) return DataLossError("not a session record");
  const std::string_view body = bytes.substr(0, bytes.size() - kChecksumBytes);
  const std::string_view seal = bytes.substr(body.size());
  std::string tag;
  wire::AppendTag(uid.empty() ? kChecksum : kEpochChecksum, wire::WireType::kFixed32, tag);
  if (!seal.starts_with(tag)) return DataLossError("not a session record");
  const uint32_t crc = wire::ExtendCrc32c(wire::Crc32c(body), uid);
  if (crc == ReadNumber(seal.substr(tag.size()))) return body;
  return DataLossError(uid.empty() ? "wrong checksum" : "wrong checksum, or a piece of another session");
}

uint32_t ChecksumOf(std::string_view piece) { return ReadNumber(piece.substr(piece.size() - sizeof(uint32_t))); }

std::optional<std::pair<std::string_view, std::string_view>> SplitPieces(std::string_view part) {
  if (part.size() < kFirstPiece || part.front() != kPieces) return std::nullopt;
  const uint32_t first = ReadNumber(part.substr(1));
  const std::string_view pieces = part.substr(kFirstPiece);
  if (first > pieces.size()) return std::nullopt;
  return std::pair(pieces.substr(0, first), pieces.substr(first));
}

}  // namespace normd
