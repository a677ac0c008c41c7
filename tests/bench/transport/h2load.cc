#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "tests/bench/datapath/driver.h"
#include "tests/bench/transport/messages.h"
#include "tests/bench/transport/sections.h"
#include "tests/bench/transport/versus.h"

namespace normd::bench {
namespace {

// Windows of 2^30 bytes, as large as gRPC's client makes its own when it receives large messages.
constexpr char kWindowBits[] = "30";

std::vector<Shape> H2LoadShapes(const std::string& service, const Flags& flags) {
  std::vector<Shape> shapes;
  for (const int64_t bytes :
       flags.Pick<std::vector<int64_t>>({64, kSmall, 64 << 10, kLarge, 16 << 20}, {kSmall, kLarge}, {kSmall})) {
    for (const int in_flight : flags.Pick<std::vector<int>>({1, 4, 16}, {1, 16}, {4})) {
      shapes.push_back({service, "h2load", bytes, in_flight, 1});
    }
    if (bytes == kSmall) shapes.push_back({service, "h2load", bytes, kManyConnections, kManyConnections});
  }
  std::erase_if(shapes, [&](const Shape& shape) { return !flags.Chosen(shape.Name()); });
  return shapes;
}

// A file with one message as it stands in DATA frames; removed with the object.
class MessageFile {
 public:
  static absl::StatusOr<std::unique_ptr<MessageFile>> Write(const grpc::ByteBuffer& message) {
    std::string path = std::filesystem::temp_directory_path() / "normd-bench-message-XXXXXX";
    const int fd = mkstemp(path.data());
    if (fd < 0) return absl::InternalError("cannot make " + path);
    close(fd);
    std::unique_ptr<MessageFile> file(new MessageFile(path));
    std::vector<grpc::Slice> slices;
    if (!message.Dump(&slices).ok()) return absl::InternalError("a request that cannot be read");
    std::ofstream stream(path, std::ios::binary);
    const auto size = static_cast<uint32_t>(message.Length());
    stream.put(0);
    for (const int shift : {24, 16, 8, 0}) stream.put(static_cast<char>(size >> shift));
    for (const grpc::Slice& slice : slices) {
      stream.write(reinterpret_cast<const char*>(slice.begin()), static_cast<std::streamsize>(slice.size()));
    }
    if (!stream.flush().good()) return absl::InternalError("cannot write " + path);
    return file;
  }
  ~MessageFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  MessageFile(const MessageFile&) = delete;
  MessageFile& operator=(const MessageFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit MessageFile(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

// What the shell prints of `command`; absent where it fails.
std::optional<std::string> OutputOf(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  char part[4096];
  for (size_t got = 0; (got = fread(part, 1, sizeof(part), pipe)) > 0;) text.append(part, got);
  return pclose(pipe) == 0 ? std::optional(text) : std::nullopt;
}

// Sends `calls` calls; returns calls/s.
absl::StatusOr<double> RunH2load(const std::string& address, const std::string& message, const Shape& shape,
                                 int64_t calls) {
  const std::string command = Concat("h2load -n ", calls, " -c ", shape.connections, " -m ",
                                     shape.in_flight / shape.connections, " -w ", kWindowBits, " -W ", kWindowBits,
                                     " -d ", message, " -H 'content-type: application/grpc' -H 'te: trailers' http://",
                                     address, "/normd.v1.Normalizer/Normalize 2>&1");
  const std::optional<std::string> text = OutputOf(command);
  if (!text.has_value()) return absl::InternalError("h2load has failed");
  double rate = 0;
  const size_t finished = text->find("finished in");
  const size_t comma = text->find(", ", finished);
  if (finished == std::string::npos || std::sscanf(text->c_str() + comma, ", %lf req/s", &rate) != 1) {
    return absl::InternalError("h2load says nothing of its rate: " + *text);
  }
  if (text->find(Concat(" ", calls, " succeeded")) == std::string::npos) {
    return absl::InternalError("h2load: not all calls have succeeded: " + *text);
  }
  return rate;
}

absl::StatusOr<Costs> MeasureShape(const Flags& flags, const Servers& servers, const Shape& shape) {
  const Target target = TargetOf(shape.service, /*stream=*/false, shape.bytes);
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<MessageFile> message, MessageFile::Write(target.requests.front()));
  double rates[2] = {};  // the latest
  for (const size_t server : {kGrpc, kNative}) {
    Target once = target;  // gRPC's client looks at the status, and at the size of the reply
    once.channels = NewChannels(servers.processes[server]->address(), 1);
    NORMD_RETURN_IF_ERROR(RunClosedLoop(once, 1, absl::ZeroDuration()).status());
  }
  return Measure(flags, servers, [&](size_t server, absl::Duration duration) -> absl::StatusOr<LoadResult> {
    const double wanted = rates[server] * absl::ToDoubleSeconds(duration);
    const int64_t calls = std::max<int64_t>(int64_t{4} * shape.in_flight, static_cast<int64_t>(wanted));
    NORMD_ASSIGN_OR_RETURN(rates[server],
                           RunH2load(servers.processes[server]->address(), message->path(), shape, calls));
    return LoadResult{.per_second = rates[server], .calls = static_cast<double>(calls)};
  });
}

}  // namespace

absl::Status MeasureH2load(const Flags& flags, Report* report) {
  for (const std::string service : {"echo", "normd"}) {
    const std::vector<Shape> shapes = H2LoadShapes(service, flags);
    if (shapes.empty()) continue;
    if (!OutputOf("h2load --version").has_value()) {
      report->NotMeasured(service + " h2load", "h2load is not installed (Debian's package nghttp2-client)");
      continue;
    }
    NORMD_ASSIGN_OR_RETURN(const Servers servers, StartServers(flags, service));
    report->Table(Concat(service, " with h2load over TCP, unary, n in flight, c connections; native's share of gRPC's"),
                  CostColumns(flags));
    for (const Shape& shape : shapes) {
      const absl::StatusOr<Costs> costs = MeasureShape(flags, servers, shape);
      NORMD_RETURN_IF_ERROR(WithContext(costs.status(), shape.Name()));
      AddRow(shape.Name(), *costs, LimitsOf(shape), flags, report);
    }
  }
  return absl::OkStatus();
}

}  // namespace normd::bench
