// Text for messages, made from strings and numbers. It takes the place of absl::StrCat, which in Debian 12 does not
// take std::string_view: that library is built as C++14, where absl::string_view is a type of its own.
// In the path: wherever an error names the value that was sent. Pure functions, safe from any thread.
#ifndef NORMD_KERNELS_BASE_STRINGS_H_
#define NORMD_KERNELS_BASE_STRINGS_H_

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace normd {

// The shortest text that reads back as `value`, for messages and for attribute values.
template <typename T>
requires std::integral<T> || std::floating_point<T> std::string NumberText(T value) {
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
}

// The concatenation of the arguments, each of which converts to std::string_view or is a number.
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
