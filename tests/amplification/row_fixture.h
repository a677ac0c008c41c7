// A row of the table of what a stranger may send, and how it is measured: the bytes go to a connection of the native
// transport that is real but for its services, several times, and the least of what they cost counts, because a busy
// machine only adds to it. Thread-compatible.
#ifndef NORMD_TESTS_AMPLIFICATION_ROW_FIXTURE_H_
#define NORMD_TESTS_AMPLIFICATION_ROW_FIXTURE_H_

#include <functional>
#include <string>
#include <string_view>

#include "tests/amplification/bounds.h"

namespace normd {

struct Row {
  std::string name;
  // What is sent first and not measured: it makes the state.
  std::string before;
  // What is measured.
  std::string bytes;
  Units units;
};

// Measures `spend` at least once, and again while it takes more than half of the time allowed. Prints the row, and
// fails the test beyond the bound.
void ExpectWithinBound(const std::string& name, const Units& units, const std::function<Cost()>& spend);

// The same for the bytes of one peer of a connection.
void ExpectWithinBound(const Row& row);

}  // namespace normd

#endif  // NORMD_TESTS_AMPLIFICATION_ROW_FIXTURE_H_
