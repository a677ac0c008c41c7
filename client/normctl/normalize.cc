// normctl METHOD: reads one tensor and writes normalised tensors.
#include <algorithm>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/normctl/commands.h"
#include "client/normctl/large_input.h"
#include "client/normctl/normalize_output.h"
#include "client/normctl/normalize_request.h"
#include "client/normctl/session_message.h"
#include "client/normctl/split.h"
#include "client/normctl/target.h"

namespace normd::client {
namespace {

// Requests above this size show progress on a terminal.
constexpr int64_t kLargeBytes = 8 << 20;
// While progress is shown, the input is cut into pieces of this size, so that there is progress to show; and where
// tensors are shared, so that little memory is used again and again.
constexpr int64_t kPieceBytes = 16 << 20;
constexpr int64_t kBlockOverheadBytes = 64 << 10;  // of a block of shared memory
// Requests up to this size are sent without asking for the server's limit.
constexpr int64_t kUnaskedBytes = 1 << 20;
// Tensors of this size go through shared memory, and are worth the two calls that look for the Unix socket of a server
// at a loopback address. A process of one call makes the shared memory for that call alone. Median ms of a whole
// `normctl layer-norm`, sent and shared, over the Unix socket of a 2-core VM that others kept busy, November 2026, of
// 7: 1 MiB 71 and 73, 4 MiB 102 and 103, 16 MiB 340 and 354, 64 MiB 1236 and 897, 256 MiB 5472 and 3600.
constexpr int64_t kSharedBytes = 1 << 20;
constexpr int64_t kLookForSocketBytes = 16 << 20;

// The bytes of a .npy would make a mess of a terminal.
absl::Status CheckTerminal(const NormalizeInput& input, const Terminal& terminal) {
  const bool is_mess =
      terminal.out_is_tty && std::any_of(input.places.begin(), input.places.end(), [](const OutputPlace& place) {
        return place.path == "-" && place.format == FileFormat::kNpy;
      });
  if (!is_mess) return absl::OkStatus();
  return UsageError(".npy on a terminal: redirect standard output, or say --format csv");
}

// The largest request to send: the server's limit, or less where pieces are preferred.
absl::StatusOr<int64_t> PieceBytes(Client& client, const v1::NormalizeRequest& request, const v1::NormSpec& spec,
                                   bool prefers_pieces) {
  const auto bytes = static_cast<int64_t>(request.ByteSizeLong());
  if (bytes <= kUnaskedBytes) return kUnaskedBytes;
  const absl::StatusOr<v1::DescribeResponse> describe = client.Describe();
  if (!describe.ok()) return describe.status();
  const int64_t limit = describe->limits().max_message_bytes();
  const bool cut = prefers_pieces && ChooseCut(request, spec, kPieceBytes).has_value();
  return cut ? std::min(limit, kPieceBytes) : limit;
}

// Prints how far a large request is.
class Progress {
 public:
  Progress(const Terminal& terminal, int64_t bytes) : terminal_(terminal), bytes_(static_cast<double>(bytes)) {}

  void Print(int64_t done, int64_t all) const {
    const double share = all == 0 ? 1 : static_cast<double>(done) / static_cast<double>(all);
    std::string line = absl::StrFormat("%3.0f%%  %s of %s", 100 * share, BytesText(share * bytes_), BytesText(bytes_));
    const absl::Duration elapsed = absl::Now() - start_;
    if (done > 0 && elapsed > absl::ZeroDuration()) {
      absl::StrAppend(&line, "  ", BytesText(share * bytes_ / absl::ToDoubleSeconds(elapsed)), "/s");
      const bool ends = done == all;
      const absl::Duration left = ends ? elapsed : elapsed * ((1 - share) / share);
      absl::StrAppend(&line, ends ? "  in " : "  ETA ",
                      absl::FormatDuration(absl::Trunc(left, absl::Milliseconds(100))));
    }
    // On a terminal each line replaces the one before, whose end blanks cover.
    terminal_.err << (terminal_.err_is_tty ? absl::StrFormat("\r%-70s", line) : line);
    if (!terminal_.err_is_tty || done == all) terminal_.err << "\n";
    terminal_.err.flush();
  }

 private:
  const Terminal& terminal_;
  const double bytes_;
  const absl::Time start_ = absl::Now();
};

// Sends the request and shows progress if the request is large and a person watches.
absl::StatusOr<v1::NormalizeResponse> Send(Client& client, const v1::NormalizeRequest& request,
                                           const v1::NormSpec& spec, const ParsedArgs& args, const Terminal& terminal) {
  const auto bytes = static_cast<int64_t>(request.ByteSizeLong());
  const bool is_watched = terminal.err_is_tty && bytes > kLargeBytes && !args.Has("quiet");
  const bool show = args.Has("progress") || is_watched;
  const bool may_share = absl::StartsWith(client.target(), "unix:");
  const absl::StatusOr<int64_t> piece_bytes = PieceBytes(client, request, spec, show || may_share);
  if (!piece_bytes.ok()) return piece_bytes.status();
  const Progress progress(terminal, bytes);
  if (show) progress.Print(0, 1);
  int64_t last = 0;
  absl::StatusOr<v1::NormalizeResponse> response =
      NormalizeInPieces(client, request, spec, *piece_bytes, [&](int64_t done, int64_t all) {
        last = done;
        if (show) progress.Print(done, all);
      });
  if (show && response.ok() && last == 0) progress.Print(1, 1);
  return response;
}

// A client that shares tensors with the server if they are worth the making of shared memory.
absl::StatusOr<std::unique_ptr<Client>> ConnectFor(const ParsedArgs& args, const v1::NormalizeRequest& request) {
  const auto bytes = static_cast<int64_t>(request.x().data().size());
  if (bytes < kSharedBytes) return ConnectTo(args);
  // x, y, and perhaps the residual and h, each of a piece.
  const int64_t tensors = request.has_residual() ? 4 : 2;
  const int64_t region_bytes = tensors * (std::min(bytes, kPieceBytes) + kBlockOverheadBytes);
  return ConnectTo(
      args,
      {.shared_memory = true, .shared_region_bytes = region_bytes, .prefer_unix_socket = bytes >= kLookForSocketBytes});
}

absl::Status RunNormalize(const CommandSpec& spec, const ParsedArgs& args, const Terminal& terminal) {
  const std::string method = spec.name == "normalize" ? "" : *MethodField(spec.name);
  if (absl::Status status = CheckLargeInput(method, args); !status.ok()) return status;
  absl::StatusOr<NormalizeInput> input = BuildNormalizeInput(args);
  if (!input.ok()) return input.status();
  PrintWarnings(input->warnings, terminal);
  if (absl::Status status = CheckTerminal(*input, terminal); !status.ok()) return status;
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectFor(args, input->request);
  if (!client.ok()) return client.status();
  const absl::StatusOr<v1::NormSpec> resolved = SetTarget(**client, method, args, input->request);
  if (!resolved.ok()) return resolved.status();
  const absl::Time start = absl::Now();
  absl::StatusOr<v1::NormalizeResponse> response = Send(**client, input->request, *resolved, args, terminal);
  NormalizeReport call{.header = input->format.header,
                       .server = (*client)->target(),
                       .shared_memory = (*client)->shared_calls() > 0,
                       .round_trip = absl::Now() - start};
  if (!response.ok()) return response.status();
  absl::StatusOr<std::vector<SavedOutput>> saved = SaveOutputs(*input, *response, terminal);
  if (!saved.ok()) return saved.status();
  call.saved = *std::move(saved);
  if (args.Has("json")) {
    terminal.out << SummaryJson(*response, call);
  } else if (!args.Has("quiet")) {
    PrintSummary(*response, call, terminal.err);
  }
  return absl::OkStatus();
}

constexpr absl::string_view kNormalizeDetails =
    "INPUT is .npy (little-endian floats; Fortran order is transposed) or .csv (numbers; a first line with text in\n"
    "every field is a header, lines that start with # are comments, --delimiter and --decimal say what separates),\n"
    "recognised by its content; - is standard input. Results are .npy\n"
    "or .csv, by the name of the file; - is standard output, in the format of INPUT or --format. Without any file y\n"
    "is printed: a summary of it on a terminal, all of it elsewhere. The report of the call goes to standard error.\n"
    "NumPy has no bf16: --dtype bf16 rounds the input to bf16 and writes results widened to float32, exactly; an\n"
    "input of uint16, or of V2 as np.save makes of ml_dtypes' bfloat16, is taken as bf16 bits, and results are then "
    "written as uint16 bits, too. Inputs over the\n"
    "server's message limit are sent in pieces where the method never looks across rows, and in chunks on a stream\n"
    "where it does. A server of this machine gets large tensors through shared memory, if it has a Unix socket.";

}  // namespace

std::vector<Command> NormalizeCommands() {
  std::vector<Command> out;
  for (const std::string& name : MethodNames()) {
    const std::string field = *MethodField(name);
    Command command;
    command.spec = {name, "INPUT", 1, 1, absl::StrCat("normalise a file with ", field), std::string(kNormalizeDetails),
                    {}};
    command.spec.flags = Join(SpecFlags(field), NormalizeFlags(field));
    command.run = &RunNormalize;
    out.push_back(std::move(command));
  }
  out.push_back({{"normalize", "INPUT", 1, 1, "normalise a file with a session (--session), whatever its method",
                  std::string(kNormalizeDetails), NormalizeFlags("")},
                 &RunNormalize});
  return out;
}

}  // namespace normd::client
