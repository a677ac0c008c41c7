#include "server/base/hidden_text.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace normd {
namespace {

// The size in bytes of the character with which `text` begins if it is one of those; else 0. All of them have 3 bytes
// at most.
size_t HiddenBytes(std::string_view text) {
  const auto c = static_cast<uint8_t>(text[0]);
  if (c < 0x20 || c == 0x7f) return 1;
  const std::string_view two = text.substr(0, 2);
  if (two.size() == 2 && c == 0xc2 && static_cast<uint8_t>(two[1]) < 0xa0) return 2;  // U+0080 to U+009F
  if (two == "\xd8\x9c") return 2;                                                    // U+061C
  const std::string_view three = text.substr(0, 3);
  const bool bidi = (three >= "\xe2\x80\x8e" && three <= "\xe2\x80\x8f") ||  // U+200E, U+200F
                    (three >= "\xe2\x80\xa8" && three <= "\xe2\x80\xae") ||  // U+2028 to U+202E
                    (three >= "\xe2\x81\xa6" && three <= "\xe2\x81\xa9");    // U+2066 to U+2069
  return bidi ? 3 : 0;
}

// REQUIRES: `character` is one that HiddenBytes has found.
uint32_t CodePoint(std::string_view character) {
  constexpr uint8_t kBitsOfFirst[] = {0x7f, 0x1f, 0x0f};
  uint32_t code = static_cast<uint8_t>(character[0]) & kBitsOfFirst[character.size() - 1];
  for (const char c : character.substr(1)) code = (code << 6) | (static_cast<uint8_t>(c) & 0x3f);
  return code;
}

// The size in bytes of the character with which `text` begins; 0 if it begins with none.
size_t CharacterBytes(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return 1;
  const size_t size = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (size == 0 || text.size() < size) return 0;
  uint32_t code = first & (0x7f >> size);
  for (const char c : text.substr(1, size - 1)) {
    if ((static_cast<uint8_t>(c) & 0xc0) != 0x80) return 0;
    code = (code << 6) | (static_cast<uint8_t>(c) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code >= kLeast[size - 2] && code <= 0x10ffff && !surrogate ? size : 0;
}

}  // namespace

bool HidesText(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (HiddenBytes(text.substr(i)) > 0) return true;
  }
  return false;
}

std::string EscapeHiddenText(std::string_view text) {
  std::string escaped;
  for (size_t i = 0; i < text.size();) {
    const size_t hidden = HiddenBytes(text.substr(i));
    if (hidden == 0) {
      escaped.push_back(text[i++]);
      continue;
    }
    char escape[8];
    std::snprintf(escape, sizeof(escape), "\\u%04x", CodePoint(text.substr(i, hidden)));
    escaped += escape;
    i += hidden;
  }
  return escaped;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = CharacterBytes(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

}  // namespace normd
