// What the figures of a suite reached in runs that were recorded in a file (tests/bench/record.py writes it). Some
// floors are goals that no build has met; a check against what was reached finds what has become slower all the same.
// Threads: immutable.
#ifndef NORMD_TESTS_BENCH_REACHED_H_
#define NORMD_TESTS_BENCH_REACHED_H_

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace normd::bench {

class Reached {
 public:
  // Reads the record of `suite` on machines of `kind`, which is the instruction set where a suite reports one, else "".
  // A file that has no such record gives an empty one. Errors name the file.
  static absl::StatusOr<Reached> Load(const std::string& path, const std::string& suite, const std::string& kind);

  // The least that a figure with a floor had in the recorded runs, the most of one with a ceiling. `figure` is as
  // Report keeps it, but what a name says in parentheses, the worst shape of this run, is not part of it.
  std::optional<double> Of(const std::string& figure) const;
  bool empty() const { return figures_.empty(); }

 private:
  std::map<std::string, double> figures_;
};

// "L2 FAST/peer (L2 LN bf16 128x1024), worst" -> "L2 FAST/peer, worst".
std::string WithoutParentheses(const std::string& figure);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_REACHED_H_
