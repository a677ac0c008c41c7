// Text of a stranger: characters that, where it is shown, break its line or make it look like another text (control
// characters, and those that turn the direction of text), and bytes that are no UTF-8.
// In the path: step ids are refused for them, and logs and errors write them as escapes. Pure functions, safe from any
// thread.
#ifndef NORMD_SERVER_BASE_HIDDEN_TEXT_H_
#define NORMD_SERVER_BASE_HIDDEN_TEXT_H_

#include <string>
#include <string_view>

namespace normd {

// Whether `text` (UTF-8) has such a character.
bool HidesText(std::string_view text);

// `text` (UTF-8) with each such character as JSON escapes it: "\u202e".
std::string EscapeHiddenText(std::string_view text);

// Whether `text` is UTF-8 (RFC 3629: no surrogates, no form that is longer than it need be).
bool IsUtf8(std::string_view text);

}  // namespace normd

#endif  // NORMD_SERVER_BASE_HIDDEN_TEXT_H_
