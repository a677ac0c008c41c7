// The error that keeps the session store from accepting changes, for the status page: the last error, until a change
// succeeds again.
// In the path: beside it; the store's observer fills it. Threads: safe from any thread; Clear costs one load.
#ifndef NORMD_SERVER_WIRING_STORE_TROUBLE_H_
#define NORMD_SERVER_WIRING_STORE_TROUBLE_H_

#include <atomic>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace normd {

class StoreTrouble {
 public:
  void Note(const absl::Status& status, absl::Time now) {
    MutexLock lock(mu_);
    if (!present_) since_ = now;
    text_ = std::string(status.message());
    present_ = true;
  }
  void Clear() {
    if (!present_) return;
    present_ = false;
  }
  // "session store has a full disk (...), since 2026-11-26T18:43:00Z"; nullopt: there is none.
  std::optional<std::string> Text() const {
    MutexLock lock(mu_);
    if (!present_) return std::nullopt;
    return absl::StrCat(text_, ", since ", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", since_, absl::UTCTimeZone()));
  }

 private:
  mutable Mutex mu_;
  std::atomic<bool> present_{false};
  absl::Time since_ ABSL_GUARDED_BY(mu_);
  std::string text_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd

#endif  // NORMD_SERVER_WIRING_STORE_TROUBLE_H_
