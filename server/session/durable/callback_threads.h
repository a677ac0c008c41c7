// The threads that run a store's callbacks, so that neither the writer nor a reader waits for them: what a caller does
// with an answer (plan, compute, encode) may take long. The callbacks of one session run on one thread, in their order;
// those of other sessions do not wait for them unless they share the thread.
// In the path: between the threads of a DurableStore and its callers. Threads: Post is safe from any thread.
#ifndef NORMD_SERVER_SESSION_DURABLE_CALLBACK_THREADS_H_
#define NORMD_SERVER_SESSION_DURABLE_CALLBACK_THREADS_H_

#include <deque>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "server/base/mutex.h"

namespace normd {

class CallbackThreads {
 public:
  using Answer = absl::AnyInvocable<void()>;

  explicit CallbackThreads(int threads);
  ~CallbackThreads();

  // Runs what was posted, then ends the threads. REQUIRES: nothing is posted afterwards.
  void Stop();

  // The thread that runs the callbacks of session `id`.
  size_t ThreadOf(std::string_view id) const;
  size_t size() const { return workers_.size(); }
  // Runs `answer` on the thread with this number, after everything that was posted to it before.
  void Post(size_t thread, Answer answer);

 private:
  struct Worker {
    Mutex mu;
    CondVar ready;
    std::deque<Answer> answers ABSL_GUARDED_BY(mu);
    bool stopping ABSL_GUARDED_BY(mu) = false;
    std::thread thread;
  };
  static void Run(Worker* worker);

  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_CALLBACK_THREADS_H_
