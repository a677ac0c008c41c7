#include "client/normload/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace normd::client {
namespace {

constexpr double kWidth = 760, kHeight = 380;
constexpr double kLeft = 76, kRight = 36, kTop = 18, kBottom = 58;

// Maps values of a chart to positions on paper.
class Scale {
 public:
  explicit Scale(const Chart& chart) : log_y_(chart.log_y) {
    double x_high = chart.vertical.has_value() ? chart.vertical->at : 0, y_high = 0;
    double y_low = std::numeric_limits<double>::infinity();
    const auto include = [&](double y) {
      if (log_y_ && y <= 0) return;
      y_high = std::max(y_high, y);
      y_low = std::min(y_low, y);
    };
    for (const Series& series : chart.series) {
      for (const auto& [x, y] : series.points) {
        x_high = std::max(x_high, x);
        include(y);
      }
    }
    if (chart.horizontal.has_value()) include(chart.horizontal->at);
    x_ticks = LinearTicks(x_high > 0 ? x_high : 1);
    y_ticks = log_y_ ? LogTicks(y_low, y_high) : LinearTicks(y_high > 0 ? y_high : 1);
  }

  double X(double value) const { return kLeft + value / x_ticks.back() * (kWidth - kLeft - kRight); }
  double Y(double value) const {
    const double low = y_ticks.front(), high = y_ticks.back();
    const double part = log_y_ ? std::log(std::max(value, low) / low) / std::log(high / low) : value / high;
    return kHeight - kBottom - part * (kHeight - kTop - kBottom);
  }
  bool Shows(double y) const { return !log_y_ || y > 0; }

  std::vector<double> x_ticks, y_ticks;

 private:
  // 1, 2 and 5 of each decade for up to four decades, otherwise the decades alone.
  static std::vector<double> LogTicks(double low, double high) {
    if (!(low <= high)) return {1, 10};
    const int first = static_cast<int>(std::floor(std::log10(low)));
    const int last = std::max(first + 1, static_cast<int>(std::ceil(std::log10(high))));
    std::vector<double> out;
    for (int decade = first; decade < last; ++decade) {
      const double unit = std::pow(10.0, decade);
      out.push_back(unit);
      if (last - first <= 4) out.insert(out.end(), {2 * unit, 5 * unit});
    }
    out.push_back(std::pow(10.0, last));
    return out;
  }

  const bool log_y_;
};

std::string Line(const char* css, double x1, double y1, double x2, double y2) {
  return absl::StrFormat("<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", css, x1, y1, x2, y2);
}

std::string Text(const char* anchor, double x, double y, absl::string_view text) {
  return absl::StrFormat("<text text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", anchor, x, y, EscapeHtml(text));
}

std::string XText(const Chart& chart, double x) { return chart.x_text ? chart.x_text(x) : absl::StrFormat("%g", x); }

std::string Axes(const Chart& chart, const Scale& scale) {
  std::string out;
  for (double tick : scale.y_ticks) {
    out += Line("grid", kLeft, scale.Y(tick), kWidth - kRight, scale.Y(tick));
    out += Text("end", kLeft - 8, scale.Y(tick) + 4, chart.y_text ? chart.y_text(tick) : absl::StrFormat("%g", tick));
  }
  for (double tick : scale.x_ticks) {
    const std::string label = XText(chart, tick);
    if (label.empty()) continue;
    out += Line("grid", scale.X(tick), kTop, scale.X(tick), kHeight - kBottom);
    out += Text("middle", scale.X(tick), kHeight - kBottom + 23, label);
  }
  out += Text("middle", (kLeft + kWidth - kRight) / 2, kHeight - 8, chart.x_label);
  out += absl::StrFormat(
      "<text class=\"y-label\" text-anchor=\"middle\" transform=\"translate(14 %.1f) rotate(-90)\">%s</text>\n",
      (kTop + kHeight - kBottom) / 2, EscapeHtml(chart.y_label));
  return out;
}

std::string Guides(const Chart& chart, const Scale& scale) {
  std::string out;
  if (chart.horizontal.has_value() && scale.Shows(chart.horizontal->at)) {
    const double y = scale.Y(chart.horizontal->at);
    absl::StrAppend(&out, Line("guide", kLeft, y, kWidth - kRight, y),
                    Text("start", kLeft + 6, y - 5, chart.horizontal->text));
  }
  if (chart.vertical.has_value()) {
    const double x = scale.X(chart.vertical->at);
    const bool right_half = x > kWidth / 2;
    absl::StrAppend(&out, Line("guide", x, kTop, x, kHeight - kBottom),
                    Text(right_half ? "end" : "start", right_half ? x - 6 : x + 6, kTop + 12, chart.vertical->text));
  }
  return out;
}

std::string Curve(const Chart& chart, const Series& series, const Scale& scale) {
  std::vector<std::string> corners;
  std::string dots;
  for (const auto& [x, y] : series.points) {
    if (!scale.Shows(y)) continue;
    corners.push_back(absl::StrFormat("%.1f,%.1f", scale.X(x), scale.Y(y)));
    const std::string value = chart.y_text ? chart.y_text(y) : absl::StrFormat("%g", y);
    absl::StrAppendFormat(
        &dots, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"><title>%s: %s at %.6g</title></circle>\n",
        scale.X(x), scale.Y(y), series.color, EscapeHtml(series.name), EscapeHtml(value), x);
  }
  return absl::StrCat("<polyline fill=\"none\" stroke=\"", series.color, "\" stroke-width=\"2\" points=\"",
                      absl::StrJoin(corners, " "), "\"/>\n", dots);
}

}  // namespace

std::string EscapeHtml(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::vector<double> LinearTicks(double high) {
  const double unit = std::pow(10.0, std::floor(std::log10(high)));
  double step = unit / 5;
  for (double factor : {0.5, 1.0}) {
    if (high / step > 8) step = unit * factor;
  }
  std::vector<double> out;
  for (int i = 0; out.empty() || out.back() < high * (1 - 1e-9); ++i) out.push_back(i * step);
  return out;
}

std::string RenderSvg(const Chart& chart) {
  const Scale scale(chart);
  std::string out = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"%s\">\n", kWidth,
      kHeight, EscapeHtml(chart.title));
  absl::StrAppend(&out, Axes(chart, scale), Guides(chart, scale));
  for (const Series& series : chart.series) out += Curve(chart, series, scale);
  return out + "</svg>\n";
}

}  // namespace normd::client
