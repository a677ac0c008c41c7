// What a launch prints before it ends the process: which kernel, and where each thread of the cluster stands. Private
// to the scheduler. Threads: called on the host thread of the launch. Owns nothing.
#ifndef NORMD_TESTS_SUPPORT_CUDA_ON_CPU_REPORT_H_
#define NORMD_TESTS_SUPPORT_CUDA_ON_CPU_REPORT_H_

#include <vector>

#include "tests/support/cuda_on_cpu/launch.h"
#include "tests/support/cuda_on_cpu/scheduler.h"

namespace cuda_on_cpu {

[[noreturn]] void Die(const char* message);

// Of a kernel that goes no further: no thread of the cluster can run and not all have exited.
[[noreturn]] void ReportDeadlock(const Launch& launch, const std::vector<Block>& blocks);

// One thread, and the meeting of lanes that it calls, if it calls one.
void ReportThread(const Launch& launch, const Thread& thread, Meeting meeting, unsigned mask);

}  // namespace cuda_on_cpu

#endif  // NORMD_TESTS_SUPPORT_CUDA_ON_CPU_REPORT_H_
