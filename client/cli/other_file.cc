#include "client/cli/other_file.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace normd::client {
namespace {

struct Signature {
  size_t offset;
  absl::string_view bytes, kind;
  bool may_be_text = false;  // else the signature counts only in a file that is no text: "PAR1" may be a column's name
};

// What files of other programs begin with.
constexpr Signature kSignatures[] = {
    {0, "\x89HDF\r\n\x1a\n", "is a file of HDF5 (Keras' .h5, netCDF)"},
    {0, "MATLAB 5.0", "is a .mat file of MATLAB"},
    {512, "\x89HDF\r\n\x1a\n", "is a .mat file of MATLAB (HDF5)"},
    {0, "GGUF", "is a GGUF model"},
    {0, "PAR1", "is a Parquet file"},
    {0, "ARROW1", "is an Arrow file"},
    {0, "FEA1", "is a Feather file"},
    {0, "SIMPLE  =", "is a FITS file"},
    {4, "TFL3", "is a model of TensorFlow Lite"},
    {0, "\x1F\x8B", "is compressed by gzip: unpack it first"},
    {0, "BZh", "is compressed by bzip2: unpack it first"},
    {0,
     "\xFD"
     "7zXZ",
     "is compressed by xz: unpack it first"},
    {0, "\x28\xB5\x2F\xFD", "is compressed by zstd: unpack it first"},
    {0, "\xD0\xCF\x11\xE0", "is an old Excel or other Office document"},
    {0, "SQLite format 3", "is a database of SQLite"},
    {0, "version https://git-lfs", "is a pointer of Git LFS, not the file itself: git lfs pull brings it", true},
    {0, "%PDF", "is a PDF document"},
    {0, "\x89PNG", "is an image"},
    {0, "\xFF\xD8\xFF", "is an image"},
};

bool IsSafetensorsFile(absl::string_view file) {
  constexpr size_t kLengthBytes = 8;
  if (file.size() <= kLengthBytes || file[kLengthBytes] != '{') return false;
  uint64_t length;
  std::memcpy(&length, file.data(), kLengthBytes);
  constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit; no text has so many zeros at its start
  return length > 1 && length <= kMaxHeaderBytes;
}

bool IsPickle(absl::string_view file) {
  return file.size() > 2 && file[0] == '\x80' && file[1] >= 2 && file[1] <= 5 && file.back() == '.';
}

// A torch.save of before version 1.6 is pickles one after the other, of which the first is a magic number.
bool IsOldTorch(absl::string_view file) {
  return absl::StartsWith(file, absl::string_view("\x80\x02\x8A\x0A\x6C\xFC\x9C\x46\xF9", 9));
}

// A model of ONNX is protobuf, as a record of normd is: its version and then the name of the program that made it.
bool IsOnnx(absl::string_view file) {
  constexpr absl::string_view kProducers[] = {"pytorch", "tf2onnx", "keras2onnx", "skl2onnx", "onnx"};
  constexpr size_t kProducer = 4;
  if (file.size() < kProducer || file[0] != 0x08 || file[1] < 3 || file[2] != 0x12) return false;
  return std::any_of(std::begin(kProducers), std::end(kProducers),
                     [file](absl::string_view producer) { return absl::StartsWith(file.substr(kProducer), producer); });
}

bool IsMarkup(absl::string_view file) {
  const absl::string_view start = absl::StripLeadingAsciiWhitespace(file.substr(0, 256));
  return absl::StartsWithIgnoreCase(start, "<!doctype") || absl::StartsWithIgnoreCase(start, "<html") ||
         absl::StartsWith(start, "<?xml");
}

std::optional<std::string> JsonKind(absl::string_view file) {
  const absl::string_view start = absl::StripLeadingAsciiWhitespace(file.substr(0, 64));
  const bool is_list = absl::StartsWith(start, "[") && absl::EndsWith(absl::StripTrailingAsciiWhitespace(file), "]") &&
                       absl::StrContains(file, ",");  // else as print() shows an array
  if (!absl::StartsWith(start, "{") && !is_list) return std::nullopt;
  if (absl::StrContains(file, "\"weight_map\"")) {
    return "is the index of a sharded checkpoint: its weight_map names the .safetensors file that has the layer";
  }
  return "is JSON";
}

bool IsZip(absl::string_view file) {
  return absl::StartsWith(file, "PK\x03\x04") || absl::StartsWith(file, "PK\x05\x06");
}

std::string ZipKind(absl::string_view file) {
  // The directory at the end has the names of the members in the clear.
  constexpr size_t kLookedAt = 1 << 20;
  const absl::string_view directory = file.substr(file.size() - std::min(file.size(), kLookedAt));
  const auto has = [directory](absl::string_view name) { return absl::StrContains(directory, name); };
  if (has("/data.pkl") || has("/.data/serialization_id")) {
    return "is a checkpoint of PyTorch (torch.save)";
  }
  if (has("model.weights.h5")) return "is a .keras model";
  if (has("xl/workbook")) return "is an Excel workbook: save the sheet as .csv";
  if (has(".npy")) {
    return "is an .npz of NumPy, a zip archive of .npy files: python3 -m zipfile -e FILE.npz . unpacks them";
  }
  return "is a zip archive";
}

// True if every second byte of the start is zero, as in UTF-16 of ASCII characters.
bool IsUtf16(absl::string_view file) {
  if (absl::StartsWith(file, "\xFF\xFE") || absl::StartsWith(file, "\xFE\xFF")) return true;
  const absl::string_view start = file.substr(0, std::min<size_t>(file.size(), 64) / 2 * 2);
  for (const size_t parity : {0, 1}) {
    bool all = start.size() >= 4;
    for (size_t i = 0; i < start.size(); ++i) all = all && (start[i] == '\0') == (i % 2 == parity);
    if (all) return true;
  }
  return false;
}

}  // namespace

std::optional<std::string> OtherFileKind(absl::string_view file) {
  if (IsSafetensorsFile(file)) {  // whose length may begin as a signature
    return "is a .safetensors file: in Python, safetensors reads it and normd's Session.load_state_dict takes it";
  }
  const bool is_text = CheckText(file).ok();
  for (const Signature& signature : kSignatures) {
    if (is_text && !signature.may_be_text) continue;
    if (file.size() > signature.offset && absl::StartsWith(file.substr(signature.offset), signature.bytes)) {
      return std::string(signature.kind);
    }
  }
  if (IsZip(file)) return ZipKind(file);
  if (IsOldTorch(file)) return "is a checkpoint of PyTorch (torch.save)";
  if (IsOnnx(file)) return "is a model of ONNX";
  if (IsPickle(file)) return "is a pickle of Python";
  if (IsMarkup(file)) return "is a web page or XML, perhaps in place of a download that failed";
  return JsonKind(file);
}

absl::Status CheckText(absl::string_view file) {
  if (IsUtf16(file)) return absl::InvalidArgumentError("is text in UTF-16: save it as UTF-8");
  const auto is_binary = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < ' ' && (byte < '\t' || byte > '\r');
  };
  constexpr size_t kLookedAt = 4096;
  const absl::string_view start = file.substr(0, kLookedAt);
  const auto* binary = std::find_if(start.begin(), start.end(), is_binary);
  const size_t at = binary != start.end() ? static_cast<size_t>(binary - start.begin()) : file.find('\0');
  if (at >= file.size()) return absl::OkStatus();
  const auto line = std::count(file.begin(), file.begin() + static_cast<ptrdiff_t>(at), '\n') + 1;
  return absl::InvalidArgumentError(absl::StrCat("is neither .npy nor .csv (line ", line, " has the byte \"",
                                                 absl::CHexEscape(file.substr(at, 1)),
                                                 "\", which text has not): save it with np.save(FILE, array)"));
}

}  // namespace normd::client
