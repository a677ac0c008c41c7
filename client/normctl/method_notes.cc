#include "client/normctl/method_notes.h"

#include <algorithm>
#include <utility>

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

// The attribute of this name; null if the method has none.
const AttributeInfo* FindAttribute(const MethodInfo& method, std::string_view name) {
  const auto found = std::find_if(method.attributes.begin(), method.attributes.end(),
                                  [name](const AttributeInfo& attribute) { return attribute.name == name; });
  return found == method.attributes.end() ? nullptr : &*found;
}

// Sets a number to its default. False if that is none, as of one that is required.
bool SetNumber(const AttributeInfo& attribute, const FieldDescriptor& field, Message& message) {
  double value = 0;
  if (!field.has_presence() || !absl::SimpleAtod(View(attribute.default_value), &value)) return false;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    message.GetReflection()->SetInt64(&message, &field, static_cast<int64_t>(value));
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    message.GetReflection()->SetDouble(&message, &field, value);
  } else {
    return false;
  }
  return true;
}

// Sets one absent field of the method's message, or of its running statistics. False if it has no default.
bool SetDefault(const MethodInfo& method, const FieldDescriptor& field, Message& message) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    if (field.name() == "layout") return false;  // never guessed
    // Shown where they say something: of sessions that count samples.
    if (field.name() == "weighting" || field.name() == "normalize_with" || field.name() == "nan_policy") return false;
    // Enums have their default at 1, the first value after UNSPECIFIED.
    const int number = field.name() == "eps_mode" ? static_cast<int>(method.default_eps_mode) : 1;
    message.GetReflection()->SetEnumValue(&message, &field, number);
    return true;
  }
  const AttributeInfo* const attribute = FindAttribute(method, field.name());
  return attribute != nullptr && SetNumber(*attribute, field, message);
}

bool IsAbsent(const FieldDescriptor& field, const Message& message) {
  const auto* reflection = message.GetReflection();
  if (field.is_repeated() || field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) return false;
  if (field.has_presence()) return !reflection->HasField(message, &field);
  return field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM && reflection->GetEnumValue(message, &field) == 0;
}

void FillFields(const MethodInfo& method, absl::string_view prefix, Message& message,
                std::vector<std::string>& filled) {
  const auto& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (!IsAbsent(field, message) || !SetDefault(method, field, message)) continue;
    filled.push_back(absl::StrCat(prefix, field.name()));
  }
}

// Weighting::SAMPLES.
void FillSamples(v1::RunningStatistics& running, std::vector<std::string>& filled) {
  if (running.variance() == v1::RUNNING_VARIANCE_UNSPECIFIED) {
    running.set_variance(v1::RUNNING_VARIANCE_BIASED);
    filled.emplace_back("running.variance");
  }
  if (running.normalize_with() == v1::NORMALIZE_WITH_UNSPECIFIED) {
    running.set_normalize_with(v1::NORMALIZE_WITH_RUNNING);
    filled.emplace_back("running.normalize_with");
  }
  if (running.nan_policy() == v1::NAN_POLICY_UNSPECIFIED) {
    running.set_nan_policy(v1::NAN_POLICY_PROPAGATE);
    filled.emplace_back("running.nan_policy");
  }
  const auto& descriptor = *v1::RunningStatistics::descriptor();
  const auto& reflection = *running.GetReflection();
  for (const auto& [name, value] : {std::pair("prior_count", 0.0), std::pair("prior_mean", 0.0),
                                    std::pair("prior_variance", 1.0), std::pair("decay", 1.0)}) {
    const FieldDescriptor* const field = descriptor.FindFieldByName(name);
    if (reflection.HasField(running, field)) continue;
    reflection.SetDouble(&running, field, value);
    filled.push_back(absl::StrCat("running.", name));
  }
}

void FillRunning(const MethodInfo& method, v1::RunningStatistics& running, std::vector<std::string>& filled) {
  if (running.weighting() == v1::WEIGHTING_SAMPLES) return FillSamples(running, filled);
  if (!running.cumulative() && !running.has_momentum()) {
    running.set_momentum(running.momentum_of() == v1::MOMENTUM_OF_OLD ? 0.9 : 0.1);
    filled.emplace_back("running.momentum");
  }
  FillFields(method, "running.", running, filled);
}

}  // namespace

const MethodInfo* FindMethodOf(absl::string_view name) { return FindMethod({name.data(), name.size()}); }

std::string_view DefaultOf(const MethodInfo& method, std::string_view attribute) {
  return FindAttribute(method, attribute)->default_value;
}

std::string ExampleOf(const MethodInfo& method) {
  return absl::StrCat("normctl ", absl::StrReplaceAll(View(method.name), {{"_", "-"}}), " x.npy -o y.npy ",
                      View(method.example));
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
  const MethodInfo* const method = FindMethod(MethodOf(spec));
  if (method == nullptr) return filled;
  const FieldDescriptor* field = v1::NormSpec::descriptor()->FindFieldByName(std::string(method->name));
  FillFields(*method, "", *spec.GetReflection()->MutableMessage(&spec, field), filled);
  if (spec.has_batch_norm()) FillRunning(*method, *spec.mutable_batch_norm()->mutable_running(), filled);
  if (spec.instance_norm().track_running_statistics()) {
    FillRunning(*method, *spec.mutable_instance_norm()->mutable_running(), filled);
  }
  return filled;
}

}  // namespace normd::client
