// Who measured what, where and when. Without this part, the numbers of a report mean nothing.
#ifndef NORMD_CLIENT_NORMLOAD_RUN_INFO_H_
#define NORMD_CLIENT_NORMLOAD_RUN_INFO_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "normd/v1/normalizer.pb.h"

namespace normd::client {

struct RunInfo {
  std::string date;     // UTC
  std::string machine;  // CPU model, number of CPUs, system
  double load_average = 0;
  std::string server;  // the target
  std::string server_version, numerics;
  std::string client_version;
  std::string command;  // as it can be typed into a shell; names token files, and no token
  // The commit that normload was built from, or "unknown".
  std::string commit;
  std::optional<int> server_pid;                              // absent: the server's CPU use counts as background
  std::optional<double> background_before, background_after;  // shares of the machine's CPU
};

// `arguments` with the program's name before them, quoted for a shell where they need it.
std::string CommandText(absl::string_view program, absl::Span<const std::string> arguments);

// Describes this machine and moment. Leaves the shares of CPU empty.
RunInfo MakeRunInfo(const std::string& target, const v1::DescribeResponse& server, std::optional<int> server_pid);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_RUN_INFO_H_
