#include "client/cli/csv_flags.h"

#include "absl/strings/match.h"

namespace normd::client {

std::vector<FlagSpec> HeaderFlags() {
  return {{"header", '\0', "", "the first line of a .csv INPUT is a header, whatever it holds"},
          {"no-header", '\0', "", "the first line of a .csv INPUT is a row, whatever it holds"}};
}

std::vector<FlagSpec> SeparatorFlags() {
  return {
      {"delimiter", '\0', "C",
       "what separates the fields of every .csv that is read: ',' (default), ';', '|', tab, or space for any blanks"},
      {"decimal", '\0', "C",
       "the decimal mark of every .csv that is read: '.' (default), or ',' with fields after ';'"}};
}

absl::StatusOr<CsvOptions> CsvFlags(const ParsedArgs& args) {
  if (args.Has("header") && args.Has("no-header")) return UsageError("--header and --no-header exclude each other");
  CsvOptions out;
  out.header = args.Has("header") ? CsvHeader::kYes : args.Has("no-header") ? CsvHeader::kNo : CsvHeader::kDetect;
  out.is_given = args.Has("delimiter") || args.Has("decimal");
  const std::string decimal = args.GetOr("decimal", ".");
  if (decimal != "." && decimal != ",") return BadValueError("decimal", decimal, "'.' or ','");
  out.decimal = decimal[0];
  const std::string delimiter = args.GetOr("delimiter", decimal == "," ? ";" : ",");
  if (delimiter == "tab" || delimiter == "\\t" || delimiter == "\t") {
    out.delimiter = '\t';
  } else if (delimiter == "space" || delimiter == " ") {
    out.delimiter = ' ';
  } else if (delimiter.size() == 1 && absl::StrContains(",;|:", delimiter[0])) {
    out.delimiter = delimiter[0];
  } else {
    return BadValueError("delimiter", delimiter, "',', ';', '|', ':', tab or space");
  }
  if (out.delimiter == out.decimal)
    return UsageError("--delimiter and --decimal are both ','; one of them must differ");
  return out;
}

}  // namespace normd::client
