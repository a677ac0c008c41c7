#include "server/admin/exposition.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace normd {
namespace {

bool Meets(const Sample& sample, const std::vector<LabelIs>& conditions) {
  return std::all_of(conditions.begin(), conditions.end(),
                     [&sample](const LabelIs& is) { return sample.Label(is.first) == is.second; });
}

// Reads the quoted value that `rest` begins with, and takes it off; false if there is none.
bool TakeQuoted(absl::string_view& rest, std::string& value) {
  if (!absl::ConsumePrefix(&rest, "\"")) return false;
  while (!rest.empty() && rest[0] != '"') {
    const bool escaped = rest[0] == '\\' && rest.size() > 1;
    const char c = escaped ? rest[1] : rest[0];
    value += escaped && c == 'n' ? '\n' : c;
    rest.remove_prefix(escaped ? 2 : 1);
  }
  return absl::ConsumePrefix(&rest, "\"");
}

// Reads label="value",...} and takes it off.
bool TakeLabels(absl::string_view& rest, Sample& sample) {
  while (!absl::ConsumePrefix(&rest, "}")) {
    const size_t equals = rest.find('=');
    if (equals == absl::string_view::npos) return false;
    auto& [name, value] = sample.labels.emplace_back(std::string(rest.substr(0, equals)), "");
    rest.remove_prefix(equals + 1);
    if (!TakeQuoted(rest, value)) return false;
    absl::ConsumePrefix(&rest, ",");
  }
  return true;
}

std::optional<Sample> ParseLine(absl::string_view line) {
  const size_t name_end = line.find_first_of("{ ");
  if (line.empty() || line[0] == '#' || name_end == absl::string_view::npos) return std::nullopt;
  Sample sample{.name = std::string(line.substr(0, name_end))};
  absl::string_view rest = line.substr(name_end);
  if (absl::ConsumePrefix(&rest, "{") && !TakeLabels(rest, sample)) return std::nullopt;
  absl::ConsumePrefix(&rest, " ");
  if (!absl::SimpleAtod(rest.substr(0, rest.find(' ')), &sample.value)) return std::nullopt;
  return sample;
}

}  // namespace

std::string_view Sample::Label(std::string_view label) const {
  for (const auto& [candidate, text] : labels) {
    if (candidate == label) return text;
  }
  return "";
}

Exposition::Exposition(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::optional<Sample> sample = ParseLine(absl::string_view(text.data(), end));
    if (sample.has_value()) samples_.push_back(*std::move(sample));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

std::vector<const Sample*> Exposition::Find(std::string_view name, const std::vector<LabelIs>& conditions) const {
  std::vector<const Sample*> found;
  for (const Sample& sample : samples_) {
    if (sample.name == name && Meets(sample, conditions)) found.push_back(&sample);
  }
  return found;
}

std::optional<double> Exposition::Sum(std::string_view name, const std::vector<LabelIs>& conditions) const {
  const std::vector<const Sample*> found = Find(name, conditions);
  if (found.empty()) return std::nullopt;
  double sum = 0;
  for (const Sample* sample : found) sum += sample->value;
  return sum;
}

std::vector<std::string> Exposition::LabelValues(std::string_view name, std::string_view label) const {
  std::vector<std::string> values;
  for (const Sample* sample : Find(name)) {
    std::string value(sample->Label(label));
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(std::move(value));
  }
  return values;
}

std::optional<double> Exposition::Quantile(std::string_view name, double q,
                                           const std::vector<LabelIs>& conditions) const {
  std::map<double, double> buckets;  // by their upper bounds; counts are cumulative
  for (const Sample* sample : Find(std::string(name) + "_bucket", conditions)) {
    double bound = INFINITY;
    if (absl::SimpleAtod(absl::string_view(sample->Label("le").data(), sample->Label("le").size()), &bound)) {
      buckets[bound] += sample->value;
    }
  }
  if (buckets.empty() || buckets.rbegin()->second <= 0) return std::nullopt;
  const double rank = q * buckets.rbegin()->second;
  double low = 0, below = 0;
  for (const auto& [bound, count] : buckets) {
    if (std::isinf(bound)) break;
    if (count >= rank && count > below) return low + (bound - low) * (rank - below) / (count - below);
    low = bound;
    below = count;
  }
  return low;
}

}  // namespace normd
