// Reads one value from text in the exposition format.
#ifndef NORMD_TESTS_SUPPORT_SERIES_H_
#define NORMD_TESTS_SUPPORT_SERIES_H_

#include <cstddef>
#include <string>

namespace normd {

// The value of the series that is written exactly as `series`; -1: it is not there.
inline double SeriesValue(const std::string& text, const std::string& series) {
  const size_t found = text.find("\n" + series + " ");
  return found == std::string::npos ? -1 : std::stod(text.substr(found + series.size() + 2));
}

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_SERIES_H_
