// NumPy's .npy files, versions 1.0, 2.0 and 3.0, read from and written to memory. The reader trusts nothing: it checks
// header length, shape and byte count before it allocates anything in proportion to them. Pure functions.
#ifndef NORMD_CLIENT_CLI_NPY_H_
#define NORMD_CLIENT_CLI_NPY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace normd::client {

// An array in C order. `kind` and `item_bytes` are NumPy's: 'f' 4 is float32, 'b' 1 is bool, 'u' 2 is uint16. 'V' 2 is
// bf16, of which NumPy keeps the size alone when it saves the type of ml_dtypes.
struct NpyArray {
  char kind = 'f';
  int item_bytes = 4;
  std::vector<int64_t> shape;
  std::string data;
};

// True if `file` starts as every .npy file does.
bool IsNpy(absl::string_view file);

// Parses `file` and takes over its bytes. Arrays in Fortran order are transposed. INVALID_ARGUMENT for anything but a
// whole file of little-endian (or one-byte) booleans, integers or floats of up to 8 bytes.
absl::StatusOr<NpyArray> ParseNpy(std::string file);

// What the start of a file, of 64 KiB or more, says of its array. The result has no data.
absl::StatusOr<NpyArray> ParseNpyHeader(absl::string_view start);

// As above, with where the data begin, and whether they are in Fortran order.
struct NpyStart {
  NpyArray array;  // without data
  bool is_fortran = false;
  size_t header_bytes = 0;
};
absl::StatusOr<NpyStart> ParseNpyStart(absl::string_view start);

// Magic bytes, version 1.0 and header, padded as NumPy does; `array.data` must follow. Does not look at the data.
std::string NpyHeader(const NpyArray& array);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_NPY_H_
