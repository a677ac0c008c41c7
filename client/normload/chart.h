// Line charts as SVG text, for pages that load nothing: x is linear from 0, y is linear from 0 or logarithmic. Colours
// are classes and variables of the page that contains the chart. Pure functions.
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
  std::string color;  // a CSS colour
  // x rises. On a logarithmic axis, points that are not above 0 are left out.
  std::vector<std::pair<double, double>> points;
};

// A line across the chart, with its label.
struct Guide {
  double at;
  std::string text;
};

struct Chart {
  std::string title;  // screen readers read it, too
  std::string x_label, y_label;
  bool log_y = false;
  std::vector<Series> series;
  std::optional<Guide> horizontal;            // at a value of y
  std::optional<Guide> vertical;              // at a value of x
  std::function<std::string(double)> y_text;  // the label of a tick
  std::function<std::string(double)> x_text;  // the label of a tick; an empty one: no tick
};

// Replaces & < > " ' by entities, for text and attributes of SVG and HTML.
std::string EscapeHtml(absl::string_view text);

// Without title and legend, which the page has in its own text.
std::string RenderSvg(const Chart& chart);

// Round numbers from 0 to at least `high`, 4 to 10 of them. REQUIRES: high > 0.
std::vector<double> LinearTicks(double high);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_CHART_H_
