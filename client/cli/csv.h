// Tables of numbers as comma-separated text: an optional header line, then rows of equal length. Pure functions.
#ifndef NORMD_CLIENT_CLI_CSV_H_
#define NORMD_CLIENT_CLI_CSV_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cpp/tensor.h"

namespace normd::client {

struct CsvTable {
  std::vector<std::string> header;  // empty if the first line holds numbers
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<double> values;  // row-major
};

// What the first line is. kDetect takes the line as a header if every field is text: neither empty, nor a number, nor a
// usual mark of a missing value ("NA"). A first line of numbers and other fields is an error, because the line is as
// likely a row with a mistake as a header, and a row must never be lost.
enum class CsvHeader { kDetect, kYes, kNo };

// Parses `text`. Fields may be quoted, a UTF-8 byte order mark and blank lines are skipped, and "nan" and "inf" are
// numbers. INVALID_ARGUMENT names the line and column of the mistake.
absl::StatusOr<CsvTable> ParseCsv(absl::string_view text, CsvHeader header = CsvHeader::kDetect);

// Writes `header`, if there is one, then one line for each run of the last axis, and each value as the shortest text
// that reads back the same.
std::string WriteCsv(const Tensor& tensor, absl::Span<const std::string> header = {});

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_CSV_H_
