// Copies that leave bytes behind, and nothing else.
#include "client/cpp/without_tensors.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/client/every_field.h"

namespace normd::client {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

void NameFields(const Descriptor& type, std::set<std::string>* names) {
  for (int i = 0; i < type.field_count(); ++i) {
    names->insert(type.field(i)->full_name());
    if (type.field(i)->message_type() != nullptr) NameFields(*type.field(i)->message_type(), names);
  }
}

void NameSetFields(const Message& message, std::set<std::string>* names) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    names->insert(field->full_name());
    if (field->message_type() == nullptr) continue;
    if (!field->is_repeated()) {
      NameSetFields(message.GetReflection()->GetMessage(message, field), names);
      continue;
    }
    for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i) {
      NameSetFields(message.GetReflection()->GetRepeatedMessage(message, field, i), names);
    }
  }
}

// Without this the tests of copies could pass because nothing was there to be lost.
TEST(EveryField, IsSet) {
  std::set<std::string> all, set;
  NameFields(*v1::NormalizeRequest::descriptor(), &all);
  for (const v1::NormalizeRequest& request : WithEveryField<v1::NormalizeRequest>()) NameSetFields(request, &set);
  EXPECT_EQ(set, all);
  EXPECT_EQ(all.count("normd.v1.PowerNorm.warmup_iters"), 1u) << "a oneof in a oneof";
}

TEST(WithoutTensors, EverythingButTheirBytesIsCopied) {
  for (const v1::NormalizeRequest& request : WithEveryField<v1::NormalizeRequest>()) {
    v1::NormalizeRequest copy;
    CopyWithoutTensors(request, &copy);
    v1::NormalizeRequest want = request;
    want.mutable_x()->clear_data();
    want.mutable_residual()->mutable_tensor()->clear_data();
    EXPECT_EQ(copy.DebugString(), want.DebugString());
  }
}

TEST(WithoutTensors, OnlyTheTensorsThatAreNamedLoseTheirBytes) {
  for (const v1::NormalizeRequest& request : WithEveryField<v1::NormalizeRequest>()) {
    v1::NormalizeRequest copy;
    CopyWithoutBytes(request, {}, &copy);
    EXPECT_EQ(copy.DebugString(), request.DebugString());
    copy.Clear();
    CopyWithoutBytes(request, {&request.mask(), &request.parameters().running_var()}, &copy);
    v1::NormalizeRequest want = request;
    want.mutable_mask()->clear_data();
    want.mutable_parameters()->mutable_running_var()->clear_data();
    EXPECT_EQ(copy.DebugString(), want.DebugString());
  }
}

TEST(WithoutTensors, WhatIsAbsentStaysAbsent) {
  v1::NormalizeRequest request, copy;
  CopyWithoutTensors(request, &copy);
  EXPECT_EQ(copy.DebugString(), "");
  request.mutable_residual();
  request.mutable_x()->set_data("");
  request.set_expected_version(0);
  CopyWithoutTensors(request, &copy);
  request.mutable_x()->clear_data();
  EXPECT_EQ(copy.DebugString(), request.DebugString());
  EXPECT_TRUE(copy.has_expected_version());
}

}  // namespace
}  // namespace normd::client
