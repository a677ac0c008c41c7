#include "client/cli/tensor_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cli/other_file.h"

namespace normd::client {
namespace {

constexpr absl::string_view kStandardInput = "-";
constexpr uintmax_t kMostReservedBytes = uintmax_t{1} << 36;
constexpr size_t kMaxTensorRank = 8;  // of normd's contract

// Does not close standard input.
struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};

// `path` as messages name the file.
absl::string_view NameOf(absl::string_view path) { return path == kStandardInput ? "standard input" : path; }

absl::Status FileError(absl::string_view path, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(NameOf(path), ": ", what, ": ", std::generic_category().message(errno)));
}

absl::Status WithPath(absl::string_view path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(NameOf(path), ": ", status.message()));
}

template <typename T>
double Element(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return static_cast<double>(value);
}

// One element as a double: exact for all but 64-bit integers beyond 2^53.
double ElementAt(const NpyArray& array, size_t index) {
  const char* at = array.data.data() + index * static_cast<size_t>(array.item_bytes);
  if (array.kind == 'f') {
    if (array.item_bytes == 2) return F16ToFloat(static_cast<uint16_t>(Element<uint16_t>(at)));
    return array.item_bytes == 4 ? Element<float>(at) : Element<double>(at);
  }
  const bool is_signed = array.kind == 'i';
  switch (array.item_bytes) {
    case 1:
      return is_signed ? Element<int8_t>(at) : Element<uint8_t>(at);
    case 2:
      return is_signed ? Element<int16_t>(at) : Element<uint16_t>(at);
    case 4:
      return is_signed ? Element<int32_t>(at) : Element<uint32_t>(at);
    default:
      return is_signed ? Element<int64_t>(at) : Element<uint64_t>(at);
  }
}

DType FloatType(int item_bytes) {
  return item_bytes == 2 ? v1::DTYPE_F16 : item_bytes == 4 ? v1::DTYPE_F32 : v1::DTYPE_F64;
}

// "int64", as NumPy names the type of the elements.
std::string NumpyName(const NpyArray& array) {
  if (array.kind == 'b') return "bool";
  return absl::StrCat(array.kind == 'i' ? "int" : array.kind == 'u' ? "uint" : "float", 8 * array.item_bytes);
}

// What a file holds: a table from text, an array from everything else.
struct FileContent {
  std::optional<CsvTable> table;
  NpyArray array;
};

absl::StatusOr<FileContent> ParseContent(std::string file, bool is_named_npy, const CsvOptions& csv) {
  FileContent out;
  if (file.empty()) return absl::InvalidArgumentError("is empty");
  if (const std::optional<std::string> kind = OtherFileKind(file)) {
    return absl::InvalidArgumentError(
        absl::StrCat(*kind, "; what is read is .npy and .csv, and np.save(FILE, array) writes .npy"));
  }
  if (!IsNpy(file) && !is_named_npy) {
    if (absl::Status status = CheckText(file); !status.ok()) return status;
    absl::StatusOr<CsvTable> table = ParseCsv(file, csv);
    if (!table.ok()) return table.status();
    out.table = *std::move(table);
    return out;
  }
  absl::StatusOr<NpyArray> array = ParseNpy(std::move(file));
  if (!array.ok()) return array.status();
  out.array = *std::move(array);
  return out;
}

absl::StatusOr<FileContent> LoadContent(const std::string& path, const CsvOptions& csv) {
  absl::StatusOr<std::string> file = ReadFile(path);
  if (!file.ok()) return file.status();
  absl::StatusOr<FileContent> content = ParseContent(*std::move(file), FormatOfEnding(path) == FileFormat::kNpy, csv);
  if (!content.ok()) return WithPath(path, content.status());
  return content;
}

}  // namespace

absl::StatusOr<DType> ParseDType(absl::string_view text) {
  if (text == "f32" || text == "float32") return v1::DTYPE_F32;
  if (text == "f16" || text == "float16") return v1::DTYPE_F16;
  if (text == "bf16" || text == "bfloat16") return v1::DTYPE_BF16;
  if (text == "f64" || text == "float64") return v1::DTYPE_F64;
  return absl::InvalidArgumentError(
      absl::StrCat("dtype is ", text.empty() ? "empty" : text, "; it must be ", kDTypeNames));
}

absl::StatusOr<std::optional<DType>> DTypeFlag(const ParsedArgs& args) {
  const std::optional<std::string> text = args.Get("dtype");
  if (!text.has_value()) return std::optional<DType>();
  const absl::StatusOr<DType> dtype = ParseDType(*text);
  if (!dtype.ok()) return BadValueError("dtype", *text, kDTypeNames);
  return std::optional<DType>(*dtype);
}

namespace {

// True if `array` is, or may be, the bits of bf16.
bool MayBeBf16Bits(const NpyArray& array) { return array.item_bytes == 2 && (array.kind == 'u' || array.kind == 'V'); }

absl::Status UnknownTwoBytes() {
  return absl::InvalidArgumentError(
      "holds bf16, or other values of 2 bytes without a type (V2, as NumPy saves ml_dtypes.bfloat16): --dtype bf16 "
      "reads them as bf16");
}

absl::StatusOr<LoadedTensor> FromTable(CsvTable table, std::optional<DType> dtype) {
  LoadedTensor out{Tensor::Rounded(dtype.value_or(v1::DTYPE_F32), {table.rows, table.columns}, table.values),
                   {.format = FileFormat::kCsv, .header = std::move(table.header)},
                   std::move(table.warning)};
  if (dtype.has_value()) return out;
  // Nobody asked for f32: a number that it does not hold must not become an infinity.
  const auto is_lost = [](double value) { return std::isfinite(value) && std::isinf(static_cast<float>(value)); };
  const auto lost = std::find_if(table.values.begin(), table.values.end(), is_lost);
  if (lost == table.values.end()) return out;
  const auto index = static_cast<int64_t>(lost - table.values.begin());
  return absl::InvalidArgumentError(absl::StrCat("row ", index / table.columns + 1, ", column ",
                                                 index % table.columns + 1, " is ", *lost,
                                                 ", beyond the range of f32: --dtype f64 keeps it"));
}

absl::StatusOr<LoadedTensor> FromContent(FileContent content, std::optional<DType> dtype) {
  if (content.table.has_value()) return FromTable(*std::move(content.table), dtype);
  return ToTensor(std::move(content.array), dtype);
}

}  // namespace

std::vector<double> ToDoubles(const NpyArray& array) {
  std::vector<double> out(array.data.size() / static_cast<size_t>(array.item_bytes));
  for (size_t i = 0; i < out.size(); ++i) out[i] = ElementAt(array, i);
  return out;
}

absl::StatusOr<LoadedTensor> ToTensor(NpyArray array, std::optional<DType> dtype) {
  if (MayBeBf16Bits(array) && dtype == v1::DTYPE_BF16) {
    return LoadedTensor{{v1::DTYPE_BF16, std::move(array.shape), std::move(array.data)}, {.raw_bf16 = true}};
  }
  if (array.kind == 'V') return UnknownTwoBytes();
  if (array.kind == 'f' && (!dtype.has_value() || *dtype == FloatType(array.item_bytes))) {
    return LoadedTensor{{FloatType(array.item_bytes), std::move(array.shape), std::move(array.data)}};
  }
  if (!dtype.has_value()) {
    const bool may_be_bf16 = array.kind == 'u' && array.item_bytes == 2;
    return absl::InvalidArgumentError(absl::StrCat("holds ", NumpyName(array),
                                                   ", and only floats are normalised: --dtype f32 converts x",
                                                   may_be_bf16 ? " (--dtype bf16, if these are the bits of bf16)" : "",
                                                   ", a.astype('float32') an array a in Python"));
  }
  return LoadedTensor{Tensor::Rounded(*dtype, array.shape, ToDoubles(array))};
}

absl::StatusOr<LoadedTensor> LoadTensor(const std::string& path, std::optional<DType> dtype, const CsvOptions& csv) {
  absl::StatusOr<FileContent> content = LoadContent(path, csv);
  if (!content.ok()) return content.status();
  absl::StatusOr<LoadedTensor> tensor = FromContent(*std::move(content), dtype);
  if (!tensor.ok()) return WithPath(path, tensor.status());
  if (!tensor->warning.empty()) tensor->warning = absl::StrCat(NameOf(path), ": ", tensor->warning);
  return tensor;
}

absl::StatusOr<LoadedTensor> LoadAsItIs(const std::string& path, std::optional<DType> dtype_of_x,
                                        const CsvOptions& csv) {
  absl::StatusOr<FileContent> content = LoadContent(path, csv);
  if (!content.ok()) return content.status();
  const bool is_bits = dtype_of_x == v1::DTYPE_BF16 && !content->table.has_value() && MayBeBf16Bits(content->array);
  absl::StatusOr<LoadedTensor> tensor = FromContent(*std::move(content), is_bits ? dtype_of_x : std::nullopt);
  if (!tensor.ok()) return WithPath(path, tensor.status());
  if (!tensor->warning.empty()) tensor->warning = absl::StrCat(NameOf(path), ": ", tensor->warning);
  return tensor;
}

absl::Status CheckRank(absl::string_view what, size_t rank) {
  if (rank >= 1 && rank <= kMaxTensorRank) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " has rank ", rank, rank == 0 ? " (one number)" : "", "; 1 to ",
                                                 kMaxTensorRank, " are possible"));
}

absl::StatusOr<Tensor> LoadParameter(const std::string& path, std::optional<DType> dtype_of_x, const CsvOptions& csv) {
  absl::StatusOr<LoadedTensor> loaded = LoadAsItIs(path, dtype_of_x, csv);
  if (!loaded.ok()) return loaded.status();
  std::vector<int64_t>& shape = loaded->tensor.shape;
  const bool is_table = loaded->format.format == FileFormat::kCsv;
  if (is_table && (shape[0] == 1 || shape[1] == 1)) shape = {shape[0] * shape[1]};
  return std::move(loaded->tensor);
}

absl::StatusOr<Tensor> LoadMask(const std::string& path, const CsvOptions& csv) {
  absl::StatusOr<FileContent> content = LoadContent(path, csv);
  if (!content.ok()) return content.status();
  if (content->array.kind == 'V') return WithPath(path, UnknownTwoBytes());
  Tensor out;
  std::vector<double> values;
  if (content->table.has_value()) {
    out.shape = {content->table->rows, content->table->columns};
    values = std::move(content->table->values);
  } else {
    out.shape = content->array.shape;
    values = ToDoubles(content->array);
  }
  out.data.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) out.data[i] = values[i] != 0 ? 1 : 0;
  return out;
}

NpyArray ToNpy(Tensor tensor, bool raw_bf16) {
  NpyArray out;
  out.shape = tensor.shape;
  if (tensor.dtype == v1::DTYPE_BF16 && !raw_bf16) {
    const std::vector<float> wide = tensor.ToFloats();
    out.data = Tensor::F32(tensor.shape, wide).data;
    return out;
  }
  out.kind = tensor.dtype == v1::DTYPE_BF16 ? 'u' : 'f';
  out.item_bytes = static_cast<int>(ElementBytes(tensor.dtype));
  out.data = std::move(tensor.data);
  return out;
}

FileBytes EncodeTensor(Tensor tensor, const TensorFormat& format) {
  if (format.format == FileFormat::kCsv) return {WriteCsv(tensor, format.header), ""};
  NpyArray array = ToNpy(std::move(tensor), format.raw_bf16);
  return {NpyHeader(array), std::move(array.data)};
}

absl::Status SaveTensor(const std::string& path, Tensor tensor, const TensorFormat& format) {
  const FileBytes file = EncodeTensor(std::move(tensor), format);
  return WriteFile(path, file.head, file.body);
}

absl::StatusOr<FileFormat> ParseFileFormat(absl::string_view text) {
  if (text == "npy") return FileFormat::kNpy;
  if (text == "csv") return FileFormat::kCsv;
  return BadValueError("format", text, "npy or csv");
}

std::optional<FileFormat> FormatOfEnding(absl::string_view path) {
  if (absl::EndsWithIgnoreCase(path, ".npy")) return FileFormat::kNpy;
  if (absl::EndsWithIgnoreCase(path, ".csv")) return FileFormat::kCsv;
  return std::nullopt;
}

absl::StatusOr<FileFormat> OutputFormat(const std::string& path, std::optional<FileFormat> chosen,
                                        FileFormat of_input) {
  if (const std::optional<FileFormat> named = FormatOfEnding(path)) return *named;
  if (chosen.has_value()) return *chosen;
  std::error_code error;
  const bool is_pipe_or_device = std::filesystem::is_other(std::filesystem::status(path, error));
  if (path == "-" || absl::StartsWith(path, "/dev/") || is_pipe_or_device) return of_input;
  return UsageError(absl::StrCat(path,
                                 ": results are .npy or .csv: end the name in one of them, or say --format npy "
                                 "or --format csv"));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const bool is_input = path == kStandardInput;
  if (is_input && std::feof(stdin) != 0) {  // set by the read that came to the end
    return absl::InvalidArgumentError("standard input (-) can be read once");
  }
  const std::unique_ptr<std::FILE, CloseFile> file(is_input ? stdin : std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return FileError(path, "cannot open");
  std::string out;
  constexpr size_t kStep = 1 << 20;
  std::error_code error;
  const uintmax_t bytes = is_input ? 0 : std::filesystem::file_size(path, error);
  // One byte more than there are, so that the last read finds the end; a file of no size that is known grows as it
  // goes.
  if (!error && bytes > 0 && bytes < kMostReservedBytes) out.reserve(static_cast<size_t>(bytes) + kStep);
  for (size_t got = kStep; got == kStep;) {
    const size_t before = out.size();
    if (out.capacity() - before < kStep) out.reserve(2 * out.capacity() + kStep);
    out.resize(before + kStep);
    got = std::fread(out.data() + before, 1, kStep, file.get());
    out.resize(before + got);
  }
  if (std::ferror(file.get()) != 0) return FileError(path, "cannot read");
  return out;
}

absl::Status WriteFile(const std::string& path, absl::string_view head, absl::string_view body) {
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "wb"));
  if (file == nullptr) return FileError(path, "cannot create");
  const bool written = std::fwrite(head.data(), 1, head.size(), file.get()) == head.size() &&
                       std::fwrite(body.data(), 1, body.size(), file.get()) == body.size();
  if (std::fclose(file.release()) != 0 || !written) return FileError(path, "cannot write");
  return absl::OkStatus();
}

absl::Status CheckCanWrite(const std::string& path) {
  std::error_code error;
  const std::filesystem::path file(path);
  const std::filesystem::path folder = file.parent_path() / ".";
  const auto type = std::filesystem::status(file, error).type();
  const bool is_folder = type == std::filesystem::file_type::directory;
  const bool exists = type != std::filesystem::file_type::not_found;
  const bool may_write = (exists ? access(path.c_str(), W_OK) : access(folder.c_str(), W_OK | X_OK)) == 0;
  if (may_write && !is_folder) return absl::OkStatus();
  if (is_folder) errno = EISDIR;
  return FileError(path, "cannot create");
}

absl::Status WriteStandardOutput(absl::string_view head, absl::string_view body, std::ostream& out) {
  errno = 0;
  out.write(head.data(), static_cast<std::streamsize>(head.size()));
  out.write(body.data(), static_cast<std::streamsize>(body.size()));
  out.flush();
  if (out.good() || errno == EPIPE) return absl::OkStatus();
  return FileError("standard output", "cannot write");
}

}  // namespace normd::client
