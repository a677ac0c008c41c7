#include "client/cli/table.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace normd::client {
namespace {

constexpr absl::string_view kGap = "  ";

std::vector<std::string> CellLines(const std::string& cell, int width) {
  std::vector<std::string> out;
  for (absl::string_view line : absl::StrSplit(cell, '\n')) {
    for (std::string& piece : WrapText(line, static_cast<size_t>(width))) out.push_back(std::move(piece));
  }
  return out;
}

size_t LongestWord(absl::string_view text) {
  size_t longest = 1;
  for (absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" \n"))) {
    longest = std::max(longest, DisplayWidth(word));
  }
  return longest;
}

size_t LongestLine(absl::string_view text) {
  size_t longest = 1;
  for (absl::string_view line : absl::StrSplit(text, '\n')) longest = std::max(longest, DisplayWidth(line));
  return longest;
}

void AppendPadded(absl::string_view text, int width, Align align, std::string& out) {
  const std::string pad(std::max<size_t>(static_cast<size_t>(width), DisplayWidth(text)) - DisplayWidth(text), ' ');
  absl::StrAppend(&out, align == Align::kRight ? pad : "", text, align == Align::kLeft ? pad : "");
}

// The number of bytes of the first `count` characters of `text`.
size_t PrefixBytes(absl::string_view text, size_t count) {
  size_t at = 0;
  while (at < text.size() && count > 0) {
    ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
    --count;
  }
  return at;
}

}  // namespace

size_t DisplayWidth(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::vector<std::string> WrapText(absl::string_view text, size_t width) {
  width = std::max<size_t>(width, 1);
  std::vector<std::string> lines;
  std::string line;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!line.empty() && DisplayWidth(line) + 1 + DisplayWidth(word) > width) {
      lines.push_back(std::move(line));
      line.clear();
    }
    while (line.empty() && DisplayWidth(word) > width) {
      const size_t bytes = PrefixBytes(word, width);
      lines.emplace_back(word.substr(0, bytes));
      word.remove_prefix(bytes);
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
  }
  if (!line.empty() || lines.empty()) lines.push_back(std::move(line));
  return lines;
}

std::string ReflowText(absl::string_view text, size_t width) {
  std::vector<std::string> lines;
  std::string paragraph;
  const auto end_paragraph = [&] {
    if (paragraph.empty()) return;
    for (std::string& line : WrapText(paragraph, width)) lines.push_back(std::move(line));
    paragraph.clear();
  };
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const bool kept = line.empty() || line.substr(0, 2) == "  ";
    if (kept) {
      end_paragraph();
      lines.emplace_back(line);
    } else {
      absl::StrAppend(&paragraph, paragraph.empty() ? "" : " ", line);
    }
  }
  end_paragraph();
  return absl::StrJoin(lines, "\n");
}

std::vector<int> Table::Widths(int width) const {
  std::vector<int> widths, floors;
  for (size_t column = 0; column < columns_.size(); ++column) {
    size_t natural = LongestLine(columns_[column].header);
    size_t least = LongestWord(columns_[column].header);
    for (const auto& row : rows_) {
      natural = std::max(natural, LongestLine(row[column]));
      least = std::max(least, LongestWord(row[column]));
    }
    widths.push_back(static_cast<int>(natural));
    floors.push_back(static_cast<int>(std::min(least, natural)));
  }
  const int room = width - static_cast<int>(kGap.size() * (columns_.size() - 1));
  // Shrinks by one character at a time the widest column that is still wider than its longest word.
  while (std::accumulate(widths.begin(), widths.end(), 0) > room) {
    int widest = -1;
    for (int i = 0; i < static_cast<int>(widths.size()); ++i) {
      if (widths[i] > floors[i] && (widest < 0 || widths[i] > widths[widest])) widest = i;
    }
    if (widest < 0) break;
    --widths[widest];
  }
  return widths;
}

std::string Table::Render(int width) const {
  const std::vector<int> widths = Widths(width);
  std::string out;
  const auto append_row = [&](const std::vector<std::string>& cells) {
    std::vector<std::vector<std::string>> lines;
    size_t height = 0;
    for (size_t i = 0; i < cells.size(); ++i) {
      lines.push_back(CellLines(cells[i], widths[i]));
      height = std::max(height, lines.back().size());
    }
    for (size_t row = 0; row < height; ++row) {
      std::string text;
      for (size_t i = 0; i < cells.size(); ++i) {
        if (i > 0) absl::StrAppend(&text, kGap);
        AppendPadded(row < lines[i].size() ? lines[i][row] : "", widths[i], columns_[i].align, text);
      }
      text.erase(text.find_last_not_of(' ') + 1);
      absl::StrAppend(&out, text, "\n");
    }
  };
  std::vector<std::string> headers;
  for (const Column& column : columns_) headers.push_back(column.header);
  append_row(headers);
  const std::string line = absl::StrJoin(
      widths, kGap, [](std::string* to, int w) { absl::StrAppend(to, std::string(static_cast<size_t>(w), '-')); });
  absl::StrAppend(&out, line, "\n");
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (row_lines_ && i > 0) absl::StrAppend(&out, "\n");
    append_row(rows_[i]);
  }
  return out;
}

std::string BytesText(double bytes) {
  constexpr absl::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", unit == 0 ? 0 : 1, bytes, kUnits[unit]);
}

std::string NanosecondsText(double nanoseconds) {
  constexpr absl::string_view kUnits[] = {"ns", "us", "ms", "s"};
  size_t unit = 0;
  while (nanoseconds >= 1000 && unit + 1 < std::size(kUnits)) {
    nanoseconds /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.3g %s", nanoseconds, kUnits[unit]);
}

std::string ShapeText(const std::vector<int64_t>& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

std::string ShortestText(float value) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

std::string ShortestText(double value) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

std::string ValuesText(const std::vector<double>& values, size_t count) {
  std::string out;
  for (size_t i = 0; i < std::min(count, values.size()); ++i)
    absl::StrAppendFormat(&out, "%s%.6g", i ? " " : "", values[i]);
  if (values.size() > count) absl::StrAppend(&out, " ...");
  return out;
}

}  // namespace normd::client
