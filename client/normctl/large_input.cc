#include "client/normctl/large_input.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/npy.h"
#include "client/cli/program.h"
#include "client/cli/tensor_file.h"
#include "client/normctl/split.h"
#include "client/normctl/target.h"

namespace normd::client {
namespace {

constexpr uintmax_t kLargeFileBytes = 64 << 20;
constexpr size_t kStartBytes = 65 << 10;  // holds the longest header that is read

// What the header of the file at `path` says, if it is a large .npy.
std::optional<NpyArray> ReadHeader(const std::string& path) {
  std::error_code error;
  if (path == "-" || !std::filesystem::is_regular_file(path, error)) return std::nullopt;
  if (std::filesystem::file_size(path, error) < kLargeFileBytes || error) return std::nullopt;
  std::string start(kStartBytes, '\0');
  if (!std::ifstream(path, std::ios::binary).read(start.data(), static_cast<std::streamsize>(start.size()))) {
    return std::nullopt;
  }
  absl::StatusOr<NpyArray> array = ParseNpyHeader(start);
  return array.ok() ? std::optional<NpyArray>(*std::move(array)) : std::nullopt;
}

// The bytes of x; 0 if they overflow, which is another error.
int64_t BytesOf(const NpyArray& array, std::optional<DType> dtype) {
  int64_t bytes = dtype.has_value() ? ElementBytes(*dtype) : array.item_bytes;
  for (const int64_t extent : array.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return 0;
  }
  return bytes;
}

// True if x, y, and perhaps the residual and h, may be shared with the server as a whole.
bool MayShare(const Client& client, const v1::DescribeResponse& describe, int64_t bytes, bool has_residual) {
  const bool has_socket = absl::StartsWith(client.target(), "unix:") || !describe.unix_socket().empty();
  const int64_t tensors = has_residual ? 4 : 2;
  return has_socket && bytes <= describe.limits().max_region_bytes() / tensors;
}

}  // namespace

absl::Status CheckLargeInput(const std::string& method, const ParsedArgs& args) {
  const std::string& path = args.operands()[0];
  const std::optional<NpyArray> array = ReadHeader(path);
  const absl::StatusOr<std::optional<DType>> dtype = DTypeFlag(args);
  if (!array.has_value() || !dtype.ok()) return absl::OkStatus();
  const int64_t bytes = BytesOf(*array, *dtype);
  v1::NormalizeRequest request;  // all but the data
  request.set_mode(args.Has("training") ? v1::MODE_TRAINING : v1::MODE_INFERENCE);
  *request.mutable_x()->mutable_shape() = {array->shape.begin(), array->shape.end()};
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return absl::OkStatus();
  const absl::StatusOr<v1::NormSpec> spec = SetTarget(**client, method, args, request);
  if (!spec.ok()) return spec.status();
  if (!IndependentAxes(*spec, request.mode(), request.x().shape_size()).empty()) return absl::OkStatus();
  const absl::StatusOr<v1::DescribeResponse> describe = (*client)->Describe();
  if (!describe.ok()) return describe.status();
  const int64_t limit = describe->limits().max_tensor_bytes();
  if (limit <= 0 || bytes <= std::max(limit, describe->limits().max_message_bytes()) ||
      MayShare(**client, *describe, bytes, args.Has("residual"))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": x has ", bytes,
                   " bytes by the header of the file, which was not read further; the server "
                   "takes ",
                   limit, " of one tensor in chunks (--max_tensor_bytes and --max_in_flight_bytes) and ",
                   describe->limits().max_region_bytes(), " of all tensors in shared memory (--max_region_bytes).",
                   TooLargeRemedy(bytes, request, *spec)));
}

}  // namespace normd::client
