// Any bytes as a .safetensors file: refused, or read into tensors that are written and read again as the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "client/cli/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using normd::client::ParseSafetensors;
  const absl::string_view file(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<normd::client::Safetensors> parsed = ParseSafetensors(file);
  if (!parsed.ok()) return 0;
  const absl::StatusOr<std::string> written = normd::client::WriteSafetensors(*parsed);
  if (!written.ok()) std::abort();  // reported with the input
  const absl::StatusOr<normd::client::Safetensors> again = ParseSafetensors(*written);
  if (!again.ok() || again->metadata != parsed->metadata || again->tensors.size() != parsed->tensors.size())
    std::abort();
  for (const auto& [name, tensor] : parsed->tensors) {
    const auto found = again->tensors.find(name);
    if (found == again->tensors.end()) std::abort();
    if (found->second.dtype != tensor.dtype || found->second.shape != tensor.shape) std::abort();
    if (found->second.data != tensor.data) std::abort();
  }
  return 0;
}
