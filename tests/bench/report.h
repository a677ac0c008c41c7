// What every suite of the bench prints: notes about the run, tables, and the floors that hold or do not. The numbers of
// the tables are kept under the names of their rows and columns, for the floors and for JSON.
// Threads: one.
#ifndef NORMD_TESTS_BENCH_REPORT_H_
#define NORMD_TESTS_BENCH_REPORT_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace normd::bench {

class Reached;

// One number of a table.
struct Cell {
  static constexpr int kThreeDigits = -1;

  std::optional<double> value;    // absent: printed as "-" and not kept
  int decimals = kThreeDigits;    // kThreeDigits: "12.3k", "1.20M", "123", "0.83"
  std::optional<double> floor;    // the least that `value` may be
  std::optional<double> ceiling;  // the most

  bool has_limit() const { return floor.has_value() || ceiling.has_value(); }
  bool Holds() const;  // whether the limits are kept
  // The same figure with limits that are no stricter than `reached`, and with limits relaxed to `share` of them, where
  // 0 allows everything.
  Cell LimitedTo(double reached) const;
  Cell Relaxed(double share) const;
  // "0.71", and with limits "0.71 (0.80)".
  std::string Text() const;
};

inline Cell Amount(std::optional<double> value) { return {.value = value}; }
// Two decimals.
inline Cell Ratio(std::optional<double> value, std::optional<double> floor = {}, std::optional<double> ceiling = {}) {
  return {.value = value, .decimals = 2, .floor = floor, .ceiling = ceiling};
}

class Report {
 public:
  explicit Report(std::string suite) : suite_(std::move(suite)) {}

  // A line about the run: machine, versions, settings.
  void Note(const std::string& name, const std::string& value);
  // Begins a table, which is printed from its first row on. The names of the rows need no column.
  void Table(const std::string& title, std::vector<std::string> columns);
  // Prints a row of the current table and keeps each cell as "NAME, COLUMN". REQUIRES: not more cells than columns.
  void Row(const std::string& name, const std::vector<Cell>& cells);
  // A floor that this run has no figure for, and why.
  void NotMeasured(const std::string& what, const std::string& why);

  // "floors: N met, M short: name 0.83 < 0.90, other 1.30 > 1.10, ..."
  std::string FloorsLine() const;
  // The number of figures that have a floor or a ceiling.
  int FloorCount() const;
  // What FloorsLine() would say of each figure that breaks its limits, relaxed to `share` of them, by its name without
  // what is in parentheses. With `reached`, limits are no stricter than what it says, and figures that it does not know
  // have none. REQUIRES: share >= 0.
  std::map<std::string, std::string> Below(double share, const Reached* reached) const;
  // What Note() was told under this name last; empty: nothing.
  std::string NoteOf(const std::string& name) const;
  // False when the file cannot be written.
  bool WriteJson(const std::string& path) const;

 private:
  const std::string suite_;
  std::string head_;  // of the current table, until it is printed
  std::vector<std::string> columns_;
  std::vector<std::pair<std::string, std::string>> notes_;
  std::vector<std::pair<std::string, Cell>> figures_;
  std::vector<std::string> not_measured_;
};

// The least of many ratios, where one limit is stated for all of them.
class Worst {
 public:
  void Take(std::optional<double> ratio, const std::string& name);
  // A row of two cells, the least ratio and the median, called `what` and the name of the least. Says so where ratios
  // were taken but none had a value.
  void AddTo(Report* report, const std::string& what, double floor) const;
  // The same where the floor is that of the median.
  void AddMedianTo(Report* report, const std::string& what, double floor) const;

 private:
  void Add(Report* report, const std::string& what, std::optional<double> floor,
           std::optional<double> median_floor) const;

  bool expected_ = false;
  std::vector<std::pair<double, std::string>> ratios_;
};

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_REPORT_H_
