// What the status page and /statusz say: the figures of the last seconds, and tables of facts, limits, requests and
// other metrics. All of it is made here, so that it can be read by curl and without JavaScript. Pure functions.
// In the path: beside it; admin_server.cc serves the pages.
#ifndef NORMD_SERVER_ADMIN_STATUS_REPORT_H_
#define NORMD_SERVER_ADMIN_STATUS_REPORT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/admin/metric_reading.h"

namespace normd {

// A limit of an option, and the metric that counts against it.
struct StatusLimit {
  std::string name;    // "sessions"
  std::string metric;  // "normd_sessions"
  double limit = 0;
  bool bytes = false;
};

struct StatusFacts {
  std::vector<std::pair<std::string, std::string>> facts;    // by name
  std::vector<std::pair<std::string, std::string>> devices;  // name; a description, or the reason why it is not used
  std::vector<StatusLimit> limits;
  std::vector<std::string> problems = {};  // problems that an operator has to solve
};

// A table: a title, the headers, and rows of cells. The first column is text, the others are numbers unless `words`.
struct StatusTable {
  std::string title;
  std::vector<std::string> headers;
  std::vector<std::vector<std::string>> rows;
  bool words = false;
  bool alert = false;  // of problems
  // For a table of figures, each a name and a text: their values, whose course the page's script draws.
  std::vector<double> values = {};
};

// Tables without rows are left out.
std::vector<StatusTable> StatusTables(const StatusFacts& facts, const MetricReading& metrics,
                                      const RecentCounts& recent);

// The tables as plain text, in columns.
std::string StatusText(const std::vector<StatusTable>& tables);

// The page: `state` and the tables as HTML, with all texts escaped, and a script that keeps them up to date. Everything
// is inside; styles and script carry `nonce`, for StatusPagePolicy.
std::string StatusPage(std::string_view state, const std::vector<StatusTable>& tables, std::string_view nonce);

// The Content-Security-Policy of that page: only elements with the nonce, and calls to the same server.
std::string StatusPagePolicy(std::string_view nonce);

}  // namespace normd

#endif  // NORMD_SERVER_ADMIN_STATUS_REPORT_H_
