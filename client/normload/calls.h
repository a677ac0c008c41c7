// The calls of a mix as messages. They are made once and shared by all workers; each worker sends them through a Caller
// of its own. Values are drawn from a fixed seed.
#ifndef NORMD_CLIENT_NORMLOAD_CALLS_H_
#define NORMD_CLIENT_NORMLOAD_CALLS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cpp/client.h"
#include "client/normload/mix.h"

namespace normd::client {

// The request of one entry, including x. Only the message that the entry's transport uses is set.
struct PreparedCall {
  MixEntry entry;
  v1::NormalizeRequest request;
  v1::BatchNormalizeRequest batch;
  v1::StreamRequest message;
};

v1::NormalizeRequest MakeRequest(const MixEntry& entry);
std::vector<PreparedCall> PrepareCalls(absl::Span<const MixEntry> entries);

// The result of one call.
struct CallOutcome {
  int64_t items = 0;                           // normalised tensors
  int64_t bytes_sent = 0, bytes_received = 0;  // tensor bytes
  std::string kernel;                          // "cpu/avx3/rows"
};

// Sends the calls of one worker. Borrows `calls` and `client`. Not thread-safe.
class Caller {
 public:
  // Streams end at `streams_end`, whatever the server does, because a stream has no deadline for a single call. `id`
  // names the training steps; no two callers of a session may share an id.
  Caller(absl::Span<const PreparedCall> calls, Client& client, absl::Time streams_end, std::string id)
      : calls_(calls), client_(client), streams_end_(streams_end), id_(std::move(id)) {}

  // Sends entry `index` and waits for the reply. A call fails if any of its items fails.
  absl::Status Call(size_t index, CallOutcome& outcome);

 private:
  absl::Status CallUnary(const PreparedCall& call, CallOutcome& outcome);
  absl::Status CallBatch(const PreparedCall& call, CallOutcome& outcome);
  absl::Status CallStream(const PreparedCall& call, CallOutcome& outcome);
  // The messages of entry `index`, with the id of the next step.
  const PreparedCall& NextStep(size_t index);

  const absl::Span<const PreparedCall> calls_;
  Client& client_;
  const absl::Time streams_end_;
  const std::string id_;
  std::unique_ptr<NormalizeStream> stream_;
  std::map<size_t, PreparedCall> own_;  // copies of the entries with step ids
  uint64_t last_sequence_ = 0;
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_CALLS_H_
