#include "client/normctl/method_notes.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace normd::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr MethodNote kNotes[] = {
    {"batch_norm",
     "y = (x - mean[c]) / sqrt(var[c] + eps) * w[c] + b[c]; training: mean and biased variance of the batch, "
     "inference: the running ones",
     "1e-5", v1::EPS_MODE_INSIDE_SQRT, true, true, "--layout channels-first --training"},
    {"layer_norm", "y = (x - mean) / sqrt(var + eps) * w + b; mean and biased variance over the normalised axes",
     "1e-5", v1::EPS_MODE_INSIDE_SQRT, false, false, "--weight w.npy --bias b.npy --eps 1e-6"},
    {"instance_norm",
     "y = (x - mean[n,c]) / sqrt(var[n,c] + eps) * w[c] + b[c]; mean and biased variance over the spatial axes", "1e-5",
     v1::EPS_MODE_INSIDE_SQRT, true, false, "--layout channels-first"},
    {"group_norm",
     "y = (x - mean[n,g]) / sqrt(var[n,g] + eps) * w[c] + b[c]; mean and biased variance over the C / G channels of "
     "group g and the spatial axes",
     "1e-5", v1::EPS_MODE_INSIDE_SQRT, false, false, "--layout channels-first --num-groups 32"},
    {"rms_norm", "y = x / sqrt(mean(x^2) + eps) * w + b", "1e-6", v1::EPS_MODE_INSIDE_SQRT, false, false,
     "--weight w.npy"},
    {"p_rms_norm", "y = x / sqrt(mean(x[0]^2 ... x[k-1]^2) + eps) * w + b; k = ceil(p * d) of the d elements of a row",
     "1e-6", v1::EPS_MODE_INSIDE_SQRT, false, false, "--p 0.0625 --weight w.npy"},
    {"scale_norm", "y = x / (sqrt(sum(x^2)) + eps) * w + b; w and b are one number each", "1e-5",
     v1::EPS_MODE_ADD_TO_ROOT, false, false, "--weight g.npy"},
    {"lp_norm", "y = x / (sum(|x|^p)^(1/p) + eps); 0 where the norm is 0", "0", v1::EPS_MODE_ADD_TO_ROOT, false, false,
     "--order 2"},
    {"power_norm",
     "s = x / sqrt(mean over a group's channels of x^2 + eps); y = s / sqrt(v[c] + eps) * w[c] + b[c]; v[c] = mean of "
     "s^2 over all positions, in inference and after the warm-up the running phi[c]",
     "1e-5", v1::EPS_MODE_INSIDE_SQRT, true, true, "--training"},
};

// Attributes whose default does not depend on the method. Enums have theirs at 1, the first value after UNSPECIFIED.
struct NumberDefault {
  absl::string_view field;
  double value;
};
constexpr NumberDefault kNumberDefaults[] = {
    {"weight_offset", 0}, {"alpha_fwd", 0.9}, {"warmup_iters", 10000}, {"num_groups", 1}};

bool SetNumberDefault(const FieldDescriptor& field, Message& message) {
  const auto* it = std::find_if(std::begin(kNumberDefaults), std::end(kNumberDefaults),
                                [&](const NumberDefault& d) { return d.field == field.name(); });
  if (it == std::end(kNumberDefaults) || !field.has_presence()) return false;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    message.GetReflection()->SetInt64(&message, &field, static_cast<int64_t>(it->value));
  } else {
    message.GetReflection()->SetDouble(&message, &field, it->value);
  }
  return true;
}

// Sets one absent field of the method's message. False if it has no default.
bool SetDefault(const MethodNote& note, const FieldDescriptor& field, Message& message) {
  const auto* reflection = message.GetReflection();
  if (field.name() == "eps") {
    double eps = 0;
    if (!absl::SimpleAtod(note.eps, &eps)) return false;
    reflection->SetDouble(&message, &field, eps);
    return true;
  }
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_ENUM) return SetNumberDefault(field, message);
  if (field.name() == "layout") return false;  // never guessed
  reflection->SetEnumValue(&message, &field, field.name() == "eps_mode" ? note.eps_mode : 1);
  return true;
}

bool IsAbsent(const FieldDescriptor& field, const Message& message) {
  const auto* reflection = message.GetReflection();
  if (field.is_repeated() || field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) return false;
  if (field.has_presence()) return !reflection->HasField(message, &field);
  return field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM && reflection->GetEnumValue(message, &field) == 0;
}

void FillFields(const MethodNote& note, absl::string_view prefix, Message& message, std::vector<std::string>& filled) {
  const auto& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (!IsAbsent(field, message) || !SetDefault(note, field, message)) continue;
    filled.push_back(absl::StrCat(prefix, field.name()));
  }
}

void FillRunning(const MethodNote& note, v1::RunningStatistics& running, std::vector<std::string>& filled) {
  if (!running.cumulative() && !running.has_momentum()) {
    running.set_momentum(running.momentum_of() == v1::MOMENTUM_OF_OLD ? 0.9 : 0.1);
    filled.emplace_back("running.momentum");
  }
  FillFields(note, "running.", running, filled);
}

}  // namespace

absl::Span<const MethodNote> AllMethodNotes() { return kNotes; }

const MethodNote* FindMethodNote(absl::string_view method) {
  const auto* it =
      std::find_if(std::begin(kNotes), std::end(kNotes), [&](const MethodNote& note) { return note.method == method; });
  return it == std::end(kNotes) ? nullptr : it;
}

std::string ExampleOf(const MethodNote& note) {
  return absl::StrCat("normctl ", absl::StrReplaceAll(note.method, {{"_", "-"}}), " x.npy -o y.npy ", note.example);
}

std::string FormulaText(absl::string_view formula, size_t width) {
  constexpr absl::string_view kIndent = "  ";
  std::vector<std::string> lines;
  for (absl::string_view part : absl::StrSplit(formula, "; ")) {
    for (const std::string& line : WrapText(part, width - 2 * kIndent.size())) {
      lines.push_back(absl::StrCat(kIndent, absl::StartsWith(part, line) ? "" : kIndent, line));
    }
  }
  return absl::StrJoin(lines, "\n");
}

std::vector<std::string> FillDefaults(v1::NormSpec& spec) {
  std::vector<std::string> filled;
  const MethodNote* note = FindMethodNote(MethodOf(spec));
  if (note == nullptr) return filled;
  const FieldDescriptor* method = v1::NormSpec::descriptor()->FindFieldByName(std::string(note->method));
  FillFields(*note, "", *spec.GetReflection()->MutableMessage(&spec, method), filled);
  if (spec.has_batch_norm()) FillRunning(*note, *spec.mutable_batch_norm()->mutable_running(), filled);
  if (spec.instance_norm().track_running_statistics()) {
    FillRunning(*note, *spec.mutable_instance_norm()->mutable_running(), filled);
  }
  return filled;
}

}  // namespace normd::client
