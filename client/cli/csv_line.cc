#include "client/cli/csv_line.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace normd::client {
namespace {

constexpr char kAnyBlanks = ' ';  // as a delimiter
// How R, SQL, Excel and Python write a missing value.
constexpr absl::string_view kMissing[] = {"NA",   "N/A",  "N.A.", "<NA>", "na", "n/a", "NaT", "NULL", "Null",
                                          "null", "None", "nil",  "?",    "-",  "--",  "---", ".",    ".."};
// How the error values of Excel begin. A row that starts with one is no comment.
constexpr absl::string_view kExcelErrors[] = {"#N/A",  "#NA",    "#VALUE!", "#REF!",  "#DIV/0!",
                                              "#NUM!", "#NAME?", "#NULL!",  "#SPILL!"};

// Reads the fields of one line from left to right.
class FieldReader {
 public:
  FieldReader(absl::string_view line, char delimiter) : rest_(line), delimiter_(delimiter) {}

  // Reads one field. Returns false, with the reason in `error`, if its quotes are wrong.
  bool Read(std::string& field, bool& quoted) {
    SkipBlanks();
    quoted = absl::ConsumePrefix(&rest_, "\"");
    if (!quoted) {
      const size_t end = FindDelimiter();
      field = std::string(absl::StripAsciiWhitespace(rest_.substr(0, end)));
      rest_.remove_prefix(end);
      return true;
    }
    while (!rest_.empty()) {
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c != '"') {
        field.push_back(c);
      } else if (absl::ConsumePrefix(&rest_, "\"")) {
        field.push_back('"');
      } else {
        absl::StripAsciiWhitespace(&field);
        SkipBlanks();
        error = "text follows a closing quote";
        return FindDelimiter() == 0 || (delimiter_ == kAnyBlanks && had_blanks_);
      }
    }
    error = "a quote is not closed on its line";
    return false;
  }

  // Takes the delimiter. Returns false at the end of the line.
  bool Next() {
    if (rest_.empty()) return false;
    if (delimiter_ != kAnyBlanks) rest_.remove_prefix(1);
    return true;
  }

  absl::string_view error;

 private:
  void SkipBlanks() {
    const auto* end =
        std::find_if(rest_.begin(), rest_.end(), [this](char c) { return !absl::ascii_isspace(c) || c == delimiter_; });
    if (delimiter_ == kAnyBlanks) {
      end = std::find_if(rest_.begin(), rest_.end(), [](char c) { return !absl::ascii_isspace(c); });
    }
    had_blanks_ = end != rest_.begin();
    rest_.remove_prefix(static_cast<size_t>(end - rest_.begin()));
  }
  size_t FindDelimiter() const {
    const size_t at = delimiter_ == kAnyBlanks ? rest_.find_first_of(" \t") : rest_.find(delimiter_);
    return std::min(at, rest_.size());
  }

  absl::string_view rest_;
  const char delimiter_;
  bool had_blanks_ = false;
};

bool StartsAsExcelError(absl::string_view text) {
  return std::any_of(std::begin(kExcelErrors), std::end(kExcelErrors),
                     [text](absl::string_view error) { return absl::StartsWith(text, error); });
}

bool AreDigits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isdigit(c); });
}

bool IsNumberWith(absl::string_view field, const CsvOptions& options) {
  return CsvNumber(std::string(field), options).has_value();
}

// True if `field` is numbers between blanks.
bool HasNumbersBetweenBlanks(absl::string_view field) {
  const std::vector<absl::string_view> words = absl::StrSplit(field, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  return words.size() > 1 && std::all_of(words.begin(), words.end(),
                                         [](absl::string_view word) { return IsNumberWith(word, CsvOptions()); });
}

std::string DelimiterName(char delimiter) {
  if (delimiter == '\t') return "tab";
  return delimiter == kAnyBlanks ? "space" : absl::StrCat("'", std::string(1, delimiter), "'");
}

std::string DelimiterWords(char delimiter) {
  if (delimiter == ',') return "commas";
  if (delimiter == '\t') return "tabs";
  return delimiter == kAnyBlanks ? "blanks" : DelimiterName(delimiter);
}

// The character that seems to separate the fields instead of the one that is expected.
std::optional<char> OtherDelimiter(const CsvLine& line, char expected) {
  for (const char c : {';', '\t', '|'}) {
    if (c != expected && (expected != kAnyBlanks || c != '\t') && absl::StrContains(line.text, std::string(1, c))) {
      return c;
    }
  }
  const bool blanks = expected != kAnyBlanks && expected != '\t' &&
                      std::any_of(line.fields.begin(), line.fields.end(),
                                  [](const std::string& field) { return HasNumbersBetweenBlanks(field); });
  return blanks ? std::optional<char>(kAnyBlanks) : std::nullopt;
}

// True if `text` has a comma between two digits.
bool HasDecimalComma(absl::string_view text) {
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == ',' && absl::ascii_isdigit(text[i - 1]) && absl::ascii_isdigit(text[i + 1])) return true;
  }
  return false;
}

}  // namespace

absl::Status BadCsvLine(size_t number, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", what));
}

absl::string_view TakeCsvLine(absl::string_view& text) {
  const size_t end = std::min(text.find_first_of("\r\n"), text.size());
  const absl::string_view line = text.substr(0, end);
  text.remove_prefix(end);
  const bool carriage_return = absl::ConsumePrefix(&text, "\r");
  if (!absl::ConsumePrefix(&text, "\n") && !carriage_return) text.remove_prefix(text.size());
  return line;
}

bool IsCsvComment(absl::string_view line) {
  line = absl::StripLeadingAsciiWhitespace(line);
  return absl::StartsWith(line, "#") && !StartsAsExcelError(line);
}

bool IsCsvMissing(absl::string_view field) {
  return StartsAsExcelError(field) || std::find(std::begin(kMissing), std::end(kMissing), field) != std::end(kMissing);
}

bool IsCsvText(const std::string& field) {
  if (field.empty() || IsCsvMissing(field)) return false;
  double value;
  if (absl::SimpleAtod(field, &value)) return false;
  absl::string_view rest = field;
  // Signs, the minus of typography among them, and a decimal point may stand before the first digit.
  while (absl::ConsumePrefix(&rest, "+") || absl::ConsumePrefix(&rest, "-") ||
         absl::ConsumePrefix(&rest, "\xE2\x88\x92") || absl::ConsumePrefix(&rest, ".")) {
  }
  const bool starts_as_number = !rest.empty() && absl::ascii_isdigit(rest.front());
  const auto is_letter = [](char c) { return absl::ascii_isalpha(c) || !absl::ascii_isascii(c); };
  return !starts_as_number && (std::any_of(field.begin(), field.end(), is_letter) ||
                               std::none_of(field.begin(), field.end(), &absl::ascii_isdigit));
}

absl::StatusOr<CsvLine> SplitCsvLine(absl::string_view text, size_t number, const CsvOptions& options) {
  CsvLine line{.number = number, .text = text, .quoted = true};
  // Blanks at the end separate nothing where blanks separate.
  FieldReader reader(options.delimiter == kAnyBlanks ? absl::StripAsciiWhitespace(text) : text, options.delimiter);
  do {
    bool quoted = false;
    if (!reader.Read(line.fields.emplace_back(), quoted)) return BadCsvLine(number, reader.error);
    line.quoted = line.quoted && quoted;
  } while (reader.Next());
  return line;
}

std::optional<double> CsvNumber(const std::string& field, const CsvOptions& options) {
  double value;
  if (field.find_first_of("xX") != std::string::npos) return std::nullopt;  // hexadecimal to absl, and to nobody else
  const bool ok = options.decimal == '.' ? absl::SimpleAtod(field, &value)
                                         : !absl::StrContains(field, ".") &&
                                               absl::SimpleAtod(absl::StrReplaceAll(field, {{",", "."}}), &value);
  // A number beyond f64 becomes an infinity that the file does not hold.
  const bool overflows = ok && std::isinf(value) && std::any_of(field.begin(), field.end(), &absl::ascii_isdigit);
  return ok && !overflows ? std::optional<double>(value) : std::nullopt;
}

bool MayBeDecimalComma(absl::string_view line) {
  line = absl::StripAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&line, "-")) absl::ConsumePrefix(&line, "+");
  const size_t comma = line.find(',');
  return comma != absl::string_view::npos && AreDigits(line.substr(0, comma)) && AreDigits(line.substr(comma + 1));
}

std::string CsvSeparatorHint(const CsvLine& line, const CsvOptions& options) {
  const std::optional<char> other = OtherDelimiter(line, options.delimiter);
  if (other.has_value()) {
    return absl::StrCat(" (fields are separated by ", DelimiterWords(options.delimiter), "): --delimiter ",
                        DelimiterName(*other), HasDecimalComma(line.text) ? " --decimal ','" : "", " reads others");
  }
  if (options.decimal == ',' && absl::StrContains(line.text, ".")) {
    return " (--decimal is a comma, and separators of thousands are not read)";
  }
  constexpr absl::string_view kCommentsOfOthers = "%!/*";  // of MATLAB, Fortran and C
  if (line.fields.size() == 1 && !line.text.empty() && absl::StrContains(kCommentsOfOthers, line.text.front())) {
    return absl::StrCat(" (is line ", line.number, " a comment? Comments start with #)");
  }
  return "";
}

std::string CsvNoNumber(const CsvLine& line, size_t column, const CsvOptions& options) {
  const std::string& field = line.fields[column];
  if (field.empty()) return absl::StrCat("column ", column + 1, " is empty", CsvSeparatorHint(line, options));
  constexpr size_t kShown = 40;
  const std::string what = absl::StrCat("column ", column + 1, ": '",
                                        absl::Utf8SafeCHexEscape(absl::string_view(field).substr(0, kShown)), "' is ");
  double value;
  const bool is_number = options.decimal == '.' && absl::SimpleAtod(field, &value);
  if (is_number && std::isinf(value)) return absl::StrCat(what, "beyond the range of f64");
  if (IsCsvMissing(field)) return absl::StrCat(what, "no number, but a missing value");
  if (absl::StrContains(field, "#") && !absl::StrContains(field, ".#") &&
      IsNumberWith(field.substr(0, field.find('#')), options)) {
    return absl::StrCat(what, "no number (a comment needs a line of its own)");
  }
  std::string hint = CsvSeparatorHint(line, options);
  if (hint.empty() && options.decimal == '.' && HasDecimalComma(field)) {
    hint = " (--delimiter ';' --decimal ',' reads decimal commas; separators of thousands are not read)";
  }
  return absl::StrCat(what, "no number", hint);
}

}  // namespace normd::client
