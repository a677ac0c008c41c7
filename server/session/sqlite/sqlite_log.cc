#include "server/session/sqlite/sqlite_log.h"

#include <fstream>
#include <string_view>

namespace normd {

namespace {

constexpr size_t kLogHeaderBytes = 32;
constexpr size_t kFrameHeaderBytes = 24;
constexpr uint32_t kMagic = 0x377f0682;  // + 1: the checksum's words are big-endian

uint32_t BigEndian(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

uint32_t LittleEndian(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 4; i > 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[at + i - 1]);
  return value;
}

// SQLite's running checksum of 32-bit words.
class Checksum {
 public:
  explicit Checksum(bool big_endian) : big_endian_(big_endian) {}

  void Add(std::string_view bytes) {
    for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
      first_ += Word(bytes, at) + second_;
      second_ += Word(bytes, at + 4) + first_;
    }
  }
  bool Is(std::string_view bytes, size_t at) const {
    return BigEndian(bytes, at) == first_ && BigEndian(bytes, at + 4) == second_;
  }

 private:
  uint32_t Word(std::string_view bytes, size_t at) const {
    return big_endian_ ? BigEndian(bytes, at) : LittleEndian(bytes, at);
  }

  const bool big_endian_;
  uint32_t first_ = 0;
  uint32_t second_ = 0;
};

}  // namespace

SqliteLogTail ReadSqliteLog(const std::string& path) {
  SqliteLogTail tail;
  std::ifstream file(path, std::ios::binary);
  std::string header(kLogHeaderBytes, '\0');
  if (!file.read(header.data(), static_cast<std::streamsize>(header.size()))) return tail;
  if ((BigEndian(header, 0) & ~1U) != kMagic) return tail;
  const uint32_t page_bytes = BigEndian(header, 8);
  if (page_bytes < 512 || page_bytes > 65536) return tail;
  Checksum checksum((BigEndian(header, 0) & 1) != 0);
  checksum.Add(std::string_view(header).substr(0, 24));
  bool fits = checksum.Is(header, 24);
  const std::string_view salt = std::string_view(header).substr(16, 8);
  std::string frame(kFrameHeaderBytes + page_bytes, '\0');
  while (file.read(frame.data(), static_cast<std::streamsize>(frame.size()))) {
    const std::string_view bytes = frame;
    // The frame belongs to an earlier log that was in this file before.
    if (bytes.substr(8, 8) != salt) {
      fits = false;
      continue;
    }
    if (fits) {
      checksum.Add(bytes.substr(0, 8));
      checksum.Add(bytes.substr(kFrameHeaderBytes));
      fits = checksum.Is(bytes, 16);
    }
    if (fits) ++tail.frames;
    if (!fits && BigEndian(bytes, 4) != 0) ++tail.lost_commits;
  }
  return tail;
}

}  // namespace normd
