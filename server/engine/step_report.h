// Reports a training step that was committed to the engine's observer.
// In the path: beside it, after a commit. Threads: a pure function apart from the observer.
#ifndef NORMD_SERVER_ENGINE_STEP_REPORT_H_
#define NORMD_SERVER_ENGINE_STEP_REPORT_H_

#include <vector>

#include "kernels/moments.h"
#include "server/engine/engine.h"
#include "server/session/session_store.h"

namespace normd {

// `before` is the session as it was read for the step, and `moments` and `samples` (see SampleDetails) are the step's.
void ReportStep(const EngineObserver& observer, const Session& before, const Moments& moments,
                const std::vector<double>& samples, const CommitResult& result);

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_STEP_REPORT_H_
