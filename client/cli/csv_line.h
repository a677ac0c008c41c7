// The lines and fields of comma-separated text, and of its kin with other separators. Pure functions.
#ifndef NORMD_CLIENT_CLI_CSV_LINE_H_
#define NORMD_CLIENT_CLI_CSV_LINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace normd::client {

// What the first line is. kDetect takes the line as a header if every field is text: neither empty, nor a number, nor a
// usual mark of a missing value ("NA"), nor started by a digit. A first line of numbers and other fields is an error,
// because the line is as likely a row with a mistake as a header, and a row must never be lost.
enum class CsvHeader { kDetect, kYes, kNo };

// How a table is written. `delimiter` is one character; ' ' stands for any run of blanks. `decimal` is '.' or ','.
// `is_given`: a person said what separates fields or decimals, so that nothing needs to be suspected.
struct CsvOptions {
  CsvHeader header = CsvHeader::kDetect;
  char delimiter = ',';
  char decimal = '.';
  bool is_given = false;
};

struct CsvLine {
  size_t number = 0;  // from 1
  absl::string_view text;
  std::vector<std::string> fields;  // without quotes and surrounding blanks
  bool quoted = false;              // every field is
};

// An error "line 3: ...".
absl::Status BadCsvLine(size_t number, absl::string_view what);

// Takes the first line off `text`, without its end, which is "\n", "\r\n" or "\r". REQUIRES: `text` is not empty.
absl::string_view TakeCsvLine(absl::string_view& text);

// True for a line that starts with '#', unless that begins an error value of Excel such as #N/A.
bool IsCsvComment(absl::string_view line);

// True for a field that stands for a missing value, as R, SQL, Excel and Python write it.
bool IsCsvMissing(absl::string_view field);

// True for a field that a header may have, and that is neither a number nor a number with a mistake: "1,5",
// "2024-01-01".
bool IsCsvText(const std::string& field);

// Splits a line. Delimiters inside quotes do not separate, and two quotes inside quotes are one.
absl::StatusOr<CsvLine> SplitCsvLine(absl::string_view text, size_t number, const CsvOptions& options);

// The number that `field` is; nullopt if it is none, or if it is beyond f64.
std::optional<double> CsvNumber(const std::string& field, const CsvOptions& options);

// True for a line such as "1,5": it may be two fields or one number with a decimal comma.
bool MayBeDecimalComma(absl::string_view line);

// What may be wrong with the separators of a line that cannot be read, " (...): --delimiter ';' reads others"; empty
// if nothing is suspected.
std::string CsvSeparatorHint(const CsvLine& line, const CsvOptions& options);

// "column 2 is empty", "column 2: 'x' is no number". `line` may have other fields.
std::string CsvNoNumber(const CsvLine& line, size_t column, const CsvOptions& options);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_CSV_LINE_H_
