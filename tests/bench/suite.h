// What the four programs of the bench have in common: their command line, what they say of a run before and after it,
// and the exit status.
#ifndef NORMD_TESTS_BENCH_SUITE_H_
#define NORMD_TESTS_BENCH_SUITE_H_

#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tests/bench/report.h"

namespace normd::bench {

struct Flags {
  bool quick = false;   // fewer and shorter rounds: for CI and for a first look
  bool smoke = false;   // whether everything works, in a moment: the figures say nothing, and no floor is checked
  std::regex only;      // measures what has this in its name
  std::string json;     // where to write everything that was measured; empty: nowhere
  double check = 0;     // the exit status is 1 below so much of a floor, or above a ceiling divided by it
  std::string reached;  // a record (reached.h): checks against what was reached where that is less than the floor
  std::string commit = "unknown";
  std::string peers;                        // kernels: the Python that has torch; cuda: the file of PyTorch's times
  std::string before;                       // datapath: the program of an earlier build
  std::string max_isa = "auto";             // kernels: the instruction set, as normd --max_isa takes it
  bool list = false, probe = false;         // cuda
  bool more_shapes = false, turns = false;  // cuda
  bool nearest = false;                     // cuda: whole requests, EXACT beside FAST

  bool Chosen(const std::string& name) const { return std::regex_search(name, only); }

  // The value for this kind of run.
  template <typename T>
  T Pick(T full, T for_quick, T for_smoke) const {
    return smoke ? for_smoke : quick ? for_quick : full;
  }
};

// The options that all suites have, and those of `more` ("--peers"). Absent where nothing is to be measured, because
// help was asked for or the arguments are not understood; this was said then.
std::optional<Flags> ParseFlags(int argc, char** argv, const std::vector<std::string>& more);

// Measures and reports; returns the exit status. Where figures do not pass the check, everything is measured twice
// more, and only those fail that fail each time: a slow moment of a shared machine passes, slow code stays.
int RunSuite(const std::string& name, const Flags& flags, absl::FunctionRef<absl::Status(Report*)> measure);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_SUITE_H_
