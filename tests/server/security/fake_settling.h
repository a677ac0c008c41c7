// A Settling whose time passes only while something waits, and what happens meanwhile: a writer, for instance, that
// goes on by one piece.
#ifndef NORMD_TESTS_SERVER_SECURITY_FAKE_SETTLING_H_
#define NORMD_TESTS_SERVER_SECURITY_FAKE_SETTLING_H_

#include <functional>
#include <utility>

#include "absl/time/time.h"
#include "server/security/content_memory.h"

namespace normd {

struct FakeSettling {
  // Borrows this object.
  Settling settling() {
    return {.now = [this] { return now; },
            .sleep =
                [this](absl::Duration duration) {
                  now += duration;
                  slept += duration;
                  if (meanwhile != nullptr) meanwhile();
                }};
  }

  absl::Time now = absl::UnixEpoch();
  absl::Duration slept = absl::ZeroDuration();
  std::function<void()> meanwhile;
};

}  // namespace normd

#endif  // NORMD_TESTS_SERVER_SECURITY_FAKE_SETTLING_H_
