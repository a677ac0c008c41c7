#include "client/cpp/without_tensors.h"

#include <google/protobuf/message.h>
#include <google/protobuf/reflection.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace normd::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Tensors = absl::Span<const v1::Tensor* const>;

std::vector<const FieldDescriptor*> FieldsOf(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return fields;
}

bool IsOneMessage(const FieldDescriptor& field) {
  return !field.is_repeated() && field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

bool IsOneOf(const Message& message, Tensors apart) {
  return std::find(apart.begin(), apart.end(), &message) != apart.end();
}

bool HoldsOneOf(const Message& message, Tensors apart) {
  if (message.GetDescriptor() == v1::Tensor::descriptor()) return IsOneOf(message, apart);
  const std::vector<const FieldDescriptor*> fields = FieldsOf(message);
  return std::any_of(fields.begin(), fields.end(), [&](const FieldDescriptor* field) {
    return IsOneMessage(*field) && HoldsOneOf(message.GetReflection()->GetMessage(message, field), apart);
  });
}

template <typename T, typename Get, typename Set>
void CopyValues(const Message& from, const FieldDescriptor* field, Get get, Set set, Message* copy) {
  const Reflection& reflection = *from.GetReflection();
  if (field->is_repeated()) {
    reflection.GetMutableRepeatedFieldRef<T>(copy, field).CopyFrom(reflection.GetRepeatedFieldRef<T>(from, field));
  } else {
    (reflection.*set)(copy, field, (reflection.*get)(from, field));
  }
}

void CopyMessages(const Message& from, const FieldDescriptor* field, Message* copy) {
  const Reflection& reflection = *from.GetReflection();
  if (!field->is_repeated()) {
    reflection.MutableMessage(copy, field)->CopyFrom(reflection.GetMessage(from, field));
    return;
  }
  for (int i = 0; i < reflection.FieldSize(from, field); ++i) {
    reflection.AddMessage(copy, field)->CopyFrom(reflection.GetRepeatedMessage(from, field, i));
  }
}

// Copies one field that is set, including all of its contents.
void CopyField(const Message& from, const FieldDescriptor* field, Message* copy) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return CopyValues<int32_t>(from, field, &Reflection::GetInt32, &Reflection::SetInt32, copy);
    case FieldDescriptor::CPPTYPE_INT64:
      return CopyValues<int64_t>(from, field, &Reflection::GetInt64, &Reflection::SetInt64, copy);
    case FieldDescriptor::CPPTYPE_UINT32:
      return CopyValues<uint32_t>(from, field, &Reflection::GetUInt32, &Reflection::SetUInt32, copy);
    case FieldDescriptor::CPPTYPE_UINT64:
      return CopyValues<uint64_t>(from, field, &Reflection::GetUInt64, &Reflection::SetUInt64, copy);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return CopyValues<double>(from, field, &Reflection::GetDouble, &Reflection::SetDouble, copy);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return CopyValues<float>(from, field, &Reflection::GetFloat, &Reflection::SetFloat, copy);
    case FieldDescriptor::CPPTYPE_BOOL:
      return CopyValues<bool>(from, field, &Reflection::GetBool, &Reflection::SetBool, copy);
    case FieldDescriptor::CPPTYPE_ENUM:
      return CopyValues<int32_t>(from, field, &Reflection::GetEnumValue, &Reflection::SetEnumValue, copy);
    case FieldDescriptor::CPPTYPE_STRING:
      return CopyValues<std::string>(from, field, &Reflection::GetString, &Reflection::SetString, copy);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return CopyMessages(from, field, copy);
  }
}

void Copy(const Message& from, Tensors apart, Message* copy) {
  const Reflection& reflection = *from.GetReflection();
  const bool is_apart = IsOneOf(from, apart);
  for (const FieldDescriptor* field : FieldsOf(from)) {
    if (is_apart && field->number() == v1::Tensor::kDataFieldNumber) continue;
    if (IsOneMessage(*field) && HoldsOneOf(reflection.GetMessage(from, field), apart)) {
      Copy(reflection.GetMessage(from, field), apart, reflection.MutableMessage(copy, field));
    } else {
      CopyField(from, field, copy);
    }
  }
  // Unknown fields: those of a contract that is newer than this program.
  const google::protobuf::UnknownFieldSet& unknown = reflection.GetUnknownFields(from);
  if (!unknown.empty()) reflection.MutableUnknownFields(copy)->MergeFrom(unknown);
}

}  // namespace

void CopyWithoutBytes(const v1::NormalizeRequest& request, Tensors apart, v1::NormalizeRequest* copy) {
  Copy(request, apart, copy);
}

void CopyWithoutTensors(const v1::NormalizeRequest& request, v1::NormalizeRequest* copy) {
  CopyWithoutBytes(request, {&request.x(), &request.residual().tensor()}, copy);
}

}  // namespace normd::client
