#include "server/schedule/job_list.h"

namespace normd {

int64_t BytesMoved(const Job& job) {
  const int64_t tensors = 1 + (job.y != nullptr ? 1 : 0) + (job.h != nullptr ? 1 : 0);
  const int64_t residual = job.residual.present() ? SizeOf(job.residual.dtype) : 0;
  return job.plan->elements * (tensors * SizeOf(job.plan->dtype) + residual);
}

int64_t BytesMoved(absl::Span<const Job> jobs) {
  int64_t bytes = 0;
  for (const Job& job : jobs) bytes += BytesMoved(job);
  return bytes;
}

bool ReplacesInput(const Job& job) {
  // Views that overlap in part are refused before they become jobs, so y is at x or clear of x.
  const auto is_input = [&job](const void* output) {
    return output != nullptr && (output == job.x || output == job.residual.data);
  };
  return is_input(job.y) || is_input(job.h);
}

int64_t ElementsOf(absl::Span<const Job> jobs) {
  int64_t elements = 0;
  for (const Job& job : jobs) elements += job.plan->elements;
  return elements;
}

}  // namespace normd
