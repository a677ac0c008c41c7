// Any bytes as a file of options: refused in words, or read into the texts of options that exist.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/options/config_file.h"
#include "server/options/option_list.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto options = normd::ParseConfigFile({reinterpret_cast<const char*>(data), size}, "f");
  if (!options.ok()) {
    if (options.status().message().empty()) std::abort();  // reported with the input
    return 0;
  }
  for (const auto& [name, option] : *options) {
    if (normd::FindOption(name) == nullptr || option.line < 1) std::abort();
  }
  return 0;
}
