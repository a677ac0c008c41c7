// A bench has nothing to say once something failed.
#ifndef NORMD_TESTS_BENCH_OR_DIE_H_
#define NORMD_TESTS_BENCH_OR_DIE_H_

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace normd::bench {

[[noreturn]] inline void Die(const std::string& message) {
  std::fprintf(stderr, "bench: %s\n", message.c_str());
  std::abort();
}

inline void OrDie(const absl::Status& status) {
  if (!status.ok()) Die(status.ToString());
}

template <typename T>
T OrDie(absl::StatusOr<T> result) {
  OrDie(result.status());
  return *std::move(result);
}

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_OR_DIE_H_
