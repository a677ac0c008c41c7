#include "client/normctl/method_page.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/normctl/method_notes.h"

namespace normd::client {
namespace {

// One axis of a picture. With g = 2 groups an axis of 4 falls into halves.
struct Axis {
  std::string name;  // "b"
  int size;
  enum { kKept, kReduced, kGrouped, kFirst } is = kKept;
};

constexpr int kGroups = 2, kFirstElements = 2;

// Marks the axes that `axes` names: "B,H,W", "C/G,H,W", "first k of W", "listed, W by default", "none: ...".
void MarkAxes(absl::string_view axes, std::vector<Axis>& out) {
  for (absl::string_view word : absl::StrSplit(axes, ',')) {
    word = absl::StripAsciiWhitespace(word);
    const bool first = absl::ConsumePrefix(&word, "first k of ");
    const bool grouped = absl::ConsumeSuffix(&word, "/G");
    absl::ConsumeSuffix(&word, " by default");
    for (Axis& axis : out) {
      if (absl::AsciiStrToUpper(axis.name) != word) continue;
      axis.is = first ? Axis::kFirst : grouped ? Axis::kGrouped : Axis::kReduced;
    }
  }
}

std::vector<Axis> AxesOf(absl::string_view shape) {
  std::vector<Axis> out;
  for (const absl::string_view name : absl::StrSplit(shape, ',')) {
    const bool wide = name == "C" || name == "D";
    out.push_back({absl::AsciiStrToLower(name), wide ? 4 : 2});
  }
  return out;
}

// The letters of the elements, in row-major order.
std::vector<std::string> Letters(const std::vector<Axis>& axes) {
  int64_t elements = 1;
  for (const Axis& axis : axes) elements *= axis.size;
  std::map<std::vector<int64_t>, size_t> groups;
  std::vector<std::string> out;
  for (int64_t flat = 0; flat < elements; ++flat) {
    std::vector<int64_t> group;
    bool capital = false;
    int64_t rest = flat;
    for (size_t i = axes.size(); i-- > 0; rest /= axes[i].size) {
      const int64_t at = rest % axes[i].size;
      capital = capital || (axes[i].is == Axis::kFirst && at < kFirstElements);
      if (axes[i].is == Axis::kKept) group.push_back(at);
      if (axes[i].is == Axis::kGrouped) group.push_back(at / (axes[i].size / kGroups));
    }
    const size_t number = groups.emplace(group, groups.size()).first->second;
    out.emplace_back(1, static_cast<char>((capital ? 'A' : 'a') + number));
  }
  return out;
}

// Puts blocks of lines beside each other.
std::string Beside(const std::vector<std::string>& blocks) {
  std::vector<std::vector<std::string>> lines;
  size_t height = 0;
  for (const std::string& block : blocks) {
    lines.push_back(absl::StrSplit(block, '\n'));
    height = std::max(height, lines.back().size());
  }
  std::string out;
  for (size_t row = 0; row < height; ++row) {
    std::string text;
    for (std::vector<std::string>& block : lines) {
      size_t width = 0;
      for (const std::string& line : block) width = std::max(width, line.size());
      std::string cell = row < block.size() ? block[row] : "";
      cell.resize(width, ' ');
      absl::StrAppend(&text, "    ", cell);
    }
    absl::StrAppend(&out, absl::StripTrailingAsciiWhitespace(text), "\n");
  }
  return out;
}

std::string PicturesText(const v1::MethodDescription& method) {
  std::vector<std::string> blocks;
  std::string out;
  for (const auto& [shape, axes] : {std::pair("B,C,H,W", method.axes_bchw()), std::pair("B,L,D", method.axes_bld()),
                                    std::pair("B,C", method.axes_bc())}) {
    absl::StrAppend(&out, "  [", shape, "]  ", std::string(7 - std::string(shape).size(), ' '), axes, "\n");
    std::string picture = AxesPicture(shape, axes);
    if (!picture.empty()) blocks.push_back(absl::StrCat("[", shape, "]\n", picture));
  }
  return absl::StrCat(out, "\nEqual letters share their statistics",
                      absl::StrContains(method.axes_bc(), "first k") ? ", which are those of the capitals (k = 2)"
                      : absl::StrContains(method.axes_bchw(), "/G")  ? " (G = 2)"
                                                                     : "",
                      ":\n\n", Beside(blocks));
}

std::string AttributesOf(const v1::MethodDescription& method, int width) {
  Table table({{"attribute"}, {"type"}, {"default"}, {"limits"}});
  for (const v1::AttributeDescription& attribute : method.attributes()) {
    table.AddRow({attribute.name(), attribute.type(), attribute.default_value(), attribute.limits()});
  }
  return table.Render(width);
}

// An attribute that several methods have, with the same type and limits.
struct SharedAttribute {
  const v1::AttributeDescription* attribute;
  std::vector<std::string> methods;
  std::vector<std::pair<std::string, std::vector<std::string>>> defaults;  // with the methods that have them
};

std::vector<SharedAttribute> ShareAttributes(const v1::DescribeResponse& describe) {
  std::vector<SharedAttribute> out;
  for (const v1::MethodDescription& method : describe.methods()) {
    for (const v1::AttributeDescription& a : method.attributes()) {
      auto it = std::find_if(out.begin(), out.end(), [&](const SharedAttribute& s) {
        return s.attribute->name() == a.name() && s.attribute->type() == a.type() &&
               s.attribute->limits() == a.limits();
      });
      if (it == out.end()) it = out.insert(out.end(), {&a, {}, {}});
      it->methods.push_back(method.name());
      auto of = std::find_if(it->defaults.begin(), it->defaults.end(),
                             [&](const auto& entry) { return entry.first == a.default_value(); });
      if (of == it->defaults.end()) of = it->defaults.insert(of, {a.default_value(), {}});
      of->second.push_back(method.name());
    }
  }
  return out;
}

// "1e-5; 1e-6: rms_norm, p_rms_norm": the most frequent default first.
std::string DefaultsText(SharedAttribute shared) {
  std::stable_sort(shared.defaults.begin(), shared.defaults.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::string out = shared.defaults[0].first;
  for (size_t i = 1; i < shared.defaults.size(); ++i) {
    absl::StrAppend(&out, "; ", shared.defaults[i].first, ": ", absl::StrJoin(shared.defaults[i].second, ", "));
  }
  return out;
}

// "layer_norm, rms_norm", "all", or "all but lp_norm" where most methods are among `methods`.
std::string MethodsText(const v1::DescribeResponse& describe, const std::vector<std::string>& methods) {
  std::vector<std::string> others;
  for (const v1::MethodDescription& method : describe.methods()) {
    if (std::find(methods.begin(), methods.end(), method.name()) == methods.end()) others.push_back(method.name());
  }
  if (others.empty()) return "all";
  return others.size() < methods.size() / 2 ? absl::StrCat("all but ", absl::StrJoin(others, ", "))
                                            : absl::StrJoin(methods, ", ");
}

}  // namespace

std::string AxesPicture(absl::string_view shape, absl::string_view axes) {
  if (axes == "-") return "";
  std::vector<Axis> all = AxesOf(shape);
  MarkAxes(axes, all);
  const std::vector<std::string> letters = Letters(all);
  const size_t row_axes = std::min<size_t>(2, all.size() - 1);
  std::string out;
  size_t next = 0;
  for (int i = 0; i < all[0].size; ++i) {
    for (int j = 0; j < (row_axes == 2 ? all[1].size : 1); ++j) {
      absl::StrAppend(&out, out.empty() ? "" : "\n", all[0].name, i);
      if (row_axes == 2) absl::StrAppend(&out, " ", all[1].name, j);
      const size_t columns = letters.size() / static_cast<size_t>(all[0].size * (row_axes == 2 ? all[1].size : 1));
      const auto block = static_cast<size_t>(all.back().size);
      for (size_t k = 0; k < columns; ++k) absl::StrAppend(&out, k % block == 0 ? "  " : " ", letters[next++]);
    }
  }
  return out;
}

std::string MethodPage(const v1::MethodDescription& method, int width) {
  const auto columns = static_cast<size_t>(std::max(width, 40));
  std::string out = absl::StrCat(method.title(), " (", method.name(), ")\n\n");
  if (!method.formula().empty()) absl::StrAppend(&out, FormulaText(method.formula(), columns), "\n\n");
  Table facts({{"property"}, {"value"}});
  const auto fact = [&](absl::string_view name, absl::string_view value) {
    facts.AddRow({std::string(name), std::string(value)});
  };
  fact("eps", absl::StrCat(ShortestText(method.default_eps()), " ",
                           EnumText(*v1::EpsMode_descriptor(), method.default_eps_mode()), ", unless given"));
  fact("divides by", method.divides_by());
  fact("subtracts the mean", method.subtracts_mean() ? "yes" : "no");
  fact("parameters", method.parameters());
  fact("depends on the batch", method.depends_on_batch() ? "yes, in training" : "no");
  fact("training = inference", method.training_equals_inference() ? "yes" : "no");
  fact("used by", method.used_by());
  fact("when to choose", method.when_to_choose());
  absl::StrAppend(&out, facts.Render(width), "\nAxes of the statistics:\n\n", PicturesText(method), "\n",
                  AttributesOf(method, width));
  if (const MethodInfo* const known = FindMethod(method.name())) {
    absl::StrAppend(&out, "\nExample:\n\n  ", ExampleOf(*known), "\n");
  }
  return out;
}

std::string AttributesText(const v1::DescribeResponse& describe, int width) {
  Table table({{"attribute"}, {"type"}, {"default"}, {"limits"}, {"methods"}});
  for (const SharedAttribute& shared : ShareAttributes(describe)) {
    table.AddRow({shared.attribute->name(), shared.attribute->type(), DefaultsText(shared), shared.attribute->limits(),
                  MethodsText(describe, shared.methods)});
  }
  table.set_row_lines(true);
  return table.Render(width);
}

}  // namespace normd::client
