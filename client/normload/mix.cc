#include "client/normload/mix.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/program.h"
#include "client/cli/spec_flags.h"
#include "client/cli/tensor_file.h"
#include "client/normload/arrivals.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;

constexpr double kMaxWeight = 1e6;
constexpr int kMaxBatchItems = 1 << 16;
// The largest call that one message can hold: protobuf's 2 GiB, less space for the fields around the tensors.
constexpr int64_t kMaxCallBytes = (int64_t{2} << 30) - (int64_t{16} << 20);
constexpr int64_t kMaxTotalBytes = int64_t{8} << 30;

constexpr FlagSpec kWeight = {"weight", '\0', "W", "share of the calls"};

CommandSpec EntryCommand() {
  CommandSpec command;
  command.flags = Join({kWeight}, CallFlags());
  return command;
}

const FlagSpec* FindKey(const CommandSpec& command, absl::string_view key) {
  const std::string name = absl::StrReplaceAll(key, {{"_", "-"}});
  const auto it =
      std::find_if(command.flags.begin(), command.flags.end(), [&](const FlagSpec& flag) { return flag.name == name; });
  return it == command.flags.end() ? nullptr : &*it;
}

absl::Status UnknownKey(const CommandSpec& command, absl::string_view key) {
  const auto name = [](std::string* out, const FlagSpec& flag) { absl::StrAppend(out, flag.name); };
  return UsageError(absl::StrCat(key.empty() ? "an empty key" : key, " is no key of a call; the keys are ",
                                 absl::StrJoin(command.flags, ", ", name)));
}

absl::Status AddTransport(const ParsedArgs& args, MixEntry& entry) {
  const std::string name = args.GetOr("transport", "unary");
  const std::optional<Transport> transport = name == "unary"    ? std::optional(Transport::kUnary)
                                             : name == "batch"  ? std::optional(Transport::kBatch)
                                             : name == "stream" ? std::optional(Transport::kStream)
                                             : name == "shared" ? std::optional(Transport::kShared)
                                                                : std::nullopt;
  if (!transport.has_value()) {
    return BadValueError("transport", name, "unary, batch, stream or shared");
  }
  entry.transport = *transport;
  const absl::StatusOr<std::optional<int64_t>> items = args.Int("batch-items");
  if (!items.ok()) return items.status();
  const int64_t count = items->value_or(entry.batch_items);
  if (count < 1 || count > kMaxBatchItems) {
    return BadValueError("batch-items", absl::StrCat(count), absl::StrCat("1 to ", kMaxBatchItems));
  }
  entry.batch_items = static_cast<int>(count);
  return absl::OkStatus();
}

absl::Status AddShape(const ParsedArgs& args, MixEntry& entry) {
  const absl::StatusOr<std::optional<DType>> dtype = DTypeFlag(args);
  if (!dtype.ok()) return dtype.status();
  entry.dtype = dtype->value_or(v1::DTYPE_F32);
  const absl::StatusOr<std::vector<int64_t>> shape = args.Ints("shape");
  if (!shape.ok()) return shape.status();
  if (!shape->empty()) entry.shape = *shape;
  const std::string text = absl::StrJoin(entry.shape, "x");
  int64_t bytes = ElementBytes(entry.dtype) * entry.items();
  for (int64_t extent : entry.shape) {
    if (extent < 0) return BadValueError("shape", text, "made of extents of at least 0");
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > kMaxCallBytes) {
      return UsageError(absl::StrCat("--shape is ", text, ", but ", entry.items(),
                                     entry.items() == 1 ? " tensor of " : " tensors of ", DTypeName(entry.dtype),
                                     " in one message must have at most ", kMaxCallBytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status AddSession(const ParsedArgs& args, MixEntry& entry) {
  const std::string name = args.GetOr("session", "");
  if (name.empty()) return BadValueError("session", name, "the name of a session");
  for (const FlagSpec& flag : Join({{"method", 'm', "METHOD", ""}}, SpecFlags(""))) {
    if (args.Has(flag.name)) {
      return UsageError(
          absl::StrCat("--", flag.name, " does not go with --session ", name, ", which has its own spec"));
    }
  }
  entry.session = absl::StartsWith(name, "sessions/") ? name : absl::StrCat("sessions/", name);
  entry.method.clear();
  return absl::OkStatus();
}

absl::Status AddSpec(const ParsedArgs& args, MixEntry& entry) {
  const std::string method = args.GetOr("method", "layer-norm");
  const absl::StatusOr<v1::NormSpec> spec = BuildSpec(MethodField(method).value_or(method), args, entry.shape);
  if (!spec.ok()) return spec.status();
  entry.spec = *spec;
  entry.method = absl::StrReplaceAll(MethodOf(*spec), {{"_", "-"}});
  // Without a session, training changes nothing on the server, and inference would need running statistics.
  if (spec->has_batch_norm() || spec->has_power_norm()) entry.training = true;
  return absl::OkStatus();
}

absl::Status AddWeight(const ParsedArgs& args, MixEntry& entry) {
  const absl::StatusOr<std::optional<double>> weight = args.Double("weight");
  if (!weight.ok()) return weight.status();
  entry.weight = weight->value_or(1);
  if (entry.weight > 0 && entry.weight <= kMaxWeight) return absl::OkStatus();  // also false for NaN
  return BadValueError("weight", args.GetOr("weight", ""), absl::StrCat("above 0 and at most ", kMaxWeight));
}

// Converts a JSON value to the flag's text.
absl::StatusOr<std::string> JsonValue(const FlagSpec& flag, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number()) return value.dump();
  const bool integers = value.is_array() && std::all_of(value.begin(), value.end(),
                                                        [](const Json& item) { return item.is_number_integer(); });
  if (!integers) {
    return UsageError(absl::StrCat(flag.name, " is ", value.dump(), "; it must be a string, a number or integers"));
  }
  return absl::StrJoin(value, flag.name == "shape" ? "x" : ",",
                       [](std::string* out, const Json& item) { absl::StrAppend(out, item.dump()); });
}

absl::StatusOr<MixEntry> ParseObject(const Json& object) {
  const CommandSpec command = EntryCommand();
  if (!object.is_object()) return UsageError(absl::StrCat(object.dump(), " is no object"));
  std::vector<std::string> arguments;
  for (const auto& [key, value] : object.items()) {
    const FlagSpec* flag = FindKey(command, key);
    if (flag == nullptr) return UnknownKey(command, key);
    if (flag->value.empty()) {
      if (!value.is_boolean()) return UsageError(absl::StrCat(key, " is ", value.dump(), "; it must be true or false"));
      if (value.get<bool>()) arguments.push_back(absl::StrCat("--", flag->name));
      continue;
    }
    const absl::StatusOr<std::string> text = JsonValue(*flag, value);
    if (!text.ok()) return text.status();
    arguments.push_back(absl::StrCat("--", flag->name, "=", *text));
  }
  const absl::StatusOr<ParsedArgs> args = ParseArgs(command, arguments);
  if (!args.ok()) return args.status();
  return MakeEntry(*args);
}

absl::Status In(absl::string_view where, const absl::Status& status) {
  return UsageError(absl::StrCat("--mix ", where, ": ", status.message()));
}

}  // namespace

absl::string_view TransportName(Transport transport) {
  switch (transport) {
    case Transport::kBatch:
      return "batch";
    case Transport::kStream:
      return "stream";
    case Transport::kShared:
      return "shared";
    default:
      return "unary";
  }
}

int64_t MixEntry::rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

int64_t MixEntry::bytes() const {
  int64_t bytes = ElementBytes(dtype) * items();
  for (int64_t extent : shape) bytes *= extent;
  return bytes;
}

std::string MixEntry::name() const {
  return absl::StrCat(session.empty() ? method : session, " ", absl::StrJoin(shape, "x"), " ", DTypeName(dtype), " ",
                      TransportName(transport), transport == Transport::kBatch ? absl::StrCat(" of ", batch_items) : "",
                      training ? " training" : "", steps ? " steps" : "");
}

std::vector<FlagSpec> CallFlags() {
  return Join(
      {{"method", 'm', "METHOD", "layer-norm (default), rms-norm, batch-norm, ..."},
       {"session", '\0', "NAME", "call this session instead of a method"},
       {"shape", '\0', "AxB", "of x (default 256x768)"},
       {"dtype", '\0', "T", "f32 (default), f16, bf16 or f64"},
       {"training", '\0', "", "training mode"},
       {"steps", '\0', "", "training steps on --session carry a StepId"},
       {"transport", 't', "T", "unary (default), batch, stream or shared (memory)", "", "unary|batch|stream|shared"},
       {"batch-items", '\0', "N", "tensors in one batch call (default 16)"}},
      SpecFlags(""));
}

absl::StatusOr<MixEntry> MakeEntry(const ParsedArgs& args) {
  MixEntry entry;
  entry.training = args.Has("training");
  entry.steps = args.Has("steps");
  if (absl::Status status = AddWeight(args, entry); !status.ok()) return status;
  if (absl::Status status = AddTransport(args, entry); !status.ok()) return status;
  if (absl::Status status = AddShape(args, entry); !status.ok()) return status;
  absl::Status status = args.Has("session") ? AddSession(args, entry) : AddSpec(args, entry);
  if (!status.ok()) return status;
  if (entry.steps && (entry.session.empty() || !entry.training)) {
    return UsageError("--steps needs --session and --training, because only training on a session has steps");
  }
  return entry;
}

absl::StatusOr<MixEntry> ParseMixEntry(absl::string_view text) {
  const CommandSpec command = EntryCommand();
  std::vector<std::string> arguments;
  for (absl::string_view piece : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair = absl::StrSplit(piece, absl::MaxSplits('=', 1));
    const bool has_value = absl::StrContains(piece, '=');
    const FlagSpec* flag = FindKey(command, pair.first);
    if (!has_value && flag == nullptr && !arguments.empty() && absl::StrContains(arguments.back(), '=')) {
      absl::StrAppend(&arguments.back(), ",", piece);  // as in "axes=0,1": the comma belongs to the value
      continue;
    }
    if (flag == nullptr) return UnknownKey(command, pair.first);
    arguments.push_back(absl::StrCat("--", flag->name, has_value ? "=" : "", pair.second));
  }
  const absl::StatusOr<ParsedArgs> args = ParseArgs(command, arguments);
  if (!args.ok()) return args.status();
  return MakeEntry(*args);
}

absl::StatusOr<std::vector<MixEntry>> ParseMixJson(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return UsageError("not valid JSON");
  const Json& list = json.is_object() && json.contains("entries") ? json["entries"] : json;
  if (!list.is_array() || list.empty()) return UsageError("holds no list of entries, and no object with \"entries\"");
  std::vector<MixEntry> out;
  for (const Json& object : list) {
    absl::StatusOr<MixEntry> entry = ParseObject(object);
    if (!entry.ok()) return UsageError(absl::StrCat("entry ", out.size() + 1, ": ", entry.status().message()));
    out.push_back(*std::move(entry));
  }
  return out;
}

absl::StatusOr<std::vector<MixEntry>> ParseMix(absl::Span<const std::string> values) {
  std::vector<MixEntry> out;
  for (const std::string& value : values) {
    if (absl::EndsWith(value, ".json")) {
      const absl::StatusOr<std::string> text = ReadFile(value);
      if (!text.ok()) return UsageError(absl::StrCat("--mix ", text.status().message()));
      absl::StatusOr<std::vector<MixEntry>> entries = ParseMixJson(*text);
      if (!entries.ok()) return In(value, entries.status());
      out.insert(out.end(), entries->begin(), entries->end());
    } else {
      absl::StatusOr<MixEntry> entry = ParseMixEntry(value);
      if (!entry.ok()) return In(value, entry.status());
      out.push_back(*std::move(entry));
    }
    if (out.size() > kMaxEntries) {
      return UsageError(absl::StrCat("--mix has ", out.size(), " entries; it must have at most ", kMaxEntries));
    }
  }
  return out;
}

absl::Status CheckShared(absl::Span<const MixEntry> entries, absl::string_view server) {
  if (std::none_of(entries.begin(), entries.end(), IsShared)) return absl::OkStatus();
  if (!absl::StartsWith(server, "unix:")) {
    return UsageError(absl::StrCat("--transport is shared, but the server is ", server, "; it must be unix:/path"));
  }
  const bool unary = std::any_of(entries.begin(), entries.end(),
                                 [](const MixEntry& entry) { return entry.transport == Transport::kUnary; });
  if (unary) return UsageError("--transport shared does not go beside unary calls in one run");
  return absl::OkStatus();
}

absl::Status CheckMemory(absl::Span<const MixEntry> entries, int concurrency) {
  int64_t bytes = 0;
  for (const MixEntry& entry : entries) {
    // If calls carry step ids, each worker has its own copy of the request.
    const int64_t copies = entry.steps ? int64_t{concurrency} + 1 : 1;
    int64_t more;
    if (__builtin_mul_overflow(entry.bytes(), copies, &more) || more > kMaxTotalBytes - bytes) {
      return UsageError(absl::StrCat("the requests take more than ", kMaxTotalBytes,
                                     " bytes of memory; choose a smaller --shape, --batch-items or --concurrency"));
    }
    bytes += more;
  }
  return absl::OkStatus();
}

MixPicker::MixPicker(absl::Span<const MixEntry> entries, uint64_t seed) : random_(seed) {
  double sum = 0;
  for (const MixEntry& entry : entries) bounds_.push_back(sum += entry.weight);
}

size_t MixPicker::Next() {
  if (bounds_.size() == 1) return 0;
  const double at = Uniform(random_) * bounds_.back();
  const auto it = std::upper_bound(bounds_.begin(), bounds_.end(), at);
  return std::min(static_cast<size_t>(it - bounds_.begin()), bounds_.size() - 1);
}

}  // namespace normd::client
