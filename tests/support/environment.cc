#include "tests/support/environment.h"

#include <unistd.h>

namespace normd {

std::string_view Environment(std::string_view name) {
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (text.size() > name.size() && text.substr(0, name.size()) == name && text[name.size()] == '=') {
      return text.substr(name.size() + 1);
    }
  }
  return "";
}

}  // namespace normd
