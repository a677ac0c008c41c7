// A gauge for the sessions whose last training step was farthest from their running statistics. Its number of series is
// bounded whatever the number of sessions.
// In the path: a row of server/wiring/metrics.h, updated after each step.
// Threads: every method is safe from any thread. Note takes a lock that only the sessions of one of 16 parts share.
#ifndef NORMD_SERVER_OBS_SESSION_DRIFTS_H_
#define NORMD_SERVER_OBS_SESSION_DRIFTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/lru.h"
#include "server/base/mutex.h"
#include "server/base/steady_time.h"
#include "server/obs/metric_set.h"

namespace normd {

class SessionDrifts : public Metric {
 public:
  static constexpr size_t kShown = 20;
  static constexpr absl::Duration kShownFor = absl::Minutes(10);  // after a session's last step

  // How a session is shown; the views may borrow from its key.
  struct Labels {
    std::string_view tenant, session;
  };
  using LabelsOf = Labels (*)(std::string_view key);

  // `labels_of` takes a session's key apart. `now` is the clock of the times that Note is given.
  SessionDrifts(MetricSet* set, std::string_view name, std::string_view help, LabelsOf labels_of,
                std::function<absl::Time()> now = &SteadyNow);

  // `session` is a key of the session store.
  void Note(std::string_view session, double drift, absl::Time now);

  void Collect(std::vector<prometheus::ClientMetric>* series) const override;

 private:
  static constexpr size_t kParts = 16;
  static constexpr int64_t kSessionsPerPart = 64;

  struct Drift {
    double value = 0;
    absl::Time time;
  };
  struct Part {
    mutable Mutex mu;
    Lru<std::string, Drift> sessions ABSL_GUARDED_BY(mu){kSessionsPerPart};
  };

  const LabelsOf labels_of_;
  const std::function<absl::Time()> now_;
  std::array<Part, kParts> parts_;
};

}  // namespace normd

#endif  // NORMD_SERVER_OBS_SESSION_DRIFTS_H_
