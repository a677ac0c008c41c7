// NumPy's .npz files: zip archives of .npy files, stored (np.savez) or deflated (np.savez_compressed). The reader
// trusts nothing: offsets and sizes are checked before they are used. Pure functions.
#ifndef NORMD_CLIENT_CLI_NPZ_H_
#define NORMD_CLIENT_CLI_NPZ_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace normd::client {

// True if `file` starts as zip archives do.
bool IsZip(absl::string_view file);

// The .npy file of the one array that `file` holds. INVALID_ARGUMENT for several arrays, whose names it gives, and for
// archives that are damaged, encrypted, or over 4 GiB.
absl::StatusOr<std::string> NpyInNpz(absl::string_view file);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_NPZ_H_
