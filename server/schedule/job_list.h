// What queues and the scheduler need to know of jobs: how much they move, and whether they may be run a second time.
// In the path: before a job list is queued or placed. Pure functions over borrowed jobs.
#ifndef NORMD_SERVER_SCHEDULE_JOB_LIST_H_
#define NORMD_SERVER_SCHEDULE_JOB_LIST_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace normd {

// Bytes of tensors that are read and written. Statistics and parameters are small beside them and left out.
int64_t BytesMoved(const Job& job);
int64_t BytesMoved(absl::Span<const Job> jobs);

// Whether an output lies where an input is. Such a job cannot be run again: its input may be gone.
bool ReplacesInput(const Job& job);

// Elements of x, as Backend::inline_elements counts them.
int64_t ElementsOf(absl::Span<const Job> jobs);

}  // namespace normd

#endif  // NORMD_SERVER_SCHEDULE_JOB_LIST_H_
