// An SQLite VFS that works like the system's until the n-th write, flush, truncation or opening is to fail: what a disk
// that is full or breaks looks like, at every place where it can.
// Threads: one test at a time; counting is atomic.
#ifndef NORMD_TESTS_SERVER_SESSION_FAULT_VFS_FIXTURE_H_
#define NORMD_TESTS_SERVER_SESSION_FAULT_VFS_FIXTURE_H_

#include <cstdint>

namespace normd::session_test {

enum class Fault {
  kEio,         // every call that changes the file or reads it fails with an I/O error
  kEnospc,      // writes fail for want of room
  kShortWrite,  // half of the bytes are written, then there is no room
  kFsync,       // flushes fail
};

inline constexpr char kFaultVfsName[] = "normd-fault";

// Registers the VFS once; from then on its name can be opened.
void RegisterFaultVfs();

// From now on the `n`-th call that `fault` can fail (1: the next one) fails; with `persistent` all later ones, too.
// n = 0: none fails.
void PlanFault(Fault fault, int64_t n, bool persistent);

// Whether the planned fault has happened, and how many calls could have failed since PlanFault.
bool FaultHappened();
int64_t FaultPoints();

}  // namespace normd::session_test

#endif  // NORMD_TESTS_SERVER_SESSION_FAULT_VFS_FIXTURE_H_
