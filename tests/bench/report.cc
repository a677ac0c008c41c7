#include "tests/bench/report.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "nlohmann/json.hpp"

namespace normd::bench {

namespace {

constexpr int kNameWidth = 32;
constexpr int kCellWidth = 10;

bool Holds(const Figure& figure, double ratio) {
  // Not as a quotient: a ratio of 0 allows everything.
  return (!figure.floor.has_value() || figure.value >= ratio * *figure.floor) &&
         (!figure.ceiling.has_value() || figure.value * ratio <= *figure.ceiling);
}

// "name 0.83 < 0.90"
std::string MissText(const Figure& figure) {
  const bool low = figure.floor.has_value() && figure.value < *figure.floor;
  return figure.name + " " + Fixed(figure.value, 2) + (low ? " < " : " > ") +
         Fixed(low ? *figure.floor : *figure.ceiling, 2);
}

}  // namespace

void Report::Note(std::string_view name, std::string_view value) {
  notes_.emplace_back(name, value);
  std::printf("%s: %s\n", notes_.back().first.c_str(), notes_.back().second.c_str());
  std::fflush(stdout);
}

void Report::Table(std::string_view title, const std::vector<std::string>& columns) {
  std::printf("\n%s\n", std::string(title).c_str());
  Row(columns);
}

void Report::Row(const std::vector<std::string>& cells) {
  std::printf("%-*s", kNameWidth, cells.front().c_str());
  for (size_t i = 1; i < cells.size(); ++i) std::printf(" %*s", kCellWidth, cells[i].c_str());
  std::printf("\n");
  // A run takes minutes: every row is shown as it comes.
  std::fflush(stdout);
}

void Report::Add(Figure figure) { stats_.push_back(std::move(figure)); }

void Report::NotMeasured(std::string_view what, std::string_view why) {
  not_measured_.emplace_back(what);
  Note("not measured", std::string(what) + ": " + std::string(why));
}

std::string Report::FloorsLine() const {
  int met = 0;
  int missed = 0;
  std::string names;
  for (const Figure& figure : stats_) {
    if (!figure.floor.has_value() && !figure.ceiling.has_value()) continue;
    if (Holds(figure, 1)) {
      ++met;
      continue;
    }
    ++missed;
    names += (names.empty() ? ": " : ", ") + MissText(figure);
  }
  std::string line = "floors: " + std::to_string(met) + " met, " + std::to_string(missed) + " short" + names;
  for (const std::string& what : not_measured_) line += "; not measured: " + what;
  return line;
}

int Report::Below(double ratio) const {
  return static_cast<int>(
      std::count_if(stats_.begin(), stats_.end(), [ratio](const Figure& figure) { return !Holds(figure, ratio); }));
}

bool Report::WriteJson(const std::string& path) const {
  nlohmann::json notes = nlohmann::json::object();
  for (const auto& [name, value] : notes_) notes[name] = value;
  nlohmann::json figures = nlohmann::json::array();
  for (const Figure& figure : stats_) {
    nlohmann::json one = {{"name", figure.name}, {"value", figure.value}, {"unit", figure.unit}};
    if (figure.floor.has_value()) one["floor"] = *figure.floor;
    if (figure.ceiling.has_value()) one["ceiling"] = *figure.ceiling;
    figures.push_back(std::move(one));
  }
  const nlohmann::json all = {
      {"suite", suite_}, {"notes", notes}, {"figures", figures}, {"not_measured", not_measured_}};
  std::ofstream file(path);
  file << all.dump(2) << "\n";
  return file.flush().good();
}

double Median(std::vector<double> values) { return Percentile(std::move(values), 0.5); }

double Percentile(std::vector<double> values, double share) {
  const size_t position = std::min(static_cast<size_t>(static_cast<double>(values.size()) * share), values.size() - 1);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(position), values.end());
  return values[position];
}

std::string Fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

std::string Short(double value) {
  const char* suffix = "";
  if (value >= 999.5e3) {
    value /= 1e6;
    suffix = "M";
  } else if (value >= 999.5) {
    value /= 1e3;
    suffix = "k";
  }
  return Fixed(value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2) + suffix;
}

}  // namespace normd::bench
