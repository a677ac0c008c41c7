// What listens at a target, found out in plain text: the first words of HTTP/2, and what answers them. No request is
// sent. Safe from any thread; takes a few seconds at most.
#ifndef NORMD_CLIENT_CLI_PLAIN_PROBE_H_
#define NORMD_CLIENT_CLI_PLAIN_PROBE_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace normd::client {

enum class PlainKind {
  kNobody,  // no connection
  kHttp2,
  kHttp1,
  kOther,   // other bytes
  kClosed,  // the connection was closed without a byte
  kSilent,  // two seconds without a byte
};

struct PlainAnswer {
  PlainKind kind = PlainKind::kNobody;
  std::optional<int> max_streams;  // that the server takes on one connection; absent: it says none
  std::string
      text;  // of kHttp2: why the server ended the connection (GOAWAY); of kOther: its first line, if it is text
};

PlainAnswer AskInPlainText(const std::string& target);

// What the bytes that a server has sent so far say; nullopt as long as more must come.
std::optional<PlainAnswer> ReadAnswer(absl::string_view bytes);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_PLAIN_PROBE_H_
