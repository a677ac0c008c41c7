// Tables of numbers as comma-separated text: an optional header line, then rows of equal length. Pure functions.
#ifndef NORMD_CLIENT_CLI_CSV_H_
#define NORMD_CLIENT_CLI_CSV_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/tensor.h"

namespace normd::client {

struct CsvTable {
  std::vector<std::string> header;  // empty if the first line holds numbers
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<double> values;  // row-major
};

// Parses `text`. Fields may be quoted, blank lines are skipped, and "nan" and "inf" are numbers. The first line is a
// header if one of its fields is not a number. INVALID_ARGUMENT names the line and column of the mistake.
absl::StatusOr<CsvTable> ParseCsv(absl::string_view text);

// Writes one line for each run of the last axis, and each value as the shortest text that reads back the same.
std::string WriteCsv(const Tensor& tensor);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_CSV_H_
