// Tables for people, in plain text: aligned columns whose cells wrap at words to fit a width. Plain values.
#ifndef NORMD_CLIENT_CLI_TABLE_H_
#define NORMD_CLIENT_CLI_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace normd::client {

enum class Align { kLeft, kRight };

class Table {
 public:
  struct Column {
    std::string header;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // REQUIRES: one cell for each column. Line breaks inside cells are kept.
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Draws a line between rows, for tables whose cells wrap.
  void set_row_lines(bool on) { row_lines_ = on; }

  // The table as text. Lines have at most `width` characters, unless even one word per column does not fit. The widest
  // columns shrink first.
  std::string Render(int width) const;

 private:
  std::vector<int> Widths(int width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
  bool row_lines_ = false;
};

// Breaks `text` at spaces, and inside words that are longer than `width`. The result has at least one line.
std::vector<std::string> WrapText(absl::string_view text, size_t width);

// Wraps the paragraphs of `text`, which blank lines and lines that start with two blanks end. The latter are kept as
// they are. Without a line break at the end.
std::string ReflowText(absl::string_view text, size_t width);

// The columns that `text` takes on a terminal: its UTF-8 code points. Wide and combining characters are not considered.
size_t DisplayWidth(absl::string_view text);

// "1.5 MiB", "640 B".
std::string BytesText(double bytes);
// "1.24 ms", "17.3 us".
std::string NanosecondsText(double nanoseconds);
// "[2, 3, 4]".
std::string ShapeText(const std::vector<int64_t>& shape);
// The shortest text that reads back as the same float or double.
std::string ShortestText(float value);
std::string ShortestText(double value);
// "1.22474 -0.5 ...": the first `count` values with six significant digits.
std::string ValuesText(const std::vector<double>& values, size_t count);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_TABLE_H_
