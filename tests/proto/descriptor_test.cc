// normd.v1 only grows: whoever was built against the committed descriptor set can talk to every later server. A field,
// enum value or method of tests/proto/normd_v1.protoset that is gone, or has another number, type, label or name,
// fails. New ones pass. When something was added on purpose, and nothing else, take it into the set, from proto/:
//   protoc -I . --descriptor_set_out=../tests/proto/normd_v1.protoset
//     normd/v1/norm.proto normd/v1/normalizer.proto normd/v1/sessions.proto normd/v1/shared_memory.proto
//     normd/v1/tensor.proto
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "normd/v1/norm.pb.h"
#include "normd/v1/normalizer.pb.h"
#include "normd/v1/sessions.pb.h"
#include "normd/v1/shared_memory.pb.h"
#include "normd/v1/tensor.pb.h"

namespace normd {
namespace {

using google::protobuf::DescriptorProto;
using google::protobuf::EnumDescriptorProto;
using google::protobuf::FieldDescriptorProto;
using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;

// Every promise of a set: what is promised -> how it looks. Breaking is: a key gone, or another look.
using Promises = std::map<std::string, std::string>;

std::string LookOf(const DescriptorProto& message, const FieldDescriptorProto& field) {
  std::string look = field.name() + " " + FieldDescriptorProto::Type_Name(field.type()) + " " +
                     FieldDescriptorProto::Label_Name(field.label()) + " " + field.type_name();
  if (field.has_oneof_index()) look += " in " + message.oneof_decl(field.oneof_index()).name();
  if (field.options().has_packed()) look += field.options().packed() ? " packed" : " not packed";
  return look;
}

void AddEnum(const std::string& scope, const EnumDescriptorProto& message, Promises& promises) {
  for (const auto& value : message.value()) {
    promises["enum " + scope + message.name() + "." + value.name()] = std::to_string(value.number());
  }
}

void AddMessage(const std::string& scope, const DescriptorProto& message, Promises& promises) {
  const std::string name = scope + message.name();
  promises["message " + name] = "";
  for (const FieldDescriptorProto& field : message.field()) {
    promises["field " + name + " = " + std::to_string(field.number())] = LookOf(message, field);
  }
  for (const DescriptorProto& nested : message.nested_type()) AddMessage(name + ".", nested, promises);
  for (const EnumDescriptorProto& nested : message.enum_type()) AddEnum(name + ".", nested, promises);
}

void AddFile(const FileDescriptorProto& file, Promises& promises) {
  const std::string scope = file.package() + ".";
  for (const DescriptorProto& message : file.message_type()) AddMessage(scope, message, promises);
  for (const EnumDescriptorProto& message : file.enum_type()) AddEnum(scope, message, promises);
  for (const auto& service : file.service()) {
    for (const auto& method : service.method()) {
      promises["method " + scope + service.name() + "/" + method.name()] =
          (method.client_streaming() ? "stream " : "") + method.input_type() + " -> " +
          (method.server_streaming() ? "stream " : "") + method.output_type();
    }
  }
}

Promises PromisesOf(const FileDescriptorSet& set) {
  Promises promises;
  for (const FileDescriptorProto& file : set.file()) AddFile(file, promises);
  return promises;
}

// What of `before` does not hold in `after`, in words.
std::vector<std::string> BrokenPromises(const FileDescriptorSet& before, const FileDescriptorSet& after) {
  const Promises now = PromisesOf(after);
  std::vector<std::string> broken;
  for (const auto& [what, look] : PromisesOf(before)) {
    const auto found = now.find(what);
    if (found == now.end()) {
      broken.push_back(what + " is gone");
    } else if (found->second != look) {
      broken.push_back(what + " was \"" + look + "\", is \"" + found->second + "\"");
    }
  }
  return broken;
}

FileDescriptorSet CommittedSet() {
  const std::string path = std::string(NORMD_SOURCE_DIR) + "/tests/proto/normd_v1.protoset";
  std::ifstream file(path, std::ios::binary);
  FileDescriptorSet set;
  EXPECT_TRUE(file.good() && set.ParseFromIstream(&file)) << path;
  return set;
}

// What the sources say now: the descriptors that the generated code carries.
FileDescriptorSet PresentSet() {
  FileDescriptorSet set;
  for (const google::protobuf::Descriptor* any_message_of_file :
       {v1::NormSpec::descriptor(), v1::NormalizeRequest::descriptor(), v1::Session::descriptor(),
        v1::RegisterRegionRequest::descriptor(), v1::Tensor::descriptor()}) {
    any_message_of_file->file()->CopyTo(set.add_file());
  }
  return set;
}

TEST(DescriptorTest, NothingOfTheCommittedContractHasChanged) {
  const FileDescriptorSet committed = CommittedSet();
  EXPECT_EQ(committed.file_size(), 5);
  EXPECT_GT(PromisesOf(committed).size(), 250u);
  EXPECT_THAT(BrokenPromises(committed, PresentSet()), testing::IsEmpty());
}

FileDescriptorProto* FileOf(FileDescriptorSet& set, const std::string& name) {
  for (FileDescriptorProto& file : *set.mutable_file()) {
    if (file.name() == name) return &file;
  }
  ADD_FAILURE() << name;
  return set.add_file();
}

DescriptorProto* MessageOf(FileDescriptorSet& set, const std::string& name) {
  for (FileDescriptorProto& file : *set.mutable_file()) {
    for (DescriptorProto& message : *file.mutable_message_type()) {
      if (message.name() == name) return &message;
    }
  }
  ADD_FAILURE() << name;
  return set.add_file()->add_message_type();
}

struct Change {
  std::string complaint;  // part of the one that is expected
  std::function<void(FileDescriptorSet&)> apply;
};

// The comparison itself can fail: each breaking change of the present set is found, and it alone.
TEST(DescriptorTest, EveryKindOfBreakingChangeIsFound) {
  const std::vector<Change> changes = {
      {"field normd.v1.Tensor = 2 is gone", [](auto& s) { MessageOf(s, "Tensor")->mutable_field(1)->set_number(9); }},
      {"field normd.v1.Tensor = 1 is gone",
       [](auto& s) { MessageOf(s, "Tensor")->mutable_field()->DeleteSubrange(0, 1); }},
      {"is \"shape TYPE_INT32",
       [](auto& s) { MessageOf(s, "Tensor")->mutable_field(1)->set_type(FieldDescriptorProto::TYPE_INT32); }},
      {"LABEL_OPTIONAL",
       [](auto& s) { MessageOf(s, "Tensor")->mutable_field(1)->set_label(FieldDescriptorProto::LABEL_OPTIONAL); }},
      {"is \"extents ", [](auto& s) { MessageOf(s, "Tensor")->mutable_field(1)->set_name("extents"); }},
      {"field normd.v1.LayerNorm = 1",
       [](auto& s) { MessageOf(s, "LayerNorm")->mutable_field(0)->clear_oneof_index(); }},
      {"message normd.v1.StepId is gone", [](auto& s) { MessageOf(s, "StepId")->set_name("Step"); }},
      {"enum normd.v1.Layout.LAYOUT_CHANNELS_LAST was \"2\", is \"3\"",
       [](auto& s) {
         for (auto& e : *FileOf(s, "normd/v1/norm.proto")->mutable_enum_type()) {
           if (e.name() == "Layout") e.mutable_value(2)->set_number(3);
         }
       }},
      {"enum normd.v1.DType.DTYPE_F64 is gone",
       [](auto& s) { FileOf(s, "normd/v1/tensor.proto")->mutable_enum_type(0)->mutable_value()->RemoveLast(); }},
      {"method normd.v1.Normalizer/Describe is gone",
       [](auto& s) { FileOf(s, "normd/v1/normalizer.proto")->mutable_service(0)->mutable_method()->RemoveLast(); }},
      {"method normd.v1.Normalizer/NormalizeStream was \"stream ",
       [](auto& s) {
         FileOf(s, "normd/v1/normalizer.proto")->mutable_service(0)->mutable_method(2)->set_client_streaming(false);
       }},
  };
  for (const Change& change : changes) {
    FileDescriptorSet changed = PresentSet();
    change.apply(changed);
    EXPECT_THAT(BrokenPromises(PresentSet(), changed), testing::Contains(testing::HasSubstr(change.complaint)));
  }
}

TEST(DescriptorTest, AdditionsPass) {
  FileDescriptorSet grown = PresentSet();
  FieldDescriptorProto* const field = MessageOf(grown, "NormalizeRequest")->add_field();
  field->set_name("priority");
  field->set_number(100);
  field->set_type(FieldDescriptorProto::TYPE_INT32);
  auto* const value = FileOf(grown, "normd/v1/tensor.proto")->mutable_enum_type(0)->add_value();
  value->set_name("DTYPE_F8");
  value->set_number(16);
  FileOf(grown, "normd/v1/normalizer.proto")->mutable_service(0)->add_method()->set_name("Denormalize");
  FileOf(grown, "normd/v1/normalizer.proto")->add_message_type()->set_name("Extra");
  EXPECT_THAT(BrokenPromises(PresentSet(), grown), testing::IsEmpty());
}

}  // namespace
}  // namespace normd
