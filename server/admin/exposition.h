// The text of /metrics, read back: samples by name and label, and quantiles of its histograms. The status page shows
// what it finds there, so it has no list of its own of what is measured.
// In the path: beside it; status_report.cc makes tables of samples.
// Threads: an Exposition is immutable.
#ifndef NORMD_SERVER_ADMIN_EXPOSITION_H_
#define NORMD_SERVER_ADMIN_EXPOSITION_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace normd {

// One line: name{label="value",...} value
struct Sample {
  std::string name;
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;

  // The value of a label, or "".
  std::string_view Label(std::string_view label) const;
};

// A condition on samples: the label has this value.
using LabelIs = std::pair<std::string_view, std::string_view>;

class Exposition {
 public:
  // Reads Prometheus's text format. Lines that do not have its form are left out.
  explicit Exposition(std::string_view text);

  // All samples of a metric, in the order of the text.
  std::vector<const Sample*> Find(std::string_view name, const std::vector<LabelIs>& conditions = {}) const;
  // The sum of those samples; nullopt where there are none.
  std::optional<double> Sum(std::string_view name, const std::vector<LabelIs>& conditions = {}) const;
  // The values that a label of the metric has, each once, in the order of the text.
  std::vector<std::string> LabelValues(std::string_view name, std::string_view label) const;
  // The quantile `q` (0 to 1) of the histogram `name`, over all of its series that meet the conditions: interpolated
  // within its bucket, and the last finite bound beyond that. nullopt where nothing was observed.
  std::optional<double> Quantile(std::string_view name, double q, const std::vector<LabelIs>& conditions = {}) const;

 private:
  std::vector<Sample> samples_;
};

}  // namespace normd

#endif  // NORMD_SERVER_ADMIN_EXPOSITION_H_
