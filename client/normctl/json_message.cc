#include "client/normctl/json_message.h"

#include <google/protobuf/util/json_util.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/table.h"
#include "client/cli/tensor_file.h"
#include "client/cpp/tensor.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

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

// Replaces the form of every tensor in `json`, which was made from `message`.
void ReplaceTensors(const Message& message, Json& json) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_map()) continue;
    const auto* reflection = message.GetReflection();
    const int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const Message& child = field->is_repeated() ? reflection->GetRepeatedMessage(message, field, i)
                                                  : reflection->GetMessage(message, field);
      Json& place = field->is_repeated() ? json[field->name()][static_cast<size_t>(i)] : json[field->name()];
      if (const auto* tensor = dynamic_cast<const v1::Tensor*>(&child)) {
        place = TensorJson(*tensor);
      } else if (field->message_type()->file()->package() == "normd.v1") {
        ReplaceTensors(child, place);
      }
    }
  }
}

absl::Status Bad(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
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
      return Bad(absl::StrCat(field, ".shape"), "must be whole numbers, at least 0");
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
  if (!formed) return Bad(field, "must be an object of dtype, shape and values");
  const absl::StatusOr<DType> dtype = ParseDType(json["dtype"].get<std::string>());
  if (!dtype.ok()) return Bad(field, dtype.status().message());
  absl::StatusOr<std::vector<int64_t>> shape = ShapeFromJson(field, json["shape"]);
  if (!shape.ok()) return shape.status();
  std::vector<double> values;
  for (const Json& value : json["values"]) {
    const std::optional<double> number = NumberFromJson(value);
    if (!number.has_value()) return Bad(absl::StrCat(field, ".values[", values.size(), "]"), "must be a number");
    values.push_back(*number);
  }
  int64_t elements = 1;
  bool fits = true;
  for (const int64_t extent : *shape) fits = fits && !__builtin_mul_overflow(elements, extent, &elements);
  if (!fits || static_cast<uint64_t>(elements) != values.size()) {
    return Bad(field, absl::StrCat(values.size(), " values do not fill shape ", ShapeText(*shape)));
  }
  return Tensor::Rounded(*dtype, *std::move(shape), values).ToProto();
}

Json MessageJson(const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) return Json();
  Json json = Json::parse(text, nullptr, false);
  ReplaceTensors(message, json);
  return json;
}

}  // namespace normd::client
