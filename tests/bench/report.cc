#include "tests/bench/report.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_format.h"
#include "kernels/base/strings.h"
#include "nlohmann/json.hpp"
#include "tests/bench/comparison.h"
#include "tests/bench/reached.h"

namespace normd::bench {

namespace {

std::string CellText(double value, int decimals) {
  if (decimals != Cell::kThreeDigits) return absl::StrFormat("%.*f", decimals, value);
  const double scale = value >= 999.5e3 ? 1e6 : value >= 999.5 ? 1e3 : 1;
  const double scaled = value / scale;
  const int shown = scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f%s", shown, scaled, scale == 1e6 ? "M" : scale == 1e3 ? "k" : "");
}

// "name 0.83 < 0.90"
std::string MissText(const std::string& name, const Cell& cell) {
  const bool low = cell.floor.has_value() && *cell.value < *cell.floor;
  return absl::StrFormat("%s %.2f %s %.2f", name, *cell.value, low ? "<" : ">", low ? *cell.floor : *cell.ceiling);
}

}  // namespace

bool Cell::Holds() const {
  return (!floor.has_value() || *value >= *floor) && (!ceiling.has_value() || *value <= *ceiling);
}

Cell Cell::LimitedTo(double reached) const {
  Cell limited = *this;
  if (floor.has_value()) limited.floor = std::min(*floor, reached);
  if (ceiling.has_value()) limited.ceiling = std::max(*ceiling, reached);
  return limited;
}

Cell Cell::Relaxed(double share) const {
  Cell relaxed = *this;
  if (floor.has_value()) relaxed.floor = share * *floor;
  if (ceiling.has_value()) relaxed.ceiling = *ceiling / share;
  return relaxed;
}

std::string Cell::Text() const {
  if (!value.has_value()) return "-";
  std::string text = CellText(*value, decimals);
  if (has_limit()) {
    text += Concat(" (", CellText(floor.has_value() ? *floor : *ceiling, decimals), ")");
  }
  return text;
}

void Report::Note(const std::string& name, const std::string& value) {
  notes_.emplace_back(name, value);
  std::printf("%s: %s\n", name.c_str(), value.c_str());
  std::fflush(stdout);
}

void Report::Table(const std::string& title, std::vector<std::string> columns) {
  columns_ = std::move(columns);
  head_ = absl::StrFormat("\n%s\n%-32s", title, "");
  for (const std::string& column : columns_) head_ += absl::StrFormat(" %12s", column);
  head_ += "\n";
}

void Report::Row(const std::string& name, const std::vector<Cell>& cells) {
  absl::PrintF("%s%-32s", std::exchange(head_, ""), name);
  for (size_t i = 0; i < cells.size(); ++i) {
    absl::PrintF(" %12s", cells[i].Text());
    if (cells[i].value.has_value()) figures_.emplace_back(Concat(name, ", ", columns_[i]), cells[i]);
  }
  absl::PrintF("\n");
  // A run takes minutes: every row is shown as it comes.
  std::fflush(stdout);
}

void Report::NotMeasured(const std::string& what, const std::string& why) {
  not_measured_.push_back(what);
  Note("not measured", Concat(what, ": ", why));
}

std::string Report::FloorsLine() const {
  int met = 0;
  int missed = 0;
  std::string names;
  for (const auto& [name, cell] : figures_) {
    if (!cell.has_limit()) continue;
    const bool holds = cell.Holds();
    ++(holds ? met : missed);
    if (!holds) names += Concat(names.empty() ? ": " : ", ", MissText(name, cell));
  }
  std::string line = Concat("floors: ", met, " met, ", missed, " short", names);
  for (const std::string& what : not_measured_) line += "; not measured: " + what;
  return line;
}

int Report::FloorCount() const {
  return static_cast<int>(
      std::count_if(figures_.begin(), figures_.end(), [](const auto& figure) { return figure.second.has_limit(); }));
}

std::map<std::string, std::string> Report::Below(double share, const Reached* reached) const {
  std::map<std::string, std::string> below;
  for (const auto& [name, figure] : figures_) {
    if (!figure.has_limit()) continue;
    const std::optional<double> value = reached == nullptr ? std::nullopt : reached->Of(name);
    if (reached != nullptr && !value.has_value()) continue;
    const Cell cell = (value.has_value() ? figure.LimitedTo(*value) : figure).Relaxed(share);
    if (!cell.Holds()) below[WithoutParentheses(name)] = MissText(name, cell);
  }
  return below;
}

std::string Report::NoteOf(const std::string& name) const {
  for (auto note = notes_.rbegin(); note != notes_.rend(); ++note) {
    if (note->first == name) return note->second;
  }
  return "";
}

bool Report::WriteJson(const std::string& path) const {
  nlohmann::json figures = nlohmann::json::array();
  for (const auto& [name, cell] : figures_) {
    figures.push_back({{"name", name}, {"value", *cell.value}});
    if (cell.floor.has_value()) figures.back()["floor"] = *cell.floor;
    if (cell.ceiling.has_value()) figures.back()["ceiling"] = *cell.ceiling;
  }
  nlohmann::json notes = nlohmann::json::object();
  for (const auto& [name, value] : notes_) notes[name] = value;
  const nlohmann::json all = {
      {"suite", suite_}, {"notes", notes}, {"figures", figures}, {"not_measured", not_measured_}};
  std::ofstream file(path);
  file << all.dump(2) << "\n";
  return file.flush().good();
}

void Worst::Take(std::optional<double> ratio, const std::string& name) {
  expected_ = true;
  if (ratio.has_value()) ratios_.emplace_back(*ratio, name);
}

void Worst::AddTo(Report* report, const std::string& what, double floor) const {
  Add(report, what, floor, std::nullopt);
}
void Worst::AddMedianTo(Report* report, const std::string& what, double floor) const {
  Add(report, what, std::nullopt, floor);
}

void Worst::Add(Report* report, const std::string& what, std::optional<double> floor,
                std::optional<double> median_floor) const {
  if (!expected_) return;
  if (ratios_.empty()) return report->NotMeasured(what, "no opponent has it");
  const auto& [least, name] = *std::min_element(ratios_.begin(), ratios_.end());
  std::vector<double> values;
  for (const auto& ratio : ratios_) values.push_back(ratio.first);
  report->Row(Concat(what, " (", name, ")"), {Ratio(least, floor), Ratio(Median(std::move(values)), median_floor)});
}

}  // namespace normd::bench
