#include "client/normctl/spec_fields.h"

namespace normd::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const FieldDescriptor* ChosenMethod(const v1::NormSpec& spec) {
  return spec.GetReflection()->GetOneofFieldDescriptor(spec, spec.GetDescriptor()->FindOneofByName("method"));
}
Message& MutableMethod(v1::NormSpec& spec) { return *spec.GetReflection()->MutableMessage(&spec, ChosenMethod(spec)); }

const FieldDescriptor* FieldOf(const Message& method, const char* name) {
  return method.GetDescriptor()->FindFieldByName(name);
}

// The field of `spec`'s method; null if it has none, or `spec` no method.
const FieldDescriptor* FindField(const v1::NormSpec& spec, const char* name) {
  return ChosenMethod(spec) == nullptr ? nullptr : FieldOf(MethodMessage(spec), name);
}

}  // namespace

const Message& MethodMessage(const v1::NormSpec& spec) {
  return spec.GetReflection()->GetMessage(spec, ChosenMethod(spec));
}

bool HasField(const v1::NormSpec& spec, const char* name) { return FindField(spec, name) != nullptr; }

bool IsSet(const v1::NormSpec& spec, const char* name) {
  const FieldDescriptor* const field = FindField(spec, name);
  return field != nullptr && MethodMessage(spec).GetReflection()->HasField(MethodMessage(spec), field);
}

double DoubleOf(const v1::NormSpec& spec, const char* name) {
  const FieldDescriptor* const field = FindField(spec, name);
  return field == nullptr ? 0 : MethodMessage(spec).GetReflection()->GetDouble(MethodMessage(spec), field);
}

int EnumOf(const v1::NormSpec& spec, const char* name) {
  const FieldDescriptor* const field = FindField(spec, name);
  return field == nullptr ? 0 : MethodMessage(spec).GetReflection()->GetEnumValue(MethodMessage(spec), field);
}

void SetDouble(v1::NormSpec& spec, const char* name, double value) {
  Message& method = MutableMethod(spec);
  method.GetReflection()->SetDouble(&method, FieldOf(method, name), value);
}

void SetEnum(v1::NormSpec& spec, const char* name, int value) {
  Message& method = MutableMethod(spec);
  method.GetReflection()->SetEnumValue(&method, FieldOf(method, name), value);
}

void ClearFields(v1::NormSpec& spec, std::initializer_list<const char*> names) {
  Message& method = MutableMethod(spec);
  for (const char* const name : names) {
    const FieldDescriptor* const field = FieldOf(method, name);
    if (field != nullptr) method.GetReflection()->ClearField(&method, field);
  }
}

bool CastsFirst(const v1::NormSpec& spec) { return EnumOf(spec, "cast_order") == v1::CAST_ORDER_CAST_THEN_AFFINE; }

}  // namespace normd::client
