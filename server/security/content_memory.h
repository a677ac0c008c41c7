// When a file that is read again and again is taken: once nobody is writing it, and once for each content.
// In the path: beside it, on the threads of watches and of SIGHUP, which may wait. AccessControl has a ContentMemory
// for each file, ServerCertificates one for its files together, and ReadConfigAgain (config_reload.h) one for each
// reload. Threads: ContentMemory is thread-compatible; LookUntilSettled may run on several threads at a time.
#ifndef NORMD_SERVER_SECURITY_CONTENT_MEMORY_H_
#define NORMD_SERVER_SECURITY_CONTENT_MEMORY_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/base/steady_time.h"

namespace normd {

// How long a file must stay as it is until it is taken. Writers that write in place pause for microseconds between two
// writes, and the time of a file's last change is known to 4 ms.
inline constexpr absl::Duration kSettleTime = absl::Milliseconds(50);
// After this many looks in a row, each with other content, the file counts as one that keeps changing.
inline constexpr int kMaxUnsettledLooks = 5;

// The time for LookUntilSettled. Tests have their own.
struct Settling {
  std::function<absl::Time()> now = SteadyNow;
  std::function<void(absl::Duration)> sleep = absl::SleepFor;
};

// Runs `look`, kSettleTime apart, until it returns true, but kMaxUnsettledLooks times at most. Returns whether it did.
inline bool LookUntilSettled(const Settling& settling, absl::FunctionRef<bool()> look) {
  for (int looks = 1; !look(); ++looks) {
    if (looks == kMaxUnsettledLooks) return false;
    settling.sleep(kSettleTime);
  }
  return true;
}

class ContentMemory {
 public:
  // Takes the key of the content that a look at `now` has read: the content, and the state of its file (FileState in
  // regular_file.h), because two halves of two versions may have the same content. Returns whether the looks before
  // have read the same for kSettleTime, so that the content may be taken.
  bool See(const std::string& key, absl::Time now) {
    if (seen_ != key) {
      seen_ = key;
      since_ = now;
      ++changes_;
      return false;
    }
    if (now - since_ < kSettleTime) return false;
    changes_ = 0;
    return true;
  }

  // Whether the last kMaxUnsettledLooks looks that found a change had none between them that was settled.
  bool KeepsChanging() const { return changes_ >= kMaxUnsettledLooks; }

  // Takes the key of a content that is taken, or reported because it cannot be. Returns whether the last one was
  // another, so that there is something to do.
  bool Note(const std::string& key) { return std::exchange(noted_, key) != key; }

 private:
  std::optional<std::string> seen_, noted_;
  absl::Time since_;  // when `seen_` was seen first
  int changes_ = 0;   // since the last look that was settled
};

}  // namespace normd

#endif  // NORMD_SERVER_SECURITY_CONTENT_MEMORY_H_
