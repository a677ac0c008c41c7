// The table of methods against the contract: names, order and attributes are those of norm.proto.
#include "kernels/methods.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace normd {
namespace {

struct ProtoField {
  std::string type;  // "double", "enum EpsMode", "repeated int64"
  std::string name;
  int number;
};

// norm.proto as words and single marks, without comments.
using Tokens = std::vector<std::string>;

Tokens ReadNormProto() {
  std::ifstream file(std::string(NORMD_SOURCE_DIR) + "/proto/normd/v1/norm.proto");
  Tokens tokens;
  for (std::string line; std::getline(file, line);) {
    bool in_word = false;
    for (const char c : line.substr(0, line.find("//"))) {
      const bool word = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
      if (word && in_word) {
        tokens.back() += c;
      } else if (c != ' ') {
        tokens.emplace_back(1, c);
      }
      in_word = word;
    }
  }
  return tokens;
}

bool IsEnum(const Tokens& proto, const std::string& type) {
  const Tokens declaration = {"enum", type};
  return std::search(proto.begin(), proto.end(), declaration.begin(), declaration.end()) != proto.end();
}

// The fields of a message, those of its oneofs among them: "[optional|repeated] type name = number ;".
std::vector<ProtoField> FieldsOf(const Tokens& proto, const std::string& message) {
  const Tokens opening = {"message", message, "{"};
  auto token = std::search(proto.begin(), proto.end(), opening.begin(), opening.end());
  std::vector<ProtoField> fields;
  int depth = 0;
  for (; token != proto.end(); ++token) {
    if (*token == "{") ++depth;
    if (*token == "}" && --depth == 0) break;
    if (*token != "=") continue;
    ProtoField field = {token[-2], token[-1], std::stoi(token[1])};
    if (IsEnum(proto, field.type)) field.type = "enum " + field.type;
    if (token[-3] == "repeated") field.type = "repeated " + field.type;
    fields.push_back(std::move(field));
  }
  return fields;
}

TEST(Methods, AreTheFieldsOfNormSpecInTheirNumbersOrder) {
  const std::vector<ProtoField> fields = FieldsOf(ReadNormProto(), "NormSpec");
  ASSERT_EQ(fields.size(), AllMethods().size());
  ASSERT_EQ(std::size(kAllMethods), AllMethods().size());
  for (size_t i = 0; i < fields.size(); ++i) {
    EXPECT_EQ(AllMethods()[i]->info.name, fields[i].name);
    EXPECT_EQ(static_cast<int>(kAllMethods[i]), fields[i].number);
  }
}

TEST(Methods, TheCatalogueHasEachMethodInItsPlace) {
  ASSERT_EQ(kMethods.size(), AllMethods().size());
  for (const Method method : kAllMethods) {
    EXPECT_EQ(&DefinitionOf(method).info, &Info(method));
    EXPECT_EQ(FindMethod(Info(method).name), &Info(method));
    EXPECT_EQ(Info(method).has_state, TraitsOf(method).state != StateKind::kNone) << Info(method).name;
  }
  EXPECT_EQ(FindMethod("no_norm"), nullptr);
}

TEST(Methods, AttributesAreTheFieldsOfTheMethodsMessageWithTheirTypes) {
  const Tokens proto = ReadNormProto();
  const std::vector<ProtoField> messages = FieldsOf(proto, "NormSpec");
  ASSERT_EQ(messages.size(), AllMethods().size());
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::vector<ProtoField> fields = FieldsOf(proto, messages[i].type);
    ASSERT_FALSE(fields.empty()) << messages[i].type;
    std::map<std::string, std::string> declared, described;
    for (const ProtoField& field : fields) declared[field.name] = field.type;
    for (const AttributeInfo& attribute : AllMethods()[i]->info.attributes) {
      EXPECT_TRUE(described.emplace(attribute.name, attribute.type).second) << attribute.name << " is listed twice";
    }
    EXPECT_EQ(described, declared) << AllMethods()[i]->info.name;
  }
}

TEST(Methods, EveryCellIsFilled) {
  std::set<std::string_view> names, titles;
  for (const MethodDefinition* method : AllMethods()) {
    const MethodInfo& info = method->info;
    EXPECT_TRUE(names.insert(info.name).second);
    EXPECT_TRUE(titles.insert(info.title).second);
    for (const std::string_view cell : {info.divides_by, info.axes_bchw, info.axes_bld, info.axes_bc, info.parameters,
                                        info.used_by, info.when_to_choose}) {
      EXPECT_FALSE(cell.empty()) << info.name;
    }
    for (const AttributeInfo& attribute : info.attributes) {
      EXPECT_FALSE(attribute.default_value.empty()) << info.name << "." << attribute.name;
      EXPECT_FALSE(attribute.limits.empty()) << info.name << "." << attribute.name;
    }
  }
}

TEST(Methods, DefaultsAreThoseOfTheContract) {
  const std::map<std::string_view, std::pair<double, EpsMode>> wanted = {
      {"batch_norm", {1e-5, EpsMode::kInsideSqrt}},    {"layer_norm", {1e-5, EpsMode::kInsideSqrt}},
      {"instance_norm", {1e-5, EpsMode::kInsideSqrt}}, {"group_norm", {1e-5, EpsMode::kInsideSqrt}},
      {"rms_norm", {1e-6, EpsMode::kInsideSqrt}},      {"p_rms_norm", {1e-6, EpsMode::kInsideSqrt}},
      {"scale_norm", {1e-5, EpsMode::kAddToRoot}},     {"lp_norm", {0, EpsMode::kAddToRoot}},
      {"power_norm", {1e-5, EpsMode::kInsideSqrt}}};
  for (const MethodDefinition* method : AllMethods()) {
    const MethodInfo& info = method->info;
    ASSERT_EQ(wanted.count(info.name), 1u) << info.name;
    EXPECT_EQ(info.default_eps, wanted.at(info.name).first) << info.name;
    EXPECT_EQ(info.default_eps_mode, wanted.at(info.name).second) << info.name;
  }
}

TEST(Methods, TextsAgreeWithTheValuesBesideThem) {
  for (const MethodDefinition* method : AllMethods()) {
    const MethodInfo& info = method->info;
    for (const AttributeInfo& attribute : info.attributes) {
      if (attribute.name == "eps") {
        EXPECT_EQ(std::stod(std::string(attribute.default_value)), info.default_eps) << info.name;
      }
      if (attribute.name == "eps_mode") {
        EXPECT_EQ(attribute.default_value,
                  info.default_eps_mode == EpsMode::kInsideSqrt ? "INSIDE_SQRT" : "ADD_TO_ROOT")
            << info.name;
      }
    }
    // The statistics of a batch are what makes training and inference differ.
    EXPECT_EQ(info.training_equals_inference, !info.depends_on_batch) << info.name;
  }
}

TEST(Methods, OnlyBatchAndPowerNormDependOnTheBatch) {
  for (const Method method : kAllMethods) {
    const bool batch = method == Method::kBatchNorm || method == Method::kPowerNorm;
    EXPECT_EQ(Info(method).depends_on_batch, batch) << Info(method).name;
  }
}

}  // namespace
}  // namespace normd
