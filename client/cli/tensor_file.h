// Reads tensors from files and writes them: .npy and .csv, told apart by the file's ending. All rules of dtype
// conversion are in this one place.
#ifndef NORMD_CLIENT_CLI_TENSOR_FILE_H_
#define NORMD_CLIENT_CLI_TENSOR_FILE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/args.h"
#include "client/cli/npy.h"
#include "client/cpp/tensor.h"

namespace normd::client {

// A tensor read from a file. `raw_bf16`: the file held bf16 bits as uint16, so results are written as uint16, too.
struct LoadedTensor {
  Tensor tensor;
  bool raw_bf16 = false;
};

// Parses "f32", "float32", "bf16", ...
absl::StatusOr<DType> ParseDType(absl::string_view text);

// The value of --dtype. UsageError for unknown names.
absl::StatusOr<std::optional<DType>> DTypeFlag(const ParsedArgs& args);

// Converts an array. Floats keep their dtype unless `dtype` is given, which rounds them to nearest even. A .csv is f32
// without `dtype`. Integers and booleans need `dtype`. With `dtype` bf16, uint16 values are taken as bf16 bits, because
// NumPy has no bf16.
absl::StatusOr<LoadedTensor> ToTensor(NpyArray array, std::optional<DType> dtype);
absl::StatusOr<LoadedTensor> LoadTensor(const std::string& path, std::optional<DType> dtype);

// Loads a weight or a bias with the dtype of the file. A .csv of one row or one column is a vector.
absl::StatusOr<Tensor> LoadParameter(const std::string& path);

// Loads a mask: one byte for each element, 1 where the file's value is not 0. Its dtype is unspecified, as the contract
// asks.
absl::StatusOr<Tensor> LoadMask(const std::string& path);

// Converts to an array. bf16 is widened to float32, exactly, or kept as uint16 bits if `raw_bf16`.
NpyArray ToNpy(Tensor tensor, bool raw_bf16);
absl::Status SaveTensor(const std::string& path, Tensor tensor, bool raw_bf16);

// Read and write whole files. Errors name the path.
absl::StatusOr<std::string> ReadFile(const std::string& path);
absl::Status WriteFile(const std::string& path, absl::string_view head, absl::string_view body = "");

// An error unless `path` ends in .npy or .csv, the endings that LoadTensor and SaveTensor accept.
absl::Status CheckEnding(const std::string& path);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_TENSOR_FILE_H_
