// Tables of numbers as text with a separator, a comma by default: an optional header line, then rows of equal length.
// Pure functions.
#ifndef NORMD_CLIENT_CLI_CSV_H_
#define NORMD_CLIENT_CLI_CSV_H_

#include <cstddef>
#include <cstdint>
#include <memory>
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

// Reads a table a line at a time, in memory that the caller bounds by taking the values. Thread-compatible.
class CsvReader {
 public:
  explicit CsvReader(const CsvOptions& options = {});
  ~CsvReader();

  // Adds a line without its end. Lines are numbered from 1. Errors are those of ParseCsv.
  absl::Status Add(absl::string_view line, size_t number);
  // The table so far, with the values that were not taken.
  const CsvTable& table() const;
  std::vector<double> TakeValues();
  // The whole table, with its warning, after the last line. INVALID_ARGUMENT if it has no rows.
  absl::StatusOr<CsvTable> Finish();

 private:
  class Lines;
  const std::unique_ptr<Lines> lines_;
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
