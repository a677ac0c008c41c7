// The report of normload in three forms: a table for people, JSON for programs, and one HTML page that draws charts of
// the JSON. All forms are pure functions of the same values.
#ifndef NORMD_CLIENT_NORMLOAD_REPORT_H_
#define NORMD_CLIENT_NORMLOAD_REPORT_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/normload/options.h"
#include "client/normload/run_info.h"
#include "client/normload/summary.h"
#include "client/normload/sweep.h"

namespace normd::client {

struct Report {
  RunInfo about;
  NormloadOptions options;
  std::vector<RunSummary> runs;      // one for each repeat; empty for a sweep
  std::optional<SweepResult> sweep;  // set for a sweep
  std::string interrupted;           // the signal that ended the measurement, "SIGINT", or empty
};

// At most `width` characters a line if possible.
std::string ReportText(const Report& report, int width);
// The values of the median run at the top level, and all repeats below "runs"; for a sweep "capacity", "points" and
// "knee".
nlohmann::json ReportJson(const Report& report);
// A self-contained page: report_page.html with the JSON inside. It loads nothing from elsewhere.
std::string ReportHtml(const Report& report);
// report_page.html, compiled in (see embed.cmake), with "{{report}}" in place of the JSON.
absl::string_view ReportPageTemplate();

// Parts that several forms share.

nlohmann::json RunJson(const RunSummary& run);

// "layer-norm 256x768 f32 unary at 127.0.0.1:8001", what a report is about.
std::string TitleOf(const Report& report);
// "12.3%", or "unknown".
std::string ShareText(std::optional<double> share);
// The setup as pairs of name and value in words: entries, rate, seed, durations, repeats, ...
std::vector<std::pair<std::string, std::string>> SetupLines(const Report& report);
// The machine and the programs that measured, as pairs of name and value.
std::vector<std::pair<std::string, std::string>> AboutLines(const Report& report);
// "knee: 90 % of capacity, 1234.5 calls/s: the last load whose p99 is within 10ms", or that there is no knee, or why.
std::string KneeText(const Report& report);
// "1.24ms": as a flag takes it, and without a space, at which a narrow table would break the line.
std::string CompactTime(double nanoseconds);
// What the mark behind a percentile means, or empty if no percentile has it.
std::string FewCallsText(const Report& report);
// Reasons to doubt the numbers, one sentence each: noise, an unknown server process, a late generator, a sweep that was
// cut short.
std::vector<std::string> Warnings(const Report& report);

// A table as cells, which the text and the HTML page both print. The first row holds the headers.
struct Grid {
  std::string title;
  std::vector<std::vector<std::string>> rows;
  size_t left_columns = 1;  // these are aligned left; the others are numbers
};
// `every_entry`: for a sweep over a mix, also show the entries at each load.
std::vector<Grid> ReportGrids(const Report& report, bool every_entry);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_REPORT_H_
