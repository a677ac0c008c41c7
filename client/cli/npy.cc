#include "client/cli/npy.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
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

// NumPy's types of numbers by the names that are no kind and size: np.dtype takes them, too.
struct NamedType {
  absl::string_view name;
  char kind;
  int bytes;
};
constexpr NamedType kNamedTypes[] = {
    {"float16", 'f', 2}, {"float32", 'f', 4}, {"float64", 'f', 8}, {"half", 'f', 2},   {"single", 'f', 4},
    {"double", 'f', 8},  {"e", 'f', 2},       {"f", 'f', 4},       {"d", 'f', 8},      {"bool", 'b', 1},
    {"?", 'b', 1},       {"int8", 'i', 1},    {"int16", 'i', 2},   {"int32", 'i', 4},  {"int64", 'i', 8},
    {"uint8", 'u', 1},   {"uint16", 'u', 2},  {"uint32", 'u', 4},  {"uint64", 'u', 8}, {"b", 'i', 1},
    {"B", 'u', 1},       {"h", 'i', 2},       {"H", 'u', 2},       {"i", 'i', 4},      {"I", 'u', 4},
    {"q", 'i', 8},       {"Q", 'u', 8},       {"bfloat16", 'V', 2}};

// An error that says what an array of NumPy's type `type` ("V4", without the byte order) holds, and what to save
// instead.
absl::Status NoNumbers(absl::string_view type) {
  const char kind = type.empty() ? '\0' : type[0];
  const std::string shown = absl::CHexEscape(type.substr(0, 32));
  if (kind == 'O') return Bad("holds Python objects, not numbers: save a.astype('float32') instead of the array a");
  if (absl::StrContains("USaT", kind)) {
    return Bad("holds text, not numbers: save a.astype('float32') instead of the array a");
  }
  if (kind == 'c' || kind == 'F' || kind == 'D' || kind == 'G') {
    return Bad("holds complex numbers: save a.real and a.imag, each by itself, instead of the array a");
  }
  if (kind == 'M' || kind == 'm') return Bad("holds dates or times, not numbers");
  int bytes = 0;
  const bool has_size = absl::SimpleAtoi(type.empty() ? "" : type.substr(1), &bytes);
  if (kind == 'V' && has_size) {
    return Bad(absl::StrCat("holds values of ", bytes, bytes == 1 ? " byte" : " bytes", " without a type (", shown,
                            "), which is how NumPy saves ",
                            bytes == 1 ? "the 8-bit and 4-bit types of ml_dtypes" : "types that it does not know",
                            ": save a.astype('float32') instead of the array a"));
  }
  if ((kind == 'f' && has_size) || type == "g" || absl::StartsWith(type, "float") || type == "longdouble") {
    return Bad(absl::StrCat(
        "holds floats of type '", shown, "'; those of 2, 4 and 8 bytes are read: save ",
        bytes > 8 || (!has_size && !absl::StartsWith(type, "float")) ? "a.astype('float64')" : "a.astype('float32')",
        " instead of the array a"));
  }
  return Bad(absl::StrCat("dtype '", shown, "' is not understood: save a.astype('float32') instead of the array a"));
}

// The kind and the size of `type`, which has no byte order; false for those that are not read.
bool FindType(absl::string_view type, NpyArray& out) {
  const auto* named = std::find_if(std::begin(kNamedTypes), std::end(kNamedTypes),
                                   [type](const NamedType& t) { return t.name == type; });
  if (named != std::end(kNamedTypes)) {
    out.kind = named->kind;
    out.item_bytes = named->bytes;
    return true;
  }
  int bytes = 0;
  if (type.size() < 2 || !absl::ascii_isdigit(type[1]) || !absl::SimpleAtoi(type.substr(1), &bytes)) return false;
  out.kind = type[0];
  out.item_bytes = bytes;
  const bool is_power = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
  return (type[0] == 'f' && is_power && bytes > 1) || (type[0] == 'b' && bytes == 1) ||
         (type[0] == 'V' && bytes == 2) || (absl::StrContains("iu", type[0]) && is_power);
}

absl::Status ParseDescr(absl::string_view header, NpyArray& out) {
  const std::optional<absl::string_view> value = ValueOf(header, "descr");
  if (!value || value->empty()) return Bad("the header has no 'descr'");
  if (value->front() != '\'' && value->front() != '"') {
    return Bad("holds records (a structured dtype): save one of its fields, a['NAME']");
  }
  const size_t end = value->find(value->front(), 1);
  absl::string_view type = value->substr(1, end == absl::string_view::npos ? end : end - 1);
  const bool has_order = !type.empty() && absl::StrContains("<>=|", type[0]);
  const bool is_big_endian = has_order && type[0] == '>';
  if (has_order) type.remove_prefix(1);
  if (!FindType(type, out)) return NoNumbers(type);
  if (is_big_endian && out.item_bytes > 1 && out.kind != 'V') {
    return Bad(absl::StrCat("holds big-endian numbers: save a.astype('<", std::string(1, out.kind), out.item_bytes,
                            "') instead of the array a"));
  }
  return absl::OkStatus();
}

absl::Status ParseShape(absl::string_view header, NpyArray& out) {
  const std::optional<absl::string_view> value = ValueOf(header, "shape");
  const size_t end = value ? value->find(')') : absl::string_view::npos;
  if (end == absl::string_view::npos || value->front() != '(') return Bad("the header has no 'shape'");
  std::vector<absl::string_view> pieces = absl::StrSplit(value->substr(1, end - 1), ',');
  if (absl::StripAsciiWhitespace(pieces.back()).empty()) pieces.pop_back();  // as in "(3,)" and "()"
  for (absl::string_view piece : pieces) {
    piece = absl::StripAsciiWhitespace(piece);
    absl::ConsumeSuffix(&piece, "L");  // Python 2 wrote "(3L,)"
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

absl::StatusOr<NpyStart> ParseNpyStart(absl::string_view file) {
  const absl::StatusOr<std::pair<size_t, size_t>> place = FindNpyHeader(file);
  if (!place.ok()) return place.status();
  const absl::string_view header = file.substr(place->first, place->second);
  NpyStart out;
  out.header_bytes = place->first + place->second;
  if (absl::Status status = ParseDescr(header, out.array); !status.ok()) return status;
  if (absl::Status status = ParseShape(header, out.array); !status.ok()) return status;
  const std::optional<absl::string_view> order = ValueOf(header, "fortran_order");
  out.is_fortran = order.has_value() && absl::StartsWith(*order, "True");
  if (!out.is_fortran && !(order.has_value() && absl::StartsWith(*order, "False"))) {
    return Bad("the header has no 'fortran_order'");
  }
  return out;
}

absl::StatusOr<NpyArray> ParseNpyHeader(absl::string_view start) {
  absl::StatusOr<NpyStart> parsed = ParseNpyStart(start);
  if (!parsed.ok()) return parsed.status();
  return std::move(parsed->array);
}

absl::StatusOr<NpyArray> ParseNpy(std::string file) {
  absl::StatusOr<NpyStart> start = ParseNpyStart(file);
  if (!start.ok()) return start.status();
  const size_t header_bytes = start->header_bytes;
  NpyArray& out = start->array;
  int64_t bytes = out.item_bytes;
  for (int64_t extent : out.shape) {
    // An extent of 0 must not hide an overflow of the others.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes)) return Bad("the shape's size overflows");
  }
  for (int64_t extent : out.shape) bytes = extent == 0 ? 0 : bytes;
  const size_t held = file.size() - header_bytes;
  if (static_cast<uint64_t>(bytes) != held) {
    const bool has_more = held > static_cast<uint64_t>(bytes);
    const bool has_arrays =
        has_more && IsNpy(absl::string_view(file).substr(header_bytes + static_cast<size_t>(bytes)));
    return Bad(absl::StrCat("the shape needs ", bytes, " bytes of data, the file holds ", held,
                            has_arrays ? ", and another array follows: save each array in a file of its own" : ""));
  }
  file.erase(0, header_bytes);
  out.data = start->is_fortran && out.shape.size() > 1 ? ToCOrder(out, file) : std::move(file);
  return std::move(out);
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
