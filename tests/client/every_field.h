// Messages with every field set, by reflection: what loses a field, also one that the contract gains later, is seen.
#ifndef NORMD_TESTS_CLIENT_EVERY_FIELD_H_
#define NORMD_TESTS_CLIENT_EVERY_FIELD_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace normd::client {

// How many members the largest oneof of the message itself has; 1 without one.
inline int Choices(const google::protobuf::Descriptor& type) {
  int choices = 1;
  for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
    choices = std::max(choices, type.oneof_decl(i)->field_count());
  }
  return choices;
}

// How many messages it takes to set every field, since a oneof holds one of its members.
inline int Variants(const google::protobuf::Descriptor& type) {
  int inner = 1;
  for (int i = 0; i < type.field_count(); ++i) {
    if (const auto* const message = type.field(i)->message_type()) inner = std::max(inner, Variants(*message));
  }
  return Choices(type) * inner;
}

// Sets the fields of `message` and of the messages in it, with two elements where they are repeated, and one that the
// contract does not know. Of a oneof the member is set that `variant` chooses: from 0 up to Variants every member is
// chosen in turn. No value is a default, and they differ as far as their types allow.
class FieldSetter {
 public:
  explicit FieldSetter(int variant) : variant_(variant) {}

  void SetAll(google::protobuf::Message* message) { SetAll(variant_, message); }

 private:
  using Field = google::protobuf::FieldDescriptor;
  using Message = google::protobuf::Message;

  static constexpr int kUnknownField = 100000;

  void SetAll(int variant, Message* message) {
    const google::protobuf::Descriptor& type = *message->GetDescriptor();
    const int choice = variant % Choices(type), inner = variant / Choices(type);
    for (int i = 0; i < type.field_count(); ++i) {
      const Field* const field = type.field(i);
      const google::protobuf::OneofDescriptor* const oneof = field->real_containing_oneof();
      if (oneof != nullptr && oneof->field(choice % oneof->field_count()) != field) continue;
      if (!field->is_repeated()) {
        Set(inner, field, message);
      } else {
        Add(inner, field, message);
        Add(inner + 1, field, message);
      }
    }
    message->GetReflection()->MutableUnknownFields(message)->AddVarint(kUnknownField, ++count_);
  }

  void Set(int variant, const Field* field, Message* message) {
    const google::protobuf::Reflection& reflection = *message->GetReflection();
    ++count_;
    switch (field->cpp_type()) {
      case Field::CPPTYPE_INT32:
        return reflection.SetInt32(message, field, -count_);
      case Field::CPPTYPE_INT64:
        return reflection.SetInt64(message, field, -count_);
      case Field::CPPTYPE_UINT32:
        return reflection.SetUInt32(message, field, count_);
      case Field::CPPTYPE_UINT64:
        return reflection.SetUInt64(message, field, count_);
      case Field::CPPTYPE_DOUBLE:
        return reflection.SetDouble(message, field, count_ + 0.5);
      case Field::CPPTYPE_FLOAT:
        return reflection.SetFloat(message, field, count_ + 0.5F);
      case Field::CPPTYPE_BOOL:
        return reflection.SetBool(message, field, true);
      case Field::CPPTYPE_ENUM:
        return reflection.SetEnumValue(message, field, count_);  // most of them are no value of the contract
      case Field::CPPTYPE_STRING:
        return reflection.SetString(message, field, absl::StrCat("text ", count_));
      case Field::CPPTYPE_MESSAGE:
        return SetAll(variant, reflection.MutableMessage(message, field));
    }
  }

  void Add(int variant, const Field* field, Message* message) {
    const google::protobuf::Reflection& reflection = *message->GetReflection();
    ++count_;
    switch (field->cpp_type()) {
      case Field::CPPTYPE_INT32:
        return reflection.AddInt32(message, field, -count_);
      case Field::CPPTYPE_INT64:
        return reflection.AddInt64(message, field, -count_);
      case Field::CPPTYPE_UINT32:
        return reflection.AddUInt32(message, field, count_);
      case Field::CPPTYPE_UINT64:
        return reflection.AddUInt64(message, field, count_);
      case Field::CPPTYPE_DOUBLE:
        return reflection.AddDouble(message, field, count_ + 0.5);
      case Field::CPPTYPE_FLOAT:
        return reflection.AddFloat(message, field, count_ + 0.5F);
      case Field::CPPTYPE_BOOL:
        return reflection.AddBool(message, field, true);
      case Field::CPPTYPE_ENUM:
        return reflection.AddEnumValue(message, field, count_);
      case Field::CPPTYPE_STRING:
        return reflection.AddString(message, field, absl::StrCat("text ", count_));
      case Field::CPPTYPE_MESSAGE:
        return SetAll(variant, reflection.AddMessage(message, field));
    }
  }

  const int variant_;
  int count_ = 0;
};

// As many messages as it takes to set every field.
template <typename T>
std::vector<T> WithEveryField() {
  std::vector<T> messages(static_cast<size_t>(Variants(*T::descriptor())));
  for (size_t i = 0; i < messages.size(); ++i) FieldSetter(static_cast<int>(i)).SetAll(&messages[i]);
  return messages;
}

}  // namespace normd::client

#endif  // NORMD_TESTS_CLIENT_EVERY_FIELD_H_
