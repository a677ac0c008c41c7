#include "client/cli/npy.h"

#include <cstring>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace normd::client {
namespace {

constexpr absl::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxNpyHeaderBytes = 64 << 10;  // NumPy's own headers are shorter than 200 bytes
constexpr size_t kMaxRank = 32;

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

// The text after `'key':` in the header's dict, without leading blanks; nullopt if the key is missing.
std::optional<absl::string_view> ValueOf(absl::string_view header, absl::string_view key) {
  for (absl::string_view quote : {"'", "\""}) {
    const std::string quoted = absl::StrCat(quote, key, quote);
    const size_t at = header.find(quoted);
    if (at == absl::string_view::npos) continue;
    absl::string_view rest = absl::StripLeadingAsciiWhitespace(header.substr(at + quoted.size()));
    if (absl::ConsumePrefix(&rest, ":")) return absl::StripLeadingAsciiWhitespace(rest);
  }
  return std::nullopt;
}

// An error that says what an array of NumPy's type `descr` holds, and what to save instead.
absl::Status NoNumbers(absl::string_view descr) {
  const char kind = descr.size() < 2 ? '\0' : descr[1];
  if (kind == 'O') return Bad("holds Python objects, not numbers: save a.astype('float32') instead of the array a");
  if (kind == 'U' || kind == 'S')
    return Bad("holds text, not numbers: save a.astype('float32') instead of the array a");
  if (kind == 'c') return Bad("holds complex numbers: save a.real and a.imag, each by itself, instead of the array a");
  if (kind == 'M' || kind == 'm') return Bad("holds dates or times, not numbers");
  if (kind == 'f') {
    return Bad(absl::StrCat("holds floats of ", descr.substr(2, 30), " bytes; at most 8: save a.astype('float64')"));
  }
  return Bad(absl::StrCat("dtype '", descr.substr(0, 32), "' is not understood"));
}

absl::Status ParseDescr(absl::string_view header, NpyArray& out) {
  const std::optional<absl::string_view> value = ValueOf(header, "descr");
  if (!value || value->empty()) return Bad("the header has no 'descr'");
  if (value->front() != '\'' && value->front() != '"') {
    return Bad("holds records (a structured dtype): save one of its fields, a['NAME']");
  }
  const size_t end = value->find(value->front(), 1);
  const absl::string_view descr = value->substr(1, end == absl::string_view::npos ? end : end - 1);
  int bytes = 0;
  if (end == absl::string_view::npos || descr.size() < 3 || !absl::SimpleAtoi(descr.substr(2), &bytes)) {
    return NoNumbers(descr);
  }
  if (descr[0] == '>' && bytes > 1) return Bad("holds big-endian numbers: save a.astype('<f4') instead of the array a");
  const bool known =
      absl::StrContains("<|=>", descr[0]) &&
      ((descr[1] == 'f' && (bytes == 2 || bytes == 4 || bytes == 8)) || (descr[1] == 'b' && bytes == 1) ||
       (absl::StrContains("iu", descr[1]) && (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8)));
  if (!known) return NoNumbers(descr);
  out.kind = descr[1];
  out.item_bytes = bytes;
  return absl::OkStatus();
}

absl::Status ParseShape(absl::string_view header, NpyArray& out) {
  const std::optional<absl::string_view> value = ValueOf(header, "shape");
  const size_t end = value ? value->find(')') : absl::string_view::npos;
  if (end == absl::string_view::npos || value->front() != '(') return Bad("the header has no 'shape'");
  for (absl::string_view piece : absl::StrSplit(value->substr(1, end - 1), ',')) {
    piece = absl::StripAsciiWhitespace(piece);
    if (piece.empty()) continue;  // as in "(3,)" and "()"
    int64_t extent;
    if (!absl::SimpleAtoi(piece, &extent) || extent < 0) return Bad("the shape holds something else than extents");
    if (out.shape.size() == kMaxRank) return Bad("the rank is over 32");
    out.shape.push_back(extent);
  }
  return absl::OkStatus();
}

// Copies Fortran-ordered `from` to C order: the index runs over the result, last axis fastest.
std::string ToCOrder(const NpyArray& array, absl::string_view from) {
  const size_t rank = array.shape.size();
  const size_t item = static_cast<size_t>(array.item_bytes);
  std::string out(from.size(), '\0');
  std::vector<size_t> stride(rank, item), index(rank, 0);
  for (size_t axis = 1; axis < rank; ++axis)
    stride[axis] = stride[axis - 1] * static_cast<size_t>(array.shape[axis - 1]);
  size_t source = 0;
  for (size_t to = 0; to < out.size(); to += item) {
    std::memcpy(out.data() + to, from.data() + source, item);
    for (size_t axis = rank; axis-- > 0;) {
      source += stride[axis];
      if (++index[axis] < static_cast<size_t>(array.shape[axis])) break;
      source -= stride[axis] * index[axis];
      index[axis] = 0;
    }
  }
  return out;
}

// Finds the header's text: {offset, length}.
absl::StatusOr<std::pair<size_t, size_t>> FindNpyHeader(absl::string_view file) {
  if (!IsNpy(file)) return Bad("the magic bytes are missing: not a .npy file");
  if (file.size() < 10) return Bad("the file ends inside its header");
  const int major = static_cast<unsigned char>(file[6]);
  if (major < 1 || major > 3) return Bad(absl::StrCat("format version ", major, " is not known"));
  const size_t length_bytes = major == 1 ? 2 : 4;
  if (file.size() < 8 + length_bytes) return Bad("the file ends inside its header");
  size_t length = 0;
  for (size_t i = length_bytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(file[8 + i]);
  if (length > kMaxNpyHeaderBytes)
    return Bad(absl::StrCat("a header of ", length, " bytes; at most ", kMaxNpyHeaderBytes));
  if (file.size() - 8 - length_bytes < length) return Bad("the file ends inside its header");
  return std::pair<size_t, size_t>(8 + length_bytes, length);
}

}  // namespace

bool IsNpy(absl::string_view file) { return absl::StartsWith(file, kMagic); }

absl::StatusOr<NpyArray> ParseNpy(std::string file) {
  const absl::StatusOr<std::pair<size_t, size_t>> place = FindNpyHeader(file);
  if (!place.ok()) return place.status();
  const auto [offset, length] = *place;
  const absl::string_view header(file.data() + offset, length);
  NpyArray out;
  if (absl::Status status = ParseDescr(header, out); !status.ok()) return status;
  if (absl::Status status = ParseShape(header, out); !status.ok()) return status;
  const std::optional<absl::string_view> order = ValueOf(header, "fortran_order");
  const bool fortran = order.has_value() && absl::StartsWith(*order, "True");
  if (!fortran && !(order.has_value() && absl::StartsWith(*order, "False"))) {
    return Bad("the header has no 'fortran_order'");
  }

  int64_t bytes = out.item_bytes;
  for (int64_t extent : out.shape) {
    // An extent of 0 must not hide an overflow of the others.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes)) return Bad("the shape's size overflows");
  }
  for (int64_t extent : out.shape) bytes = extent == 0 ? 0 : bytes;
  const size_t held = file.size() - offset - length;
  if (static_cast<uint64_t>(bytes) != held) {
    return Bad(absl::StrCat("the shape needs ", bytes, " bytes of data, the file holds ", held));
  }
  file.erase(0, offset + length);
  out.data = fortran && out.shape.size() > 1 ? ToCOrder(out, file) : std::move(file);
  return out;
}

std::string NpyHeader(const NpyArray& array) {
  const std::string shape = absl::StrCat("(", absl::StrJoin(array.shape, ", "), array.shape.size() == 1 ? ",)" : ")");
  std::string dict = absl::StrCat("{'descr': '", array.item_bytes == 1 ? "|" : "<", std::string(1, array.kind),
                                  array.item_bytes, "', 'fortran_order': False, 'shape': ", shape, ", }");
  constexpr size_t kPrefixBytes = 10;
  while ((kPrefixBytes + dict.size() + 1) % 64 != 0) dict.push_back(' ');
  dict.push_back('\n');
  std::string out(kMagic);
  out.push_back('\x01');
  out.push_back('\0');
  out.push_back(static_cast<char>(dict.size() & 0xFF));
  out.push_back(static_cast<char>(dict.size() >> 8));
  return out + dict;
}

}  // namespace normd::client
