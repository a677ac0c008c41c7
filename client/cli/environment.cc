#include "client/cli/environment.h"

#include <unistd.h>

#include "absl/strings/strip.h"

namespace normd::client {

// getenv is not safe beside threads that change the environment, which makes clang-tidy refuse it.
std::optional<std::string> Environment(absl::string_view name) {
  for (char** variable = environ; *variable != nullptr; ++variable) {
    absl::string_view text = *variable;
    if (absl::ConsumePrefix(&text, name) && absl::ConsumePrefix(&text, "=")) return std::string(text);
  }
  return std::nullopt;
}

}  // namespace normd::client
