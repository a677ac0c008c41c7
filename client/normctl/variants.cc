#include "client/normctl/variants.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/normctl/spec_fields.h"

namespace normd::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// What the common frameworks set by default, and none.
constexpr double kUsualEps[] = {1e-5, 1e-6, 0x1p-23, 1e-3, 1e-4, 1e-7, 1e-8, 1e-12, 0};

v1::NormSpec WithDouble(v1::NormSpec spec, const char* name, double value) {
  SetDouble(spec, name, value);
  return spec;
}
v1::NormSpec WithEnum(v1::NormSpec spec, const char* name, int value) {
  SetEnum(spec, name, value);
  return spec;
}

Variant With(Variant variant, v1::NormSpec spec) {
  variant.spec = std::move(spec);
  return variant;
}

bool IsCentred(const v1::NormSpec& spec) {
  return spec.has_batch_norm() || spec.has_layer_norm() || spec.has_instance_norm() || spec.has_group_norm();
}

// LayerNorm as RMSNorm, and RMSNorm as LayerNorm over `axes`: with a mean or without.
v1::NormSpec WithOtherMean(const v1::NormSpec& spec, int64_t rank) {
  v1::NormSpec out;
  const auto copy = [](const auto& from, auto* to) {
    if (from.has_eps()) to->set_eps(from.eps());
    if (from.has_weight_offset()) to->set_weight_offset(from.weight_offset());
    to->set_eps_mode(from.eps_mode());
    to->set_cast_order(from.cast_order());
    *to->mutable_axes() = from.axes();
    *to->mutable_normalized_shape() = from.normalized_shape();
  };
  if (spec.has_layer_norm()) {
    copy(spec.layer_norm(), out.mutable_rms_norm());
    return out;
  }
  copy(spec.rms_norm(), out.mutable_layer_norm());
  v1::LayerNorm& layer = *out.mutable_layer_norm();
  if (rank > 0 && layer.axes_size() == 0 && layer.normalized_shape_size() == 0) layer.add_axes(rank - 1);
  return out;
}

// GroupNorm with other numbers of groups that divide the channels: the usual ones, and one for each channel.
void AddGroups(const Variant& variant, const VariantInput& input, std::vector<Variant>* out) {
  const v1::GroupNorm& group = variant.spec.group_norm();
  if (input.shape.size() < 2 || group.affine_per_group()) return;
  const bool first = group.layout() != v1::LAYOUT_CHANNELS_LAST;
  const int64_t channels = first ? input.shape[1] : input.shape.back();
  for (const int64_t groups : {int64_t{1}, int64_t{2}, int64_t{4}, int64_t{8}, int64_t{16}, int64_t{32}, channels}) {
    if (groups == group.num_groups() || groups < 1 || channels % groups != 0) continue;
    Variant other = variant;
    other.spec.mutable_group_norm()->set_num_groups(groups);
    out->push_back(std::move(other));
  }
}

template <typename Method>
int64_t FirstTrailingAxisOf(const Method& method, int64_t rank) {
  if (method.axes_size() == 0) return rank - std::max(1, method.normalized_shape_size());
  std::set<int64_t> axes;
  for (const int64_t axis : method.axes()) axes.insert(axis < 0 ? axis + rank : axis);
  const int64_t first = rank - static_cast<int64_t>(axes.size());
  return *axes.begin() == first ? first : rank;
}

// Other axes: the trailing ones, from the last one to all of them, and each by itself.
template <typename Method>
void AddAxes(const Variant& variant, int64_t rank, Method* (v1::NormSpec::*mutable_method)(),
             std::vector<Variant>* out) {
  for (int64_t first = rank - 1; first >= 0; --first) {
    Variant other = variant;
    Method& method = *(other.spec.*mutable_method)();
    if (FirstTrailingAxisOf(method, rank) == first) continue;
    method.clear_normalized_shape();
    method.clear_axes();
    for (int64_t axis = first; axis < rank; ++axis) method.add_axes(axis);
    out->push_back(other);
    if (first == rank - 1) continue;
    method.clear_axes();
    method.add_axes(first);
    out->push_back(std::move(other));
  }
}

// Whether a variance is taken, which may be over n - 1.
bool MayBeUnbiased(const v1::NormSpec& spec, const VariantInput& input) {
  return IsCentred(spec) && !input.given_statistics;
}

// eps, where it is added, and whether the variance is biased, together: each can hide that another is wrong.
void AddEps(const Variant& variant, const VariantInput& input, std::vector<Variant>* out) {
  if (!HasField(variant.spec, "eps")) return;
  std::vector<double> values(std::begin(kUsualEps), std::end(kUsualEps));
  values.insert(values.begin(), DoubleOf(variant.spec, "eps"));
  std::vector<bool> unbiased = {variant.unbiased};
  if (MayBeUnbiased(variant.spec, input)) unbiased.push_back(!variant.unbiased);
  Variant other = variant;
  for (const v1::EpsMode mode : {v1::EPS_MODE_INSIDE_SQRT, v1::EPS_MODE_ADD_TO_ROOT, v1::EPS_MODE_CLAMP_ROOT}) {
    const v1::NormSpec with_mode = WithEnum(variant.spec, "eps_mode", mode);
    for (const double eps : values) {
      // Without eps the modes are one.
      if (eps == 0 && mode != EnumOf(variant.spec, "eps_mode")) continue;
      other.spec = WithDouble(with_mode, "eps", eps);
      for (const bool value : unbiased) {
        other.unbiased = value;
        out->push_back(other);
      }
    }
  }
}

void AddAffine(const Variant& variant, const VariantInput& input, std::vector<Variant>* out) {
  if (input.has_weight && HasField(variant.spec, "weight_offset")) {
    for (const auto& [offset, rounds] : {std::pair(0.0, false), {1.0, false}, {1.0, true}}) {
      if (offset == DoubleOf(variant.spec, "weight_offset") && rounds == variant.rounds_weight) continue;
      out->push_back(With(variant, WithDouble(variant.spec, "weight_offset", offset)));
      out->back().rounds_weight = rounds;
    }
  }
  if (!(input.has_weight || input.has_bias) || !HasField(variant.spec, "cast_order")) return;
  const bool casts_first = CastsFirst(variant.spec);
  const v1::CastOrder other = casts_first ? v1::CAST_ORDER_AFFINE_THEN_CAST : v1::CAST_ORDER_CAST_THEN_AFFINE;
  out->push_back(With(variant, WithEnum(variant.spec, "cast_order", other)));
}

void AddStatistics(const Variant& variant, const VariantInput& input, std::vector<Variant>* out) {
  const auto rank = static_cast<int64_t>(input.shape.size());
  if (!variant.unbiased && (variant.spec.has_layer_norm() || variant.spec.has_rms_norm())) {
    out->push_back(With(variant, WithOtherMean(variant.spec, rank)));
  }
  if (HasField(variant.spec, "layout") && rank > 2) {
    const bool first = EnumOf(variant.spec, "layout") == v1::LAYOUT_CHANNELS_FIRST;
    const v1::Layout other = first ? v1::LAYOUT_CHANNELS_LAST : v1::LAYOUT_CHANNELS_FIRST;
    out->push_back(With(variant, WithEnum(variant.spec, "layout", other)));
  }
  if (variant.spec.has_group_norm()) AddGroups(variant, input, out);
  if (variant.spec.has_layer_norm()) AddAxes(variant, rank, &v1::NormSpec::mutable_layer_norm, out);
  if (variant.spec.has_rms_norm()) AddAxes(variant, rank, &v1::NormSpec::mutable_rms_norm, out);
}

// The text of a field of the method: "eps 1e-06", "inside_sqrt".
std::string FieldText(const Message& method, const FieldDescriptor& field) {
  const auto* const reflection = method.GetReflection();
  if (field.is_repeated()) {
    std::vector<int64_t> values;
    values.reserve(static_cast<size_t>(reflection->FieldSize(method, &field)));
    for (int i = 0; i < reflection->FieldSize(method, &field); ++i) {
      values.push_back(reflection->GetRepeatedInt64(method, &field, i));
    }
    return absl::StrCat(field.name(), " ", absl::StrJoin(values, ","));
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumText(*field.enum_type(), reflection->GetEnumValue(method, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(field.name(), " ", reflection->GetInt64(method, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return absl::StrCat(field.name(), " ", ShortestText(reflection->GetDouble(method, &field)));
    default:
      return std::string(field.name());
  }
}

bool IsPresent(const Message& method, const FieldDescriptor& field) {
  const auto* const reflection = method.GetReflection();
  return field.is_repeated() ? reflection->FieldSize(method, &field) > 0 : reflection->HasField(method, &field);
}

}  // namespace

std::vector<Variant> Neighbours(const Variant& variant, const VariantInput& input) {
  std::vector<Variant> out;
  AddEps(variant, input, &out);
  AddAffine(variant, input, &out);
  AddStatistics(variant, input, &out);
  if (input.has_residual) {
    const bool wide = variant.residual_rounding == v1::RESIDUAL_ROUNDING_KEEP_WIDE;
    const v1::ResidualRounding other = wide ? v1::RESIDUAL_ROUNDING_ROUND_FIRST : v1::RESIDUAL_ROUNDING_KEEP_WIDE;
    out.push_back(variant);
    out.back().residual_rounding = other;
  }
  return out;
}

int64_t FirstTrailingAxis(const v1::NormSpec& spec, int64_t rank) {
  if (spec.has_layer_norm()) return FirstTrailingAxisOf(spec.layer_norm(), rank);
  return spec.has_rms_norm() ? FirstTrailingAxisOf(spec.rms_norm(), rank) : rank;
}

std::string Differences(const Variant& variant, const Variant& given) {
  const Message &method = MethodMessage(variant.spec), &other = MethodMessage(given.spec);
  std::vector<std::string> words;
  if (MethodOf(variant.spec) != MethodOf(given.spec)) words.push_back(MethodOf(variant.spec));
  for (int i = 0; i < method.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *method.GetDescriptor()->field(i);
    const FieldDescriptor* const same = other.GetDescriptor()->FindFieldByName(field.name());
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE || !IsPresent(method, field)) continue;
    const std::string text = FieldText(method, field);
    if (same == nullptr || !IsPresent(other, *same) || FieldText(other, *same) != text) words.push_back(text);
  }
  if (variant.unbiased) words.emplace_back("variance over n - 1");
  if (variant.rounds_weight) words.emplace_back("1 + w rounded");
  if (variant.residual_rounding != given.residual_rounding) {
    words.push_back(EnumText(*v1::ResidualRounding_descriptor(), variant.residual_rounding));
  }
  return words.empty() ? kAsGiven : absl::StrJoin(words, ", ");
}

v1::NormSpec WithDefaults(v1::NormSpec spec, const v1::Applied& applied) {
  if (HasField(spec, "eps") && !IsSet(spec, "eps")) spec = WithDouble(spec, "eps", applied.eps());
  if (HasField(spec, "eps_mode")) spec = WithEnum(spec, "eps_mode", applied.eps_mode());
  if (HasField(spec, "cast_order")) spec = WithEnum(spec, "cast_order", applied.cast_order());
  return spec;
}

UnbiasedForm OfUnbiased(const v1::NormSpec& spec, double count) {
  const double square = count / (count - 1);
  const bool inside = EnumOf(spec, "eps_mode") == v1::EPS_MODE_INSIDE_SQRT;
  const double eps = DoubleOf(spec, "eps") / (inside ? square : std::sqrt(square));
  return {WithDouble(spec, "eps", eps), 1 / std::sqrt(square)};
}

}  // namespace normd::client
