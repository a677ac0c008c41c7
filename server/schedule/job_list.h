// What queues and the scheduler need to know of jobs: the bytes that they move, and whether they may run a second time.
// In the path: before a job list is queued or assigned to a device. Pure functions over borrowed jobs, safe from any
// thread.
#ifndef NORMD_SERVER_SCHEDULE_JOB_LIST_H_
#define NORMD_SERVER_SCHEDULE_JOB_LIST_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace normd {

// Bytes of the tensors that are read and written. Statistics and parameters are small beside these and left out.
int64_t BytesMoved(const Job& job);
int64_t BytesMoved(absl::Span<const Job> jobs);

// Whether an output lies where an input lies. Such a job cannot run again, because its input may be gone.
bool ReplacesInput(const Job& job);

// Elements of x in all jobs, as Backend::inline_elements counts them.
int64_t ElementsOf(absl::Span<const Job> jobs);

}  // namespace normd

#endif  // NORMD_SERVER_SCHEDULE_JOB_LIST_H_
