// Safetensors files, the format in which PyTorch programs exchange state_dicts: 8 bytes of header length,
// little-endian, a JSON header {name: {dtype, shape, data_offsets}, "__metadata__": {string: string}}, then the data.
// Read from and written to memory. The reader trusts nothing: it checks every length, offset, shape and name before
// use. Pure functions. Parsed tensors borrow the file's bytes. Source: github.com/huggingface/safetensors, README.
#ifndef NORMD_CLIENT_CLI_SAFETENSORS_H_
#define NORMD_CLIENT_CLI_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/tensor.h"

namespace normd::client {

// One tensor of a file. `data` borrows the file's bytes.
struct SafetensorsTensor {
  std::string dtype;           // the format's own name: "F32"
  std::vector<int64_t> shape;  // empty for a single value
  absl::string_view data;      // row-major, little-endian

  int64_t elements() const;  // REQUIRES: the product of the shape is in range, as ParseSafetensors checks
};

struct Safetensors {
  std::map<std::string, SafetensorsTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Parses `file`, which must outlive the result. INVALID_ARGUMENT, naming field, value and limit, for a header that is
// longer than 100 MB or than the file, is not JSON of the form above, or names something twice; for a dtype that the
// format does not know (members of an entry that it does not know are skipped); and for tensors whose bytes do not
// match dtype and shape, overlap, leave gaps, or end elsewhere than the file.
absl::StatusOr<Safetensors> ParseSafetensors(absl::string_view file);

// The bytes of a whole file. Tensors are ordered by element size, widest first, then by name, so that every tensor is
// aligned to its element. The header is padded with spaces to a multiple of 8. INVALID_ARGUMENT for names and metadata
// that are not UTF-8, for the name "__metadata__", for unknown dtypes, and for bytes that do not match the shape.
absl::StatusOr<std::string> WriteSafetensors(const Safetensors& file);

// "F32" for DTYPE_F32; empty for dtypes that the format does not know.
absl::string_view SafetensorsDType(DType dtype);

// Converts to a Tensor with the same bits. INVALID_ARGUMENT, naming `name`, for dtypes other than F64, F32, F16 and
// BF16.
absl::StatusOr<Tensor> ToFloatTensor(absl::string_view name, const SafetensorsTensor& tensor);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_SAFETENSORS_H_
