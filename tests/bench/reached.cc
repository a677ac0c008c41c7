#include "tests/bench/reached.h"

#include <fstream>

#include "absl/status/status.h"
#include "kernels/base/strings.h"
#include "nlohmann/json.hpp"

namespace normd::bench {

absl::StatusOr<Reached> Reached::Load(const std::string& path, const std::string& suite, const std::string& kind) {
  std::ifstream file(path);
  const nlohmann::json all = nlohmann::json::parse(file, nullptr, false);
  if (!all.is_object()) return absl::InvalidArgumentError(Concat(path, ": no JSON object of suites"));
  Reached reached;
  const std::string record = kind.empty() ? suite : Concat(suite, " ", kind);
  if (!all.contains(record)) return reached;
  for (const auto& [name, value] : all.at(record).at("figures").items()) {
    if (!value.is_number()) return absl::InvalidArgumentError(Concat(path, ": ", record, ": ", name, " is no number"));
    reached.figures_[name] = value.get<double>();
  }
  return reached;
}

std::optional<double> Reached::Of(const std::string& figure) const {
  const auto found = figures_.find(WithoutParentheses(figure));
  return found == figures_.end() ? std::nullopt : std::optional(found->second);
}

std::string WithoutParentheses(const std::string& figure) {
  const size_t open = figure.find(" (");
  const size_t close = figure.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return figure;
  return figure.substr(0, open) + figure.substr(close + 1);
}

}  // namespace normd::bench
