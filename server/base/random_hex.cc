#include "server/base/random_hex.h"

#include <random>

#include "absl/strings/str_format.h"

namespace normd {

std::string RandomHex(int words) {
  std::random_device random;
  std::string hex;
  for (int i = 0; i < words; ++i) hex += absl::StrFormat("%08x", random());
  return hex;
}

}  // namespace normd
