// What the bench of the session store measures. Threads: one calls.
#ifndef NORMD_TESTS_BENCH_STORE_SECTIONS_H_
#define NORMD_TESTS_BENCH_STORE_SECTIONS_H_

#include "tests/bench/report.h"
#include "tests/bench/suite.h"

namespace normd::bench {

// What very many sessions cost: time to create them, bytes in the file and in memory, time to open the store again.
// REQUIRES: this process has one thread, and has allocated little that its children could use again unseen.
void MeasureManySessions(const Flags& flags, Report* report);

// Updates/s of the stores against bare loops.
void MeasureUpdates(const Flags& flags, Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_STORE_SECTIONS_H_
