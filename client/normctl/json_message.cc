#include "client/normctl/json_message.h"

#include <google/protobuf/util/time_util.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/cli/tensor_file.h"
#include "client/cpp/tensor.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::util::TimeUtil;

Json TensorJson(const v1::Tensor& tensor) {
  const absl::StatusOr<Tensor> parsed = Tensor::FromProto(tensor);
  Json values = Json::array();
  if (parsed.ok()) {
    for (double value : parsed->ToDoubles()) values.push_back(NumberJson(value));
  }
  return {{"dtype", std::string(DTypeName(tensor.dtype()))},
          {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
          {"values", std::move(values)}};
}

Json FieldJson(const Message& message, const FieldDescriptor& field);

Json ChildJson(const Message& child) {
  if (const auto* tensor = dynamic_cast<const v1::Tensor*>(&child)) return TensorJson(*tensor);
  if (const auto* time = dynamic_cast<const google::protobuf::Timestamp*>(&child)) return TimeUtil::ToString(*time);
  if (const auto* duration = dynamic_cast<const google::protobuf::Duration*>(&child)) {
    return TimeUtil::ToString(*duration);
  }
  return MessageJson(child);
}

// The value of a field, or of the element `index` of a repeated field.
Json ValueJson(const Message& message, const FieldDescriptor& field, int index) {
  const auto& get = *message.GetReflection();
  const bool repeated = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return repeated ? get.GetRepeatedBool(message, &field, index) : get.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_INT32:
      return repeated ? get.GetRepeatedInt32(message, &field, index) : get.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return repeated ? get.GetRepeatedInt64(message, &field, index) : get.GetInt64(message, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return repeated ? get.GetRepeatedUInt32(message, &field, index) : get.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return repeated ? get.GetRepeatedUInt64(message, &field, index) : get.GetUInt64(message, &field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return NumberJson(repeated ? get.GetRepeatedFloat(message, &field, index) : get.GetFloat(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return NumberJson(repeated ? get.GetRepeatedDouble(message, &field, index) : get.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumText(*field.enum_type(),
                      repeated ? get.GetRepeatedEnumValue(message, &field, index) : get.GetEnumValue(message, &field));
    case FieldDescriptor::CPPTYPE_STRING:
      if (field.type() == FieldDescriptor::TYPE_BYTES && !repeated) {
        return absl::Base64Escape(get.GetString(message, &field));
      }
      return repeated ? get.GetRepeatedString(message, &field, index) : get.GetString(message, &field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ChildJson(repeated ? get.GetRepeatedMessage(message, &field, index) : get.GetMessage(message, &field));
  }
  return Json();
}

// {"key": value}: the contract's maps have keys that are strings.
Json MapJson(const Message& message, const FieldDescriptor& field) {
  Json out = Json::object();
  const auto& get = *message.GetReflection();
  for (int i = 0; i < get.FieldSize(message, &field); ++i) {
    const Message& entry = get.GetRepeatedMessage(message, &field, i);
    const auto& descriptor = *entry.GetDescriptor();
    out[entry.GetReflection()->GetString(entry, descriptor.map_key())] = FieldJson(entry, *descriptor.map_value());
  }
  return out;
}

Json FieldJson(const Message& message, const FieldDescriptor& field) {
  if (field.is_map()) return MapJson(message, field);
  if (!field.is_repeated()) return ValueJson(message, field, 0);
  Json out = Json::array();
  const int count = message.GetReflection()->FieldSize(message, &field);
  for (int i = 0; i < count; ++i) out.push_back(ValueJson(message, field, i));
  return out;
}

// Whether a field is left out: one with presence that is not set, and an enum that is the documented default.
bool IsAbsent(const Message& message, const FieldDescriptor& field) {
  if (field.is_repeated()) return false;
  const auto& get = *message.GetReflection();
  if (field.has_presence()) return !get.HasField(message, &field);
  return field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM && get.GetEnumValue(message, &field) == 0;
}

absl::Status BadJson(absl::string_view field, const Json& value, absl::string_view wanted) {
  constexpr size_t kShownBytes = 80;
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", text.substr(0, kShownBytes),
                                                 text.size() > kShownBytes ? "..." : "", "; it must be ", wanted));
}

std::optional<double> NumberFromJson(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (json == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (json == "Infinity") return std::numeric_limits<double>::infinity();
  if (json == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

absl::StatusOr<std::vector<int64_t>> ShapeFromJson(absl::string_view field, const Json& json) {
  std::vector<int64_t> shape;
  for (const Json& extent : json) {
    // A number that is too large for int64 wraps around to a negative one.
    if (!extent.is_number_integer() || extent.get<int64_t>() < 0) {
      return BadJson(absl::StrCat(field, ".shape[", shape.size(), "]"), extent, "a whole number, at least 0");
    }
    shape.push_back(extent.get<int64_t>());
  }
  return shape;
}

}  // namespace

Json NumberJson(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

absl::StatusOr<v1::Tensor> TensorFromJson(absl::string_view field, const Json& json) {
  const bool formed = json.is_object() && json.contains("dtype") && json["dtype"].is_string() &&
                      json.contains("shape") && json["shape"].is_array() && json.contains("values") &&
                      json["values"].is_array();
  if (!formed) return BadJson(field, json, "an object of dtype, shape and values");
  const absl::StatusOr<DType> dtype = ParseDType(json["dtype"].get<std::string>());
  if (!dtype.ok()) return absl::InvalidArgumentError(absl::StrCat(field, ".", dtype.status().message()));
  absl::StatusOr<std::vector<int64_t>> shape = ShapeFromJson(field, json["shape"]);
  if (!shape.ok()) return shape.status();
  std::vector<double> values;
  for (const Json& value : json["values"]) {
    const std::optional<double> number = NumberFromJson(value);
    if (!number.has_value()) return BadJson(absl::StrCat(field, ".values[", values.size(), "]"), value, "a number");
    values.push_back(*number);
  }
  int64_t elements = 1;
  bool fits = true;
  for (const int64_t extent : *shape) fits = fits && !__builtin_mul_overflow(elements, extent, &elements);
  if (!fits || static_cast<uint64_t>(elements) != values.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " has ", values.size(), " values, which do not fill shape ", ShapeText(*shape)));
  }
  return Tensor::Rounded(*dtype, *std::move(shape), values).ToProto();
}

Json MessageJson(const Message& message) {
  Json out = Json::object();
  const auto& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (!IsAbsent(message, field)) out[field.name()] = FieldJson(message, field);
  }
  return out;
}

}  // namespace normd::client
