// The thread that sends a process's samples to the server, and learns what others have added.
// In the path: RunningMoments adds samples here; Client::CommitMoments carries them.
// Threads: safe from any thread; callers never wait for the network, except in Flush and Refresh. Ownership: uses the
// connections of the Client that it was made with, and keeps them.
#ifndef NORMD_CLIENT_CPP_MOMENTS_SENDER_H_
#define NORMD_CLIENT_CPP_MOMENTS_SENDER_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "client/cpp/moments_ledger.h"

namespace normd::client {

struct SenderOptions {
  std::string session;  // "sessions/observations"
  MergeRule rule;
  int64_t flush_samples = 0;      // sends as soon as a channel has so many samples
  absl::Duration flush_interval;  // or after so long
};

class MomentsSender {
 public:
  // `client`: every call has its deadline. `known`: the state to begin with.
  MomentsSender(std::unique_ptr<Client> client, SenderOptions options, KnownState known);
  MomentsSender(const MomentsSender&) = delete;
  MomentsSender& operator=(const MomentsSender&) = delete;
  // Stops the thread after the call that it is in. Sends nothing: see Flush.
  ~MomentsSender();

  // The error for which the server refuses what is sent, for good; otherwise OK.
  absl::Status Add(const SampleMoments& samples);
  // The server's state with the own samples. The digest is empty unless the state is the server's alone.
  KnownState Seen();
  // Waits until the server has acknowledged all samples that were added before. The reason after `timeout`: the samples
  // are kept and sent again.
  absl::Status Flush(absl::Duration timeout);
  // Reads the server's state: one call.
  absl::Status Refresh();

 private:
  void Run();
  // Waits until there is something to do. False when the sender is closing.
  bool WaitForWork();
  absl::Status SendOrLearn();
  // Notes what a try came to. False if the server refuses for good.
  bool GoesOnAfter(const absl::Status& status);
  bool IsClosing();
  absl::Status Send(const MomentsLedger::Contribution& contribution);
  absl::Status Learn(bool needs_digest);
  bool IsDue() const { return asked_ || ledger_.pending_samples() >= static_cast<double>(options_.flush_samples); }

  // Constant after construction.
  const std::unique_ptr<Client> client_;
  const SenderOptions options_;
  const std::string client_id_;  // of this object's steps alone
  const size_t request_bytes_;   // the size of a contribution, roughly

  std::mutex mu_;
  std::condition_variable changed_;
  // ---- guarded by mu_
  MomentsLedger ledger_;
  // The calls of Add so far: all, those whose samples were sent, and those whose samples were acknowledged.
  uint64_t added_ = 0, sent_ = 0, acknowledged_ = 0;
  bool asked_ = false;  // a caller waits in Flush
  bool closing_ = false;
  absl::Status failure_;  // for good
  absl::Status trouble_;  // of the last try

  std::thread thread_;
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_MOMENTS_SENDER_H_
