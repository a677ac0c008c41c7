#include "client/normctl/json_message.h"

#include <google/protobuf/util/json_util.h>

#include <cmath>
#include <nlohmann/json.hpp>

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
    for (double value : parsed->ToDoubles()) {
      // JSON has no NaN and no infinity.
      if (std::isfinite(value)) {
        values.push_back(value);
      } else {
        values.push_back(std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
      }
    }
  }
  return {{"dtype", std::string(DTypeName(tensor.dtype()))},
          {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
          {"values", std::move(values)}};
}

// Replaces, in `json` made from `message`, every tensor's form.
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

}  // namespace

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
