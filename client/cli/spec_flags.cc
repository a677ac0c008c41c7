#include "client/cli/spec_flags.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/cli/table.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace normd::client {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr FlagSpec kSpecFlags[] = {
    {"eps", '\0', "E", "added to the divisor; 0 means none"},
    {"eps-mode", '\0', "MODE", "inside (sqrt(S + E)), add (sqrt(S) + E) or clamp (max(sqrt(S), E))"},
    {"cast-order", '\0', "ORDER", "affine-then-cast (default) or cast-then-affine (LLaMA, ONNX)"},
    {"layout", '\0', "LAYOUT",
     "channels-first (NCL, NCHW, NCDHW) or channels-last (NLC, NHWC, NDHWC); rank 2 needs none"},
    {"normalized-shape", '\0', "N,N", "trailing extents that are normalised together; default: the last one"},
    {"axes", '\0', "A,A", "axes that are normalised together; negative ones count from the end"},
    {"num-groups", '\0', "G", "groups of channels (also --groups)"},
    {"groups", '\0', "G", "the same as --num-groups"},
    {"affine-per-group", '\0', "", "weight and bias have one value a group instead of one a channel"},
    {"p", '\0', "P", "p-rms-norm: the share of the row in the statistic, in (0, 1]; lp-norm: the power, >= 1 or inf"},
    {"k", '\0', "K", "the number of elements that enter the statistic, instead of --p"},
    {"k-rounding", '\0', "R", "ceil (default) or floor of p * d"},
    {"order", '\0', "L", "the norm that x is divided by, an integer (default 2), instead of --p"},
    {"axis", '\0', "A", "the axis that is normalised; default: the last one"},
    {"weight-offset", '\0', "W", "0 or 1, added to the weight"},
    {"track-running-statistics", '\0', "", "keep running statistics, and use them in inference (sessions)"},
    {"momentum", '\0', "M", "of the running statistics, in [0, 1]"},
    {"momentum-of", '\0', "WHICH", "new (default: the weight of the new value) or old (Keras, Flax, ONNX)"},
    {"cumulative", '\0', "", "running statistics are the mean over all batches, instead of a momentum"},
    {"variance", '\0', "KIND", "the running variance: unbiased (default; of samples: biased) or biased"},
    {"single-value", '\0', "WHAT", "one value a channel in training: refuse (default) or zero-variance"},
    {"accept-non-finite", '\0', "", "let NaN and Inf into the running statistics"},
    {"weighting", '\0', "KIND", "running statistics of steps (default), or of all samples, each counted once"},
    {"prior-count", '\0', "N", "of samples: how many the statistics begin with (default 0)"},
    {"prior-mean", '\0', "M", "of samples: the mean of those (default 0)"},
    {"prior-variance", '\0', "V", "of samples: the variance of those (default 1)"},
    {"decay", '\0', "D", "of samples: what each one of a later batch multiplies a weight by, in (0, 1] (default 1)"},
    {"max-count", '\0', "N", "of samples: a channel that has as many moves no more"},
    {"normalize-with", '\0', "WHICH", "of samples: y of training uses batch or running (default) statistics"},
    {"nan-policy", '\0', "WHAT", "of samples: a NaN is propagated (propagate, default) or is no sample (skip)"},
    {"clip", '\0', "C", "limit y to [-C, C], after weight and bias"},
    {"alpha-fwd", '\0', "A", "the weight of the old running value (default 0.9)"},
    {"warmup-iters", '\0', "N", "training steps that use the batch's own statistics (default 10000)"},
};

std::string FieldName(absl::string_view flag) {
  return flag == "groups" ? "num_groups" : absl::StrReplaceAll(flag, {{"-", "_"}});
}

// The message and field that a flag sets: in the method's message, or in its `running`.
struct Place {
  Message* message = nullptr;
  const FieldDescriptor* field = nullptr;
};

const FieldDescriptor* RunningField(const Descriptor& method) { return method.FindFieldByName("running"); }

bool HasField(const Descriptor& method, absl::string_view flag) {
  const std::string name = FieldName(flag);
  if (method.FindFieldByName(name) != nullptr) return true;
  const FieldDescriptor* running = RunningField(method);
  return running != nullptr && running->message_type()->FindFieldByName(name) != nullptr;
}

Place FindPlace(Message& method, absl::string_view flag) {
  const std::string name = FieldName(flag);
  if (const FieldDescriptor* field = method.GetDescriptor()->FindFieldByName(name)) return {&method, field};
  const FieldDescriptor* running = RunningField(*method.GetDescriptor());
  if (running == nullptr) return {};
  const FieldDescriptor* field = running->message_type()->FindFieldByName(name);
  if (field == nullptr) return {};
  return {method.GetReflection()->MutableMessage(&method, running), field};
}

absl::Status SetNumber(const ParsedArgs& args, absl::string_view flag, const Place& place) {
  const auto* reflection = place.message->GetReflection();
  if (place.field->is_repeated()) {
    const absl::StatusOr<std::vector<int64_t>> values = args.Ints(flag);
    if (!values.ok()) return values.status();
    for (int64_t value : *values) reflection->AddInt64(place.message, place.field, value);
  } else if (place.field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    const absl::StatusOr<std::optional<int64_t>> value = args.Int(flag);
    if (!value.ok()) return value.status();
    reflection->SetInt64(place.message, place.field, **value);
  } else {
    const absl::StatusOr<std::optional<double>> value = args.Double(flag);
    if (!value.ok()) return value.status();
    reflection->SetDouble(place.message, place.field, **value);
  }
  return absl::OkStatus();
}

absl::Status SetField(const ParsedArgs& args, absl::string_view flag, const Place& place) {
  switch (place.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      place.message->GetReflection()->SetBool(place.message, place.field, true);
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_ENUM: {
      const absl::StatusOr<int> number = ParseEnum(*place.field->enum_type(), flag, *args.Get(flag));
      if (!number.ok()) return number.status();
      place.message->GetReflection()->SetEnumValue(place.message, place.field, *number);
      return absl::OkStatus();
    }
    default:
      return SetNumber(args, flag, place);
  }
}

// The usual names of layouts; their letters count the axes.
struct LayoutName {
  absl::string_view name;
  v1::Layout layout;
};
constexpr LayoutName kLayoutNames[] = {{"NCL", v1::LAYOUT_CHANNELS_FIRST},   {"NLC", v1::LAYOUT_CHANNELS_LAST},
                                       {"NCHW", v1::LAYOUT_CHANNELS_FIRST},  {"NHWC", v1::LAYOUT_CHANNELS_LAST},
                                       {"NCDHW", v1::LAYOUT_CHANNELS_FIRST}, {"NDHWC", v1::LAYOUT_CHANNELS_LAST}};

const LayoutName* FindLayoutName(absl::string_view text) {
  const auto* found = std::find_if(std::begin(kLayoutNames), std::end(kLayoutNames),
                                   [&](const LayoutName& name) { return absl::EqualsIgnoreCase(name.name, text); });
  return found == std::end(kLayoutNames) ? nullptr : found;
}

// A name such as NCHW says the rank, too, so that another rank is a mistake.
absl::Status CheckLayoutRank(const ParsedArgs& args, const std::optional<std::vector<int64_t>>& shape) {
  const LayoutName* layout = FindLayoutName(args.GetOr("layout", ""));
  if (layout == nullptr || !shape.has_value() || shape->size() == layout->name.size()) return absl::OkStatus();
  return UsageError(absl::StrCat("--layout ", *args.Get("layout"), " is of ", layout->name.size(), " axes, and x has ",
                                 shape->size(), " (shape ", ShapeText(*shape), ")"));
}

void AddDefaults(const std::vector<int64_t>& shape, v1::NormSpec& spec) {
  if (spec.has_layer_norm() && !shape.empty() && spec.layer_norm().axes().empty() &&
      spec.layer_norm().normalized_shape().empty()) {
    spec.mutable_layer_norm()->add_normalized_shape(shape.back());
  }
  const bool has_norm = spec.lp_norm().order() != 0 || spec.lp_norm().has_p();
  if (spec.has_lp_norm() && !has_norm) spec.mutable_lp_norm()->set_order(2);
  if (shape.size() != 2) return;
  const auto resolve = [](auto* method) {
    if (method->layout() == v1::LAYOUT_UNSPECIFIED) method->set_layout(v1::LAYOUT_CHANNELS_LAST);
  };
  if (spec.has_batch_norm()) resolve(spec.mutable_batch_norm());
  if (spec.has_instance_norm()) resolve(spec.mutable_instance_norm());
  if (spec.has_group_norm()) resolve(spec.mutable_group_norm());
}

// "EPS_MODE_" of EpsMode: the prefix that all value names share.
absl::string_view EnumPrefix(const EnumDescriptor& descriptor) {
  absl::string_view zero = descriptor.FindValueByNumber(0)->name();
  absl::ConsumeSuffix(&zero, "UNSPECIFIED");
  return zero;
}

}  // namespace

std::vector<std::string> MethodNames() {
  const Descriptor& spec = *v1::NormSpec::descriptor();
  std::vector<std::string> out;
  out.reserve(static_cast<size_t>(spec.field_count()));
  for (int i = 0; i < spec.field_count(); ++i) out.push_back(absl::StrReplaceAll(spec.field(i)->name(), {{"_", "-"}}));
  return out;
}

std::optional<std::string> MethodField(absl::string_view name) {
  std::string field = absl::StrReplaceAll(name, {{"-", "_"}});
  if (v1::NormSpec::descriptor()->FindFieldByName(field) == nullptr) return std::nullopt;
  return field;
}

absl::Status UnknownMethodError(absl::string_view written) {
  return UnknownNameError("method", written, MethodNames());
}

std::vector<FlagSpec> SpecFlags(absl::string_view method) {
  const FieldDescriptor* field = v1::NormSpec::descriptor()->FindFieldByName(std::string(method));
  std::vector<FlagSpec> out;
  for (const FlagSpec& flag : kSpecFlags) {
    if (field == nullptr || HasField(*field->message_type(), flag.name)) out.push_back(flag);
  }
  return out;
}

absl::StatusOr<v1::NormSpec> BuildSpec(absl::string_view method, const ParsedArgs& args,
                                       const std::optional<std::vector<int64_t>>& shape) {
  v1::NormSpec spec;
  const FieldDescriptor* field = v1::NormSpec::descriptor()->FindFieldByName(std::string(method));
  if (field == nullptr) return UnknownMethodError(method);
  Message& message = *spec.GetReflection()->MutableMessage(&spec, field);
  for (const FlagSpec& flag : kSpecFlags) {
    if (!args.Has(flag.name)) continue;
    if (!HasField(*message.GetDescriptor(), flag.name)) {
      return UsageError(absl::StrCat("--", flag.name, " does not apply to ", method));
    }
    if (absl::Status status = SetField(args, flag.name, FindPlace(message, flag.name)); !status.ok()) return status;
  }
  if (absl::Status status = CheckLayoutRank(args, shape); !status.ok()) return status;
  AddDefaults(shape.value_or(std::vector<int64_t>()), spec);
  return spec;
}

absl::StatusOr<int> ParseEnum(const EnumDescriptor& descriptor, absl::string_view flag, absl::string_view text) {
  const bool is_layout = &descriptor == v1::Layout_descriptor();
  if (const LayoutName* layout = FindLayoutName(text); is_layout && layout != nullptr) return layout->layout;
  const std::string wanted =
      absl::StrCat(EnumPrefix(descriptor), absl::AsciiStrToUpper(absl::StrReplaceAll(text, {{"-", "_"}})));
  std::vector<std::string> names;
  for (int i = 0; i < descriptor.value_count(); ++i) {
    const int number = descriptor.value(i)->number();
    if (number == 0) continue;
    if (!text.empty() && absl::StartsWith(descriptor.value(i)->name(), wanted)) return number;
    names.push_back(absl::StrReplaceAll(EnumText(descriptor, number), {{"_", "-"}}));
  }
  if (is_layout) {
    for (const LayoutName& layout : kLayoutNames) names.emplace_back(layout.name);
  }
  return BadValueError(flag, text, absl::StrJoin(names, " or "));
}

std::string EnumText(const EnumDescriptor& descriptor, int number) {
  const auto* value = descriptor.FindValueByNumber(number);
  if (value == nullptr) return absl::StrCat(number);
  return absl::AsciiStrToLower(absl::StripPrefix(value->name(), EnumPrefix(descriptor)));
}

std::string MethodOf(const v1::NormSpec& spec) {
  const int number = static_cast<int>(spec.method_case());
  return number == 0 ? "" : v1::NormSpec::descriptor()->FindFieldByNumber(number)->name();
}

}  // namespace normd::client
