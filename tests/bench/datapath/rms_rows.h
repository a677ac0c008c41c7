// What every server but the echo computes: RMSNorm over rows of 1024 f32, by the CPU backend. The same object times the
// kernel without any wire.
// Threads: safe from any thread.
#ifndef NORMD_TESTS_BENCH_DATAPATH_RMS_ROWS_H_
#define NORMD_TESTS_BENCH_DATAPATH_RMS_ROWS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/backend.h"

namespace normd::bench {

inline constexpr int64_t kRowElements = 1024;
inline constexpr int64_t kRowBytes = kRowElements * int64_t{sizeof(float)};

class RmsRows {
 public:
  RmsRows();

  // x and y of `bytes`, any alignment; both must live until `done` has run, inline or on a thread of the backend.
  // INVALID_ARGUMENT when x is not whole rows.
  void Submit(const void* x, int64_t bytes, void* y, Backend::Done done);

  // Submits and waits.
  absl::Status Run(const void* x, int64_t bytes, void* y);

  // Runs for `duration` on these buffers, at least once; the time of one run.
  absl::StatusOr<absl::Duration> TimeOfOne(const void* x, int64_t bytes, void* y, absl::Duration duration);

 private:
  const std::unique_ptr<Backend> backend_;
};

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_DATAPATH_RMS_ROWS_H_
