#include "client/cli/npz.h"

#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace normd::client {
namespace {

// Sizes and signatures of PKWARE's APPNOTE.TXT, sections 4.3.7, 4.3.12 and 4.3.16.
constexpr absl::string_view kLocalHeader("PK\x03\x04", 4);
constexpr absl::string_view kCentralHeader("PK\x01\x02", 4);
constexpr absl::string_view kEndOfDirectory("PK\x05\x06", 4);
constexpr size_t kLocalHeaderBytes = 30;
constexpr size_t kCentralHeaderBytes = 46;
constexpr size_t kEndBytes = 22;
constexpr uint32_t kIn64BitField = 0xFFFFFFFF;  // the size or offset is in an extra field, because it is 4 GiB or more

constexpr uint64_t kStored = 0;
constexpr uint64_t kDeflated = 8;

struct ZipEntry {
  absl::string_view name;
  uint64_t flags = 0, method = 0, crc32 = 0, packed_bytes = 0, bytes = 0, header_offset = 0;
};

absl::Status BadNpz(absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat("the archive ", what)); }

uint64_t Little(absl::string_view file, size_t offset, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(file[offset + i]);
  return value;
}

absl::StatusOr<std::vector<ZipEntry>> ReadDirectory(absl::string_view file) {
  const size_t end = file.rfind(kEndOfDirectory);
  if (end == absl::string_view::npos || file.size() - end < kEndBytes) return BadNpz("is cut off");
  const uint64_t count = Little(file, end + 10, 2);
  uint64_t at = Little(file, end + 16, 4);
  std::vector<ZipEntry> entries;
  for (uint64_t i = 0; i < count; ++i) {
    const absl::string_view header = at <= end ? file.substr(at, end - at) : "";
    if (header.size() < kCentralHeaderBytes || !absl::StartsWith(header, kCentralHeader)) return BadNpz("is damaged");
    ZipEntry entry;
    entry.flags = Little(header, 8, 2);
    entry.method = Little(header, 10, 2);
    entry.crc32 = Little(header, 16, 4);
    entry.packed_bytes = Little(header, 20, 4);
    entry.bytes = Little(header, 24, 4);
    entry.header_offset = Little(header, 42, 4);
    entry.name = header.substr(kCentralHeaderBytes, Little(header, 28, 2));
    entries.push_back(entry);
    at += kCentralHeaderBytes + Little(header, 28, 2) + Little(header, 30, 2) + Little(header, 32, 2);
  }
  return entries;
}

absl::StatusOr<absl::string_view> PackedData(absl::string_view file, const ZipEntry& entry) {
  if (std::max({entry.packed_bytes, entry.bytes, entry.header_offset}) >= kIn64BitField) {
    return BadNpz("is of 4 GiB or more, or says so (ZIP64): save the array with np.save");
  }
  if (entry.flags % 2 == 1) return BadNpz("is encrypted");
  if (file.size() < entry.header_offset + kLocalHeaderBytes) return BadNpz("is damaged");
  const absl::string_view local = file.substr(entry.header_offset);
  const uint64_t skipped = kLocalHeaderBytes + Little(local, 26, 2) + Little(local, 28, 2);
  if (!absl::StartsWith(local, kLocalHeader) || local.size() < skipped + entry.packed_bytes)
    return BadNpz("is damaged");
  return local.substr(skipped, entry.packed_bytes);
}

absl::StatusOr<std::string> UnpackStored(absl::string_view packed, const ZipEntry& entry) {
  const auto sum = crc32_z(0, reinterpret_cast<const Bytef*>(packed.data()), packed.size());
  if (packed.size() != entry.bytes || sum != entry.crc32) return BadNpz("is damaged");
  return std::string(packed);
}

std::string LittleText(uint64_t value, size_t bytes) {
  std::string out;
  for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
  return out;
}

// Inflates by protobuf's reader of gzip files, which checks the CRC: a gzip file is deflated data between a header of
// ten bytes and a trailer of CRC and size, both of which the archive has, too.
absl::StatusOr<std::string> Inflate(absl::string_view packed, const ZipEntry& entry) {
  const std::string gzip = absl::StrCat(absl::string_view("\x1F\x8B\x08\0\0\0\0\0\0\xFF", 10), packed,
                                        LittleText(entry.crc32, 4), LittleText(entry.bytes, 4));
  if (std::max(gzip.size(), entry.bytes) > std::numeric_limits<int>::max()) {
    return BadNpz("is of 2 GiB or more: save the array with np.save");
  }
  google::protobuf::io::ArrayInputStream source(gzip.data(), static_cast<int>(gzip.size()));
  google::protobuf::io::GzipInputStream inflated(&source, google::protobuf::io::GzipInputStream::GZIP);
  std::string out;
  const void* data = nullptr;
  for (int size = 0; out.size() <= entry.bytes && inflated.Next(&data, &size);) {
    out.append(static_cast<const char*>(data), static_cast<size_t>(size));
  }
  constexpr int kStreamEnd = 1;  // Z_STREAM_END: the checksum was right
  if (out.size() != entry.bytes || inflated.ZlibErrorCode() != kStreamEnd) return BadNpz("is damaged");
  return out;
}

}  // namespace

bool IsZip(absl::string_view file) {
  return absl::StartsWith(file, kLocalHeader) || absl::StartsWith(file, kEndOfDirectory);
}

absl::StatusOr<std::string> NpyInNpz(absl::string_view file) {
  const absl::StatusOr<std::vector<ZipEntry>> entries = ReadDirectory(file);
  if (!entries.ok()) return entries.status();
  std::vector<ZipEntry> arrays;
  std::copy_if(entries->begin(), entries->end(), std::back_inserter(arrays),
               [](const ZipEntry& entry) { return absl::EndsWith(entry.name, ".npy"); });
  if (arrays.empty()) {
    return absl::InvalidArgumentError("is a zip archive without NumPy arrays: save one with np.save(FILE, array)");
  }
  if (arrays.size() > 1) {
    const std::string names = absl::StrJoin(arrays, ", ", [](std::string* out, const ZipEntry& entry) {
      absl::StrAppend(out, absl::StripSuffix(entry.name, ".npy"));
    });
    return absl::InvalidArgumentError(absl::StrCat("holds ", arrays.size(), " arrays (", names.substr(0, 400),
                                                   "): save the one to read with np.save(FILE, array)"));
  }
  const absl::StatusOr<absl::string_view> packed = PackedData(file, arrays[0]);
  if (!packed.ok()) return packed.status();
  if (arrays[0].method == kStored) return UnpackStored(*packed, arrays[0]);
  if (arrays[0].method != kDeflated)
    return BadNpz(absl::StrCat("uses compression ", arrays[0].method, ", and NumPy deflates: save it with np.savez"));
  return Inflate(*packed, arrays[0]);
}

}  // namespace normd::client
