#include "client/normctl/method_page.h"

#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "client/cli/table.h"

namespace normd::client {
namespace {

TEST(AxesPicture, MarksTheElementsThatShareTheirStatistics) {
  EXPECT_EQ(AxesPicture("B,C", "B"), "b0  a b c d\nb1  a b c d");
  EXPECT_EQ(AxesPicture("B,C", "C"), "b0  a a a a\nb1  b b b b");
  EXPECT_EQ(AxesPicture("B,C", "C/G"), "b0  a a b b\nb1  c c d d");
  EXPECT_EQ(AxesPicture("B,C", "first k of C"), "b0  A A a a\nb1  B B b b");
  EXPECT_EQ(AxesPicture("B,C", "none: one value a group"), "b0  a b c d\nb1  e f g h");
  EXPECT_EQ(AxesPicture("B,C", "listed, C by default"), "b0  a a a a\nb1  b b b b");
  EXPECT_EQ(AxesPicture("B,L,D", "L,D/G"), "b0 l0  a a b b\nb0 l1  a a b b\nb1 l0  c c d d\nb1 l1  c c d d");
  EXPECT_EQ(AxesPicture("B,C,H,W", "H,W").substr(0, 31), "b0 c0  a a  a a\nb0 c1  b b  b b");
  EXPECT_EQ(AxesPicture("B,C,H,W", "W").substr(0, 31), "b0 c0  a a  b b\nb0 c1  c c  d d");
  EXPECT_EQ(AxesPicture("B,C,H,W", "-"), "");
}

v1::MethodDescription Describe(const std::string& name, const std::string& eps) {
  v1::MethodDescription method;
  method.set_name(name);
  method.set_title("SomeNorm");
  method.set_formula("y = x / (" + std::string(90, 'n') + "); where n is long");
  method.set_axes_bchw("H,W");
  method.set_axes_bld("L");
  method.set_axes_bc("C");
  method.set_default_eps(1e-5);
  method.set_default_eps_mode(v1::EPS_MODE_CLAMP_ROOT);
  const auto add = [&](const std::string& attribute, const std::string& value, const std::string& limits) {
    v1::AttributeDescription& a = *method.add_attributes();
    a.set_name(attribute);
    a.set_default_value(value);
    a.set_limits(limits);
  };
  add("eps", eps, "finite, >= 0");
  add("eps_mode", "CLAMP_ROOT", "a long text that is the same for every method");
  return method;
}

TEST(MethodPage, HasFormulaPictureAttributesAndExample) {
  const std::string page = MethodPage(Describe("layer_norm", "1e-5"), 80);
  for (const char* part : {"SomeNorm (layer_norm)", "  where n is long", "1e-05 clamp_root", "[B,C,H,W]  H,W",
                           "b0 c0  a a  a a", "b0 l0  a b c d", "finite, >= 0", "normctl layer-norm x.npy -o y.npy"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part << "\n" << page;
  }
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(page, '\n'))) {
    EXPECT_LE(DisplayWidth(line), 80u) << line;
  }
}

TEST(AttributesText, SaysEachAttributeOnce) {
  v1::DescribeResponse describe;
  *describe.add_methods() = Describe("a_norm", "1e-5");
  *describe.add_methods() = Describe("b_norm", "1e-5");
  *describe.add_methods() = Describe("c_norm", "1e-6");
  describe.mutable_methods(2)->mutable_attributes()->DeleteSubrange(1, 1);
  const std::string text = AttributesText(describe, 200);
  EXPECT_NE(text.find("1e-5; 1e-6: c_norm"), std::string::npos) << text;
  EXPECT_EQ(text.find("a long text"), text.rfind("a long text")) << text;
  EXPECT_NE(text.find("a_norm, b_norm"), std::string::npos) << text;
}

}  // namespace
}  // namespace normd::client
