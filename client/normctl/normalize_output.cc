#include "client/normctl/normalize_output.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/cli/show_tensor.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/normctl/json_message.h"
#include "client/normctl/session_message.h"
#include "proto/catalogue/outputs.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;

int64_t ServerNanoseconds(const v1::Timings& t) {
  return t.decode_ns() + t.queue_ns() + t.compute_ns() + t.commit_ns() + t.encode_ns();
}

absl::Status Show(const Tensor& tensor, const std::vector<std::string>& header, const Terminal& terminal) {
  const std::string text =
      terminal.out_is_tty ? ShowTensor(tensor, header, terminal.width) : TensorAsLines(tensor, header);
  return WriteStandardOutput(text, "", terminal.out);
}

// A statistic of rank 3 and more in a .csv. The call has been made, and may have moved a session's state, so that its
// result is not refused.
std::string FlattenedNote(const OutputPlace& place, const std::vector<int64_t>& shape) {
  if (place.format != FileFormat::kCsv || shape.size() <= 2) return "";
  return absl::StrCat("  (as lines of ", shape.back(), "; .npy keeps the shape)");
}

absl::Status Save(const OutputPlace& place, Tensor tensor, const TensorFormat& format, const Terminal& terminal) {
  if (place.path != "-") return SaveTensor(place.path, std::move(tensor), format);
  const FileBytes file = EncodeTensor(std::move(tensor), format);
  return WriteStandardOutput(file.head, file.body, terminal.out);
}

}  // namespace

absl::StatusOr<std::vector<SavedOutput>> SaveOutputs(const NormalizeInput& input, v1::NormalizeResponse& response,
                                                     const Terminal& terminal) {
  std::vector<SavedOutput> saved;
  for (v1::Output& output : *response.mutable_outputs()) {
    const auto place = std::find_if(input.places.begin(), input.places.end(),
                                    [&](const OutputPlace& p) { return p.kind == output.kind(); });
    const bool is_shown = input.places.empty() && output.kind() == v1::OUTPUT_KIND_Y;
    if (place == input.places.end() && !is_shown) continue;
    absl::StatusOr<Tensor> tensor = Tensor::FromProto(std::move(*output.mutable_tensor()));
    if (!tensor.ok()) return tensor.status();
    SavedOutput& last = saved.emplace_back(SavedOutput{EnumText(*v1::OutputKind_descriptor(), output.kind()), "",
                                                       std::string(DTypeName(tensor->dtype)), tensor->shape, ""});
    TensorFormat format{.raw_bf16 = input.format.raw_bf16};
    if (IsLikeX(output.kind())) format.header = input.format.header;
    absl::Status status;
    if (is_shown) {
      status = Show(*tensor, format.header, terminal);
    } else {
      last.path = place->path;
      last.note = FlattenedNote(*place, tensor->shape);
      format.format = place->format;
      status = Save(*place, *std::move(tensor), format, terminal);
    }
    if (!status.ok()) return status;
  }
  return saved;
}

void PrintSummary(const v1::NormalizeResponse& response, const NormalizeReport& call, std::ostream& out) {
  if (!call.header.empty()) {
    out << absl::StrFormat("%-8s %s\n", "header", absl::StrJoin(call.header, ","));
  }
  for (const SavedOutput& file : call.saved) {
    out << absl::StrFormat("%-8s %s%s%s %s%s\n", file.name, file.path, file.path.empty() ? "" : "  ", file.dtype,
                           ShapeText(file.shape), file.note);
  }
  const v1::Applied& applied = response.applied();
  out << absl::StrFormat("%-8s %s  eps %s %s", "applied", applied.method(), ShortestText(applied.eps()),
                         EnumText(*v1::EpsMode_descriptor(), applied.eps_mode()));
  if (applied.k() > 0) out << "  k " << applied.k();
  out << absl::StrFormat("  %s, %s", EnumText(*v1::Mode_descriptor(), applied.mode()),
                         EnumText(*v1::Precision_descriptor(), applied.precision()));
  // A server before exact-4 does not say how it rounds.
  if (applied.rounding() != v1::ROUNDING_UNSPECIFIED) {
    out << ": " << EnumText(*v1::Rounding_descriptor(), applied.rounding());
  }
  out << absl::StrFormat(" (%s)\n", applied.numerics());
  if (response.has_state()) {
    out << absl::StrFormat("%-8s %s\n", "state", StateText(response.state()));
  }
  out << absl::StrFormat("%-8s %s  server %s (compute %s), round trip %s\n", "kernel", applied.kernel(),
                         NanosecondsText(static_cast<double>(ServerNanoseconds(response.timings()))),
                         NanosecondsText(static_cast<double>(response.timings().compute_ns())),
                         NanosecondsText(absl::ToDoubleNanoseconds(call.round_trip)));
  out << absl::StrFormat("%-8s %s, tensors %s\n", "server", call.server,
                         call.shared_memory ? "through shared memory" : "sent");
  if (applied.device_fallback()) out << "device   the one that was chosen was lost or full; this one ran instead\n";
}

std::string SummaryJson(const v1::NormalizeResponse& response, const NormalizeReport& call) {
  Json json = {{"applied", MessageJson(response.applied())},
               {"outputs", Json::array()},
               {"server", call.server},
               {"transport", call.shared_memory ? "shared_memory" : "sent"}};
  if (!call.header.empty()) json["header"] = call.header;
  for (const SavedOutput& file : call.saved) {
    json["outputs"].push_back({{"kind", file.name}, {"file", file.path}, {"dtype", file.dtype}, {"shape", file.shape}});
  }
  if (response.has_state()) json["state"] = StateJson(response.state());
  const v1::Timings& t = response.timings();
  json["server_ns"] = {{"decode", t.decode_ns()}, {"queue", t.queue_ns()},   {"compute", t.compute_ns()},
                       {"commit", t.commit_ns()}, {"encode", t.encode_ns()}, {"total", ServerNanoseconds(t)}};
  json["round_trip_ns"] = absl::ToInt64Nanoseconds(call.round_trip);
  return JsonText(json);
}

}  // namespace normd::client
