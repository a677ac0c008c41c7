#include "client/normctl/help.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cli/spec_flags.h"
#include "client/normctl/method_notes.h"

namespace normd::client {
namespace {

constexpr absl::string_view kMethod = "Method", kTensors = "Tensors", kSession = "Session", kOutput = "Output",
                            kConnection = "Connection", kOther = "Other";
constexpr absl::string_view kFlagGroups[] = {"", kMethod, kTensors, kSession, kOutput, kConnection, kOther};

struct FlagNote {
  absl::string_view name, group, choices;
};

// Flags of a spec are of the group "Method" and not listed here, unless they have choices.
constexpr FlagNote kFlagNotes[] = {
    {"eps-mode", kMethod, "inside-sqrt|add-to-root|clamp-root"},
    {"cast-order", kMethod, "affine-then-cast|cast-then-affine"},
    {"layout", kMethod, "channels-first|channels-last|NCL|NLC|NCHW|NHWC|NCDHW|NDHWC"},
    {"k-rounding", kMethod, "ceil|floor"},
    {"weight-offset", kMethod, "0|1"},
    {"momentum-of", kMethod, "new|old"},
    {"variance", kMethod, "unbiased|biased"},
    {"single-value", kMethod, "refuse|zero-variance"},
    {"precision", kMethod, "exact|fast"},
    {"device", kMethod, "auto|cpu|cuda"},
    {"training", kMethod, ""},
    {"with", kTensors, ""},
    {"weight", kTensors, ""},
    {"bias", kTensors, ""},
    {"running-mean", kTensors, ""},
    {"running-var", kTensors, ""},
    {"residual", kTensors, ""},
    {"residual-scale", kTensors, ""},
    {"residual-rounding", kTensors, "round-first|keep-wide"},
    {"mask", kTensors, ""},
    {"dtype", kTensors, "f16|bf16|f32|f64"},
    {"header", kTensors, ""},
    {"no-header", kTensors, ""},
    {"delimiter", kTensors, ""},
    {"decimal", kTensors, ""},
    {"session", kSession, ""},
    {"name", kSession, ""},
    {"expected-version", kSession, ""},
    {"max-staleness", kSession, ""},
    {"step-client", kSession, ""},
    {"step-sequence", kSession, ""},
    {"output", kOutput, ""},
    {"output-h", kOutput, ""},
    {"mean", kOutput, ""},
    {"inv-std", kOutput, ""},
    {"validate-only", kOutput, ""},
    {"progress", kOutput, ""},
    {"json", kOutput, ""},
    {"format", kOutput, ""},
    {"quiet", kOutput, ""},
    {"verbose", kOutput, ""},
    {"color", kOutput, "auto|always|never"},
    {"server", kConnection, ""},
    {"deadline", kConnection, ""},
    {"tls", kConnection, ""},
    {"ca", kConnection, ""},
    {"certificate", kConnection, ""},
    {"key", kConnection, ""},
    {"server-name", kConnection, ""},
    {"token-file", kConnection, ""},
    {"version", kOther, ""},
    {"only", "", "examples|iris|methods|residual"},
};

// The attributes that change moments: which elements share their statistics, and PowerNorm's scaling before them.
constexpr absl::string_view kMomentsFlags[] = {"eps", "layout", "normalized-shape", "axes",  "num-groups", "groups",
                                               "p",   "k",      "k-rounding",       "order", "axis"};
// Flags of sessions that learn from training steps.
constexpr absl::string_view kStateFlags[] = {"training", "step-client", "step-sequence"};

template <size_t kSize>
bool Contains(const absl::string_view (&names)[kSize], absl::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool HasFlag(const std::vector<FlagSpec>& flags, absl::string_view name) {
  return std::any_of(flags.begin(), flags.end(), [&](const FlagSpec& flag) { return flag.name == name; });
}

bool CanApply(const CommandSpec& command, const MethodInfo* method, const FlagSpec& flag) {
  const bool of_spec = HasFlag(SpecFlags(""), flag.name);
  if (of_spec && command.name == "moments" && !Contains(kMomentsFlags, flag.name)) return false;
  if (method == nullptr) return true;
  if (of_spec && !HasFlag(SpecFlags(View(method->name)), flag.name)) return false;
  if (flag.name == "mask") return method->takes_mask;
  if (flag.name == "weight" || flag.name == "bias") return method->name != "lp_norm";
  if (absl::StartsWith(flag.name, "running-")) return method->name == "batch_norm";
  return method->has_state || !Contains(kStateFlags, flag.name);
}

FlagSpec Annotated(FlagSpec flag) {
  const auto* note = std::find_if(std::begin(kFlagNotes), std::end(kFlagNotes),
                                  [&](const FlagNote& n) { return n.name == flag.name; });
  if (note != std::end(kFlagNotes)) {
    flag.group = note->group;
    if (flag.choices.empty()) flag.choices = note->choices;
  } else if (HasFlag(SpecFlags(""), flag.name)) {
    flag.group = kMethod;
  }
  return flag;
}

size_t GroupOrder(const FlagSpec& flag) {
  return static_cast<size_t>(std::find(std::begin(kFlagGroups), std::end(kFlagGroups), flag.group) -
                             std::begin(kFlagGroups));
}

void AddDefaults(const MethodInfo* method, CommandSpec& command) {
  if (method != nullptr) {
    command.defaults["eps"] = std::string(DefaultOf(*method, "eps"));
    command.defaults["eps-mode"] = absl::StrReplaceAll(
        EnumText(*v1::EpsMode_descriptor(), static_cast<int>(method->default_eps_mode)), {{"_", "-"}});
  } else {
    command.defaults["eps"] = command.defaults["eps-mode"] = "the method's";
  }
  command.defaults["momentum"] = "0.1; 0.9 with --momentum-of old";
}

}  // namespace

std::string MethodOfCommand(const CommandSpec& command, absl::Span<const std::string> words) {
  if (const std::optional<std::string> field = MethodField(command.name)) return *field;
  if (!absl::StartsWith(command.operands, "METHOD") && !absl::StartsWith(command.operands, "[METHOD]")) return "";
  for (const std::string& word : words) {
    if (const std::optional<std::string> field = MethodField(word)) return *field;
  }
  return "";
}

CommandSpec ShownCommand(CommandSpec command, absl::string_view name) {
  const MethodInfo* const method = FindMethodOf(name);
  std::vector<FlagSpec> flags;
  for (const FlagSpec& flag : command.flags) {
    if (CanApply(command, method, flag)) flags.push_back(Annotated(flag));
  }
  std::stable_sort(flags.begin(), flags.end(),
                   [](const FlagSpec& a, const FlagSpec& b) { return GroupOrder(a) < GroupOrder(b); });
  command.flags = std::move(flags);
  AddDefaults(method, command);
  if (method != nullptr && MethodField(command.name) == method->name) {
    command.details = absl::StrCat(FormulaText(View(method->formula), 80), "\n\nExample:\n\n  ", ExampleOf(*method),
                                   "\n\n", command.details);
  }
  return command;
}

}  // namespace normd::client
