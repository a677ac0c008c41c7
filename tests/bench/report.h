// What every suite of the bench prints: what was measured on, tables, and the floors that hold or do not; the same as
// JSON. A figure with a floor is a ratio against a named opponent of the same run.
// Threads: one.
#ifndef NORMD_TESTS_BENCH_REPORT_H_
#define NORMD_TESTS_BENCH_REPORT_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace normd::bench {

struct Figure {
  std::string name;  // "sqlite power C=256 n=64"
  double value = 0;
  std::string unit;
  std::optional<double> floor = {};    // the least that `value` may be
  std::optional<double> ceiling = {};  // the most; counted and printed with the floors
};

class Report {
 public:
  explicit Report(std::string suite) : suite_(std::move(suite)) {}

  // A line about the run: machine, versions, settings.
  void Note(std::string_view name, std::string_view value);
  // Begins a table, or goes on with it. The first column is the name.
  void Table(std::string_view title, const std::vector<std::string>& columns);
  void Row(const std::vector<std::string>& cells);

  void Add(Figure figure);
  // A floor that this run has no figure for, and why.
  void NotMeasured(std::string_view what, std::string_view why);

  // "floors: N met, M short: name 0.83 < 0.90, other 1.30 > 1.10, ..."
  std::string FloorsLine() const;
  // Stats below `ratio` times their floor, or above their ceiling divided by `ratio`. REQUIRES: ratio >= 0.
  int Below(double ratio) const;
  // False when the file cannot be written.
  bool WriteJson(const std::string& path) const;

 private:
  const std::string suite_;
  std::vector<std::pair<std::string, std::string>> notes_;
  std::vector<Figure> stats_;
  std::vector<std::string> not_measured_;
};

// The middle value; the upper one of two. REQUIRES: not empty.
double Median(std::vector<double> values);
// The value that `share` of all are not above. REQUIRES: not empty, 0 <= share <= 1.
double Percentile(std::vector<double> values, double share);

// "12.3k", "1.20M", "123", "0.83": three digits.
std::string Short(double value);
std::string Fixed(double value, int digits);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_REPORT_H_
