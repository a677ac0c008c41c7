// What normload hands out: one report, as a table for people, as JSON for programs, and as one HTML page with figures.
// All three are pure functions of the same values.
#ifndef NORMD_CLIENT_NORMLOAD_REPORT_H_
#define NORMD_CLIENT_NORMLOAD_REPORT_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/normload/options.h"
#include "client/normload/run_info.h"
#include "client/normload/summary.h"
#include "client/normload/sweep.h"

namespace normd::client {

struct Report {
  RunInfo about;
  NormloadOptions options;
  std::vector<RunSummary> runs;      // one for each repeat; of a sweep empty
  std::optional<SweepResult> sweep;  // set instead
};

// At most `width` characters a line where that can be.
std::string ReportText(const Report& report, int width);
// The median run's values at the top level, all repeats below "runs"; of a sweep "capacity", "points" and "knee".
nlohmann::json ReportJson(const Report& report);
// Self-contained: styles and figures inside, nothing loaded from elsewhere.
std::string ReportHtml(const Report& report);

// Parts that the forms share.

// "12.3%", "unknown".
std::string ShareText(std::optional<double> share);
// What was asked for, as pairs of a name and a value in words: entries, rate, seed, durations, repeats, ...
std::vector<std::pair<std::string, std::string>> SetupLines(const Report& report);
// Who measured, as the same.
std::vector<std::pair<std::string, std::string>> AboutLines(const Report& report);
// "knee: 90 % of capacity, 1234.5 calls/s: the last load whose p99 is within 10ms", or that there is none, or why.
std::string KneeText(const Report& report);
// What makes numbers doubtful, a sentence each: noise, an unknown server process, a late generator, a sweep cut short.
std::vector<std::string> Warnings(const Report& report);

// A table as cells, the first row its headers: what the text and the page print alike.
struct Grid {
  std::string title;
  std::vector<std::vector<std::string>> rows;
  size_t left_columns = 1;  // aligned left; the others are numbers
};
// `every_entry`: of a sweep over a mix, the entries at each load, too.
std::vector<Grid> ReportGrids(const Report& report, bool every_entry);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_REPORT_H_
