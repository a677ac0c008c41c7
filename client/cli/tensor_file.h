// Reads tensors from files and writes them: .npy and .csv, told apart by their first bytes. "-" is
// standard input. All rules of dtype conversion are in this one place.
#ifndef NORMD_CLIENT_CLI_TENSOR_FILE_H_
#define NORMD_CLIENT_CLI_TENSOR_FILE_H_

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/args.h"
#include "client/cli/csv.h"
#include "client/cli/csv_flags.h"
#include "client/cli/npy.h"
#include "client/cpp/tensor.h"

namespace normd::client {

enum class FileFormat { kNpy, kCsv };

// How a tensor was, or will be, written. `raw_bf16`: bf16 is bits in uint16. `header`: the first line of a .csv.
struct TensorFormat {
  FileFormat format = FileFormat::kNpy;
  bool raw_bf16 = false;
  std::vector<std::string> header = {};
};

// A tensor read from a file, and the format to write results in that should be like the file.
struct LoadedTensor {
  Tensor tensor;
  TensorFormat format = {};
  std::string warning = {};  // what a person should know of the file, with its path; empty if there is nothing
};

// What messages say of a dtype.
inline constexpr absl::string_view kDTypeNames = "f32, f16, bf16 or f64";
// Parses "f32", "float32", "bf16", ...
absl::StatusOr<DType> ParseDType(absl::string_view text);

// The value of --dtype. UsageError for unknown names.
absl::StatusOr<std::optional<DType>> DTypeFlag(const ParsedArgs& args);

// The elements as doubles: exact for all but 64-bit integers beyond 2^53. REQUIRES: the kind is not 'V'.
std::vector<double> ToDoubles(const NpyArray& array);

// Converts an array. Floats keep their dtype unless `dtype` is given, which rounds them to nearest even. A .csv is f32
// without `dtype`. Integers and booleans need `dtype`. With `dtype` bf16, uint16 values are taken as bf16 bits, because
// NumPy has no bf16, and so are values of 2 bytes without a type, as which it saves that of ml_dtypes.
absl::StatusOr<LoadedTensor> ToTensor(NpyArray array, std::optional<DType> dtype);
absl::StatusOr<LoadedTensor> LoadTensor(const std::string& path, std::optional<DType> dtype,
                                        const CsvOptions& csv = {});
// Loads a tensor that goes with x, with the values and the dtype of its file. What may be the bits of bf16 are these if
// the dtype that was asked for x is bf16.
absl::StatusOr<LoadedTensor> LoadAsItIs(const std::string& path, std::optional<DType> dtype_of_x,
                                        const CsvOptions& csv = {});

// OK if rank `rank` may be normalised. `what` names the tensor.
absl::Status CheckRank(absl::string_view what, size_t rank);

// Loads a weight or a bias with the dtype of the file. A .csv of one row or one column is a vector.
absl::StatusOr<Tensor> LoadParameter(const std::string& path, std::optional<DType> dtype_of_x = std::nullopt,
                                     const CsvOptions& csv = {});

// Loads a mask: one byte for each element, 1 where the file's value is not 0. Its dtype is unspecified, as the contract
// asks.
absl::StatusOr<Tensor> LoadMask(const std::string& path, const CsvOptions& csv = {});

// Converts to an array. bf16 is widened to float32, exactly, or kept as uint16 bits if `raw_bf16`.
NpyArray ToNpy(Tensor tensor, bool raw_bf16);

// The bytes of a file, in two parts that follow each other, so that a large tensor is not copied behind its header.
struct FileBytes {
  std::string head, body;
};
FileBytes EncodeTensor(Tensor tensor, const TensorFormat& format);
absl::Status SaveTensor(const std::string& path, Tensor tensor, const TensorFormat& format);

// Parses the value of --format: "npy" or "csv".
absl::StatusOr<FileFormat> ParseFileFormat(absl::string_view text);
// The format that the ending of `path` names; nullopt for other endings.
std::optional<FileFormat> FormatOfEnding(absl::string_view path);
// The format for results at `path`: that of its ending, else `chosen`, else `of_input` for "-" and for what is no
// regular file (/dev/stdout, a FIFO). UsageError for other paths, with what is possible.
absl::StatusOr<FileFormat> OutputFormat(const std::string& path, std::optional<FileFormat> chosen, FileFormat of_input);

// Read and write whole files. Errors name the path. ReadFile takes "-" for standard input, which can be read
// once: INVALID_ARGUMENT where it was read before.
absl::StatusOr<std::string> ReadFile(const std::string& path);
absl::Status WriteFile(const std::string& path, absl::string_view head, absl::string_view body = "");
// OK if WriteFile can probably write the file: it may be written, or may be created in its folder. Creates nothing.
absl::Status CheckCanWrite(const std::string& path);
// Writes to `out`, which is standard output. A reader that has read enough, such as head, is no error worth a message.
absl::Status WriteStandardOutput(absl::string_view head, absl::string_view body, std::ostream& out);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_TENSOR_FILE_H_
