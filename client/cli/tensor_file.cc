#include "client/cli/tensor_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cli/csv.h"

namespace normd::client {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

absl::Status FileError(absl::string_view path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what, ": ", std::generic_category().message(errno)));
}

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
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

std::vector<double> AllElements(const NpyArray& array) {
  std::vector<double> out(array.data.size() / static_cast<size_t>(array.item_bytes));
  for (size_t i = 0; i < out.size(); ++i) out[i] = ElementAt(array, i);
  return out;
}

DType FloatType(int item_bytes) {
  return item_bytes == 2 ? v1::DTYPE_F16 : item_bytes == 4 ? v1::DTYPE_F32 : v1::DTYPE_F64;
}

absl::StatusOr<NpyArray> LoadNpy(const std::string& path) {
  absl::StatusOr<std::string> file = ReadFile(path);
  if (!file.ok()) return file.status();
  absl::StatusOr<NpyArray> array = ParseNpy(*std::move(file));
  if (!array.ok()) return WithPath(path, array.status());
  return array;
}

absl::StatusOr<CsvTable> LoadCsv(const std::string& path) {
  const absl::StatusOr<std::string> file = ReadFile(path);
  if (!file.ok()) return file.status();
  absl::StatusOr<CsvTable> table = ParseCsv(*file);
  if (!table.ok()) return WithPath(path, table.status());
  return table;
}

}  // namespace

absl::StatusOr<DType> ParseDType(absl::string_view text) {
  if (text == "f32" || text == "float32") return v1::DTYPE_F32;
  if (text == "f16" || text == "float16") return v1::DTYPE_F16;
  if (text == "bf16" || text == "bfloat16") return v1::DTYPE_BF16;
  if (text == "f64" || text == "float64") return v1::DTYPE_F64;
  return absl::InvalidArgumentError(absl::StrCat("dtype ", text, ": must be f32, f16, bf16 or f64"));
}

absl::StatusOr<std::optional<DType>> DTypeFlag(const ParsedArgs& args) {
  const std::optional<std::string> text = args.Get("dtype");
  if (!text.has_value()) return std::optional<DType>();
  const absl::StatusOr<DType> dtype = ParseDType(*text);
  if (!dtype.ok()) return UsageError(absl::StrCat("--", dtype.status().message()));
  return std::optional<DType>(*dtype);
}

absl::StatusOr<LoadedTensor> ToTensor(NpyArray array, std::optional<DType> dtype) {
  if (array.kind == 'u' && array.item_bytes == 2 && dtype == v1::DTYPE_BF16) {
    return LoadedTensor{{v1::DTYPE_BF16, std::move(array.shape), std::move(array.data)}, true};
  }
  if (array.kind == 'f' && (!dtype.has_value() || *dtype == FloatType(array.item_bytes))) {
    return LoadedTensor{{FloatType(array.item_bytes), std::move(array.shape), std::move(array.data)}, false};
  }
  if (!dtype.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("holds '", std::string(1, array.kind), array.item_bytes,
                     "', which is no float: convert it with --dtype f32 (bf16 bits stored as u2: --dtype bf16)"));
  }
  return LoadedTensor{Tensor::Rounded(*dtype, array.shape, AllElements(array)), false};
}

absl::StatusOr<LoadedTensor> LoadTensor(const std::string& path, std::optional<DType> dtype) {
  if (absl::Status status = CheckEnding(path); !status.ok()) return status;
  if (absl::EndsWith(path, ".csv")) {
    const absl::StatusOr<CsvTable> table = LoadCsv(path);
    if (!table.ok()) return table.status();
    return LoadedTensor{Tensor::Rounded(dtype.value_or(v1::DTYPE_F32), {table->rows, table->columns}, table->values),
                        false};
  }
  absl::StatusOr<NpyArray> array = LoadNpy(path);
  if (!array.ok()) return array.status();
  absl::StatusOr<LoadedTensor> tensor = ToTensor(*std::move(array), dtype);
  if (!tensor.ok()) return WithPath(path, tensor.status());
  return tensor;
}

absl::StatusOr<Tensor> LoadParameter(const std::string& path) {
  absl::StatusOr<LoadedTensor> loaded = LoadTensor(path, std::nullopt);
  if (!loaded.ok()) return loaded.status();
  std::vector<int64_t>& shape = loaded->tensor.shape;
  if (absl::EndsWith(path, ".csv") && (shape[0] == 1 || shape[1] == 1)) shape = {shape[0] * shape[1]};
  return std::move(loaded->tensor);
}

absl::StatusOr<Tensor> LoadMask(const std::string& path) {
  if (absl::Status status = CheckEnding(path); !status.ok()) return status;
  Tensor out;
  std::vector<double> values;
  if (absl::EndsWith(path, ".csv")) {
    absl::StatusOr<CsvTable> table = LoadCsv(path);
    if (!table.ok()) return table.status();
    out.shape = {table->rows, table->columns};
    values = std::move(table->values);
  } else {
    absl::StatusOr<NpyArray> array = LoadNpy(path);
    if (!array.ok()) return array.status();
    out.shape = array->shape;
    values = AllElements(*array);
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

absl::Status SaveTensor(const std::string& path, Tensor tensor, bool raw_bf16) {
  if (absl::Status status = CheckEnding(path); !status.ok()) return status;
  if (absl::EndsWith(path, ".csv")) return WriteFile(path, WriteCsv(tensor));
  const NpyArray array = ToNpy(std::move(tensor), raw_bf16);
  return WriteFile(path, NpyHeader(array), array.data);
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return FileError(path, "cannot open");
  std::string out;
  constexpr size_t kStep = 1 << 20;
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

absl::Status CheckEnding(const std::string& path) {
  if (absl::EndsWith(path, ".npy") || absl::EndsWith(path, ".csv")) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": must end in .npy or .csv"));
}

}  // namespace normd::client
