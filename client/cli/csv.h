// Tables of numbers as comma-separated text: an optional header line, then rows of equal length.
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
  std::vector<std::string> header;  // empty: the first line was numbers
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<double> values;  // row-major
};

// Fields may be quoted; blank lines are skipped; "nan" and "inf" are numbers. The first line is a header when one of
// its fields is no number. INVALID_ARGUMENT names the line and column of what is wrong.
absl::StatusOr<CsvTable> ParseCsv(absl::string_view text);

// One line for each run of the last axis, each value as the shortest text that reads back the same.
std::string WriteCsv(const Tensor& tensor);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_CSV_H_
