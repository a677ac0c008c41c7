// Tables of numbers as text with a separator, a comma by default: an optional header line, then rows of equal length.
// Pure functions.
#ifndef NORMD_CLIENT_CLI_CSV_H_
#define NORMD_CLIENT_CLI_CSV_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/csv_line.h"
#include "client/cpp/tensor.h"

namespace normd::client {

struct CsvTable {
  std::vector<std::string> header;  // empty if the first line holds numbers
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<double> values;  // row-major
  // What a person should know of a table that can be read in two ways; empty if there is nothing.
  std::string warning;
};

// Parses `text`. Fields may be quoted; a UTF-8 byte order mark, lines that start with '#' and blank lines are skipped,
// but not a blank line between the rows of one column, which is a value that is missing; "nan" and "inf" are numbers.
// INVALID_ARGUMENT names the line and column of the mistake.
absl::StatusOr<CsvTable> ParseCsv(absl::string_view text, const CsvOptions& options = {});

// Writes `header`, if there is one, then one line for each run of the last axis, and each value as the shortest text
// that reads back the same.
std::string WriteCsv(const Tensor& tensor, absl::Span<const std::string> header = {});

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_CSV_H_
