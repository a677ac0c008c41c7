// gRPC clients that train the sessions through restarts: a thread for each client of each session, which sends a step
// with its StepId until it is answered; and a reader for each server. Also what the checks read of a server.
// In the path: the parent's; the ledger gets what they attempt and what is acknowledged.
// Threads: Trainers belongs to one thread; the free functions are safe from any.
#ifndef NORMD_TESTS_CRASH_TRAINERS_H_
#define NORMD_TESTS_CRASH_TRAINERS_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "server/base/mutex.h"
#include "tests/crash/ledger.h"

namespace normd::crash {

// Creates every session; each must be new.
absl::Status CreateSessions(Client& client, Ledger* ledger);
// Compares every session with the ledger, while clients may be at work. A session that is gone is reported there.
absl::Status CheckSessions(Client& client, Ledger* ledger);
// Attempts and acknowledges nothing: `step` and the ledger are the caller's.
absl::StatusOr<Acknowledgement> SendStep(Client& client, const StepKey& step,
                                         std::optional<uint64_t> expected_version = std::nullopt);

struct TrainerOptions {
  std::vector<std::string> targets;
  // Half of the clients keep their connection and leave retries to Client; the others connect anew, as a program that
  // was started again would. With several targets each keeps a connection to every one.
  bool patient_half = true;
  // Of one call; a step that is not answered in time is sent again, to the next target.
  absl::Duration deadline = absl::Seconds(5);
};

class Trainers {
 public:
  // Starts at once. Borrows `ledger`.
  Trainers(TrainerOptions options, Ledger* ledger);
  // Clients give up the steps they have on their way.
  ~Trainers();

  // Whether connecting is worth trying; those whose connection broke wait for it. True at the start.
  void SetServing(bool serving);
  // Every client finishes its step, which needs a server; readers end.
  void Finish();
  // Waits until every client, or any of them, has `steps` more acknowledged than now. False: not within `patience`.
  bool WaitForSteps(uint64_t steps, bool every_client, absl::Duration patience) const;

 private:
  struct Member {
    int session = 0;
    int client = 0;
    size_t index = 0;
  };

  void Train(const Member& member);
  // False: stop.
  bool Take(const Member& member, const StepKey& step, std::vector<std::unique_ptr<Client>>* clients, size_t* target);
  // Reads sessions of one target all the time: nobody may see what a kill could still take away, nor an old version.
  void Read(const std::string& target);
  void WaitUntilServing();
  std::unique_ptr<Client> Connect(const std::string& target, bool retries) const;

  const TrainerOptions options_;
  Ledger* const ledger_;
  std::vector<Member> members_;
  std::atomic<bool> finishing_{false}, abandoning_{false};
  Mutex mu_;
  CondVar changed_;
  bool serving_ ABSL_GUARDED_BY(mu_) = true;
  std::vector<std::thread> threads_;
};

}  // namespace normd::crash

#endif  // NORMD_TESTS_CRASH_TRAINERS_H_
