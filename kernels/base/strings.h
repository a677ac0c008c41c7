// Text for messages from strings and numbers. absl::StrCat of Debian 12 does not take std::string_view (its library is
// built as C++14, where absl::string_view is a type of its own), hence this.
// Used wherever an error names what was sent. Pure; safe from any thread.
#ifndef NORMD_KERNELS_BASE_STRINGS_H_
#define NORMD_KERNELS_BASE_STRINGS_H_

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace normd {

// The shortest text that reads back as `value`.
template <typename T>
requires std::integral<T> || std::floating_point<T> std::string NumberText(T value) {
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
}

// The arguments one after the other: anything that a std::string_view can be made from, and numbers.
template <typename... Args>
std::string Concat(const Args&... args) {
  std::string text;
  const auto append = [&text](const auto& arg) {
    if constexpr (std::is_convertible_v<decltype(arg), std::string_view>) {
      text += std::string_view(arg);
    } else {
      text += NumberText(arg);
    }
  };
  (append(args), ...);
  return text;
}

}  // namespace normd

#endif  // NORMD_KERNELS_BASE_STRINGS_H_
