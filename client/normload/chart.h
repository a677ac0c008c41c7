// Line charts as SVG text, for pages that load nothing: x linear from 0, y linear from 0 or logarithmic. Colours are
// classes and variables of the page that a chart is put into. Pure functions.
#ifndef NORMD_CLIENT_NORMLOAD_CHART_H_
#define NORMD_CLIENT_NORMLOAD_CHART_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace normd::client {

struct Series {
  std::string name;
  std::string color;                              // of CSS
  std::vector<std::pair<double, double>> points;  // x rises; on a log axis points not above 0 are left out
};

// A line across the chart, and what it says.
struct Guide {
  double at;
  std::string text;
};

struct Chart {
  std::string title;  // for readers of the text, too
  std::string x_label, y_label;
  bool log_y = false;
  std::vector<Series> series;
  std::optional<Guide> horizontal;            // at a y
  std::optional<Guide> vertical;              // at an x
  std::function<std::string(double)> y_text;  // a tick's label
};

// & < > " ' as entities, for text and attributes of SVG and HTML.
std::string EscapeHtml(absl::string_view text);

std::string RenderSvg(const Chart& chart);

// Round numbers from 0 up to at least `high`, 4 to 10 of them. REQUIRES: high > 0.
std::vector<double> LinearTicks(double high);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_CHART_H_
