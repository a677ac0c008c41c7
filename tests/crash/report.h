// What crash_child tells its parent through a pipe: one fixed-size record a write(), small enough to be atomic, so that
// a record is there whole or not at all, whenever the child is killed.
#ifndef NORMD_TESTS_CRASH_REPORT_H_
#define NORMD_TESTS_CRASH_REPORT_H_

#include <limits.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "tests/crash/steps.h"

namespace normd::crash {

enum class ReportKind : uint32_t {
  kOpened = 1,   // number: sessions that the store has
  kSnapshot,     // of `session`: `number` bytes of its exported record follow
  kCreated,      // of `session`: epoch
  kReady,        // clients start
  kAttempt,      // the step is about to be sent
  kAcknowledge,  // it was answered: number is the version, epoch, replayed
  kSeen,         // a reader was given version `number` of `session`
};

struct Report {
  ReportKind kind = ReportKind::kReady;
  int32_t session = 0;
  int32_t client = 0;
  uint32_t replayed = 0;
  uint64_t sequence = 0;
  uint64_t number = 0;
  char uid[64] = {};

  StepKey step() const { return {session, client, sequence}; }
  std::string epoch_text() const { return {uid, strnlen(uid, sizeof(uid))}; }
  void SetEpoch(std::string_view text) { std::memcpy(uid, text.data(), std::min(text.size(), sizeof(uid))); }
};
static_assert(sizeof(Report) <= PIPE_BUF && std::is_trivially_copyable_v<Report>);

}  // namespace normd::crash

#endif  // NORMD_TESTS_CRASH_REPORT_H_
