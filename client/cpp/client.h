// The C++ client of a normd server: typed calls with deadlines, safe retries, and separate connections for small and
// large messages, so that a small call never waits behind a large one.
// In the path: where a request starts and its reply ends. It knows the contract (proto/) and gRPC, nothing of server/.
// Threads: a Client is safe from any number of threads; calls block until their reply or deadline.
// Ownership: a Client owns its connections; a NormalizeStream keeps what it needs and may outlive the Client.
#ifndef NORMD_CLIENT_CPP_CLIENT_H_
#define NORMD_CLIENT_CPP_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cpp/cuda_region.h"
#include "client/cpp/retry.h"
#include "client/cpp/shared_memory.h"
#include "client/cpp/status.h"
#include "client/cpp/tensor.h"
#include "normd/v1/normalizer.pb.h"
#include "normd/v1/sessions.pb.h"

namespace normd {

struct ClientOptions {
  absl::Duration deadline = absl::Seconds(30);  // of each call, its retries included; InfiniteDuration() is allowed
  int64_t max_receive_bytes = -1;               // of one message; -1: whatever the server sends
  int64_t max_send_bytes = -1;                  // -1: the server's limit decides
  int64_t large_message_bytes = 256 << 10;      // requests from this size on use the connection for large messages
  client::RetryOptions retry;
  // Whether Normalize puts large tensors into memory that it shares with the server, of a "unix:" target. Callers see
  // no difference; where it cannot be had, tensors are sent. It takes 64 MiB of memory, and more for more at one time.
  bool shared_memory = false;
};

// How sure it is that the server can be used, from grpc.health.v1.
enum class Health { kUnknown, kServing, kNotServing };

// One NormalizeStream call. One thread may write while another reads; Finish after both are done.
class NormalizeStream {
 public:
  NormalizeStream(const NormalizeStream&) = delete;
  NormalizeStream& operator=(const NormalizeStream&) = delete;
  ~NormalizeStream();  // cancels a call that Finish was not called for

  // False when the stream is broken: Finish says why.
  bool Write(const v1::StreamRequest& request);
  // Half-close: no more requests. The server answers what it has read, then ends the stream.
  void WritesDone();
  // Blocks for the next reply; false at the end of the stream.
  bool Read(v1::StreamResponse* response);
  // Half-closes if that was not done, drops replies that were not read, and returns the final status.
  absl::Status Finish();
  // Ends the call from any thread; Finish returns CANCELLED.
  void Cancel();

 private:
  friend class Client;
  struct Call;
  explicit NormalizeStream(std::unique_ptr<Call> call);
  std::unique_ptr<Call> call_;
};

class Client {
 public:
  // `target`: "host:port" or "unix:/path". Connects lazily: an unreachable server is UNAVAILABLE on the first call.
  // INVALID_ARGUMENT for an empty target and options out of range.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& target, ClientOptions options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Errors of every method: those of the contract (client::GetErrorInfo reads field, reason, value and limit),
  // UNAVAILABLE when no server answered, DEADLINE_EXCEEDED. Retried where client::IsSafeToRetry holds, within the
  // client's retry budget (client::RetryBudget): once it is used up, the first failure is returned.
  // A request that is larger than the server's messages may be (it is asked once, for one over 4 MiB) goes in chunks.
  absl::StatusOr<v1::NormalizeResponse> Normalize(const v1::NormalizeRequest& request);
  // The same without a copy of the tensors on their way out: the request is given up.
  absl::StatusOr<v1::NormalizeResponse> Normalize(v1::NormalizeRequest&& request);
  // The same on a stream of its own, the data of x and residual.tensor and the outputs in chunks: x.data may be larger
  // than a message, also than protobuf's 2 GiB. DATA_LOSS for a reply whose chunks do not fit; fields that errors name
  // start with "call.", as on any stream.
  absl::StatusOr<v1::NormalizeResponse> NormalizeChunked(const v1::NormalizeRequest& request);
  // y of a stateless call.
  absl::StatusOr<client::Tensor> NormalizeTensor(const v1::NormSpec& spec, client::Tensor x,
                                                 const v1::Parameters& parameters = {});
  // Memory that a "unix:" server maps, for tensors that requests name with client::SetShared and that are neither sent
  // nor copied. Asks the server for a region where none has room. INVALID_ARGUMENT for other targets, UNAVAILABLE where
  // the server has no shared memory, RESOURCE_EXHAUSTED at 1 GiB or at a limit of the server. A server that restarts
  // forgets it: NOT_FOUND on the request, and a new block has to be allocated.
  absl::StatusOr<client::SharedBlock> AllocateShared(int64_t size_bytes);
  // Memory of a CUDA device that this process has, for tensors that requests name with client::SetShared and that never
  // leave the device. Needs a server on this machine that uses the device: FAILED_PRECONDITION for one that uses none,
  // INVALID_ARGUMENT for a handle that it cannot open, RESOURCE_EXHAUSTED at a limit of the server. Never retried. The
  // connection that the region lives on is its own: as with AllocateShared, NOT_FOUND after it is lost.
  absl::StatusOr<std::unique_ptr<client::CudaRegion>> RegisterCuda(const client::CudaMemory& memory);
  // A status for the whole; each item carries its own (client::ToStatus).
  absl::StatusOr<v1::BatchNormalizeResponse> BatchNormalize(const v1::BatchNormalizeRequest& request);
  // Opens a stream on the connection for large messages. `deadline` covers the whole stream.
  std::unique_ptr<NormalizeStream> OpenStream(absl::Duration deadline = absl::InfiniteDuration());
  absl::StatusOr<v1::ComputeMomentsResponse> ComputeMoments(const v1::ComputeMomentsRequest& request);
  absl::StatusOr<v1::DescribeResponse> Describe();

  // Sessions. `name` is "sessions/{id}". Calls that change something without a StepId are sent once, but for
  // CreateSession and ForkSession with a session_id: where a try got no answer and the next one finds the id taken, the
  // session that is there is returned. That it is this call's own work is sure of an id that nobody else uses; a
  // created session of another method, number of channels or other labels is ALREADY_EXISTS.
  absl::StatusOr<v1::Session> CreateSession(const v1::CreateSessionRequest& request);
  absl::StatusOr<v1::Session> GetSession(const std::string& name, v1::SessionView view = v1::SESSION_VIEW_BASIC);
  absl::StatusOr<v1::ListSessionsResponse> ListSessions(const v1::ListSessionsRequest& request);
  absl::StatusOr<v1::Session> UpdateSession(const v1::UpdateSessionRequest& request);
  absl::StatusOr<v1::Session> ResetSession(const v1::ResetSessionRequest& request);
  absl::StatusOr<v1::Session> ForkSession(const v1::ForkSessionRequest& request);
  absl::Status DeleteSession(const v1::DeleteSessionRequest& request);
  absl::StatusOr<v1::StateResult> CommitMoments(const v1::CommitMomentsRequest& request);
  // The serialised session, every chunk's offset and checksum checked.
  absl::StatusOr<std::string> ExportSession(const std::string& name);
  // Creates a session from exported bytes; an empty `session_id` keeps the id in the record.
  absl::StatusOr<v1::Session> ImportSession(absl::string_view record, const std::string& session_id = "");

  // Never retried. The status is that of asking; the value is the answer.
  absl::StatusOr<Health> CheckHealth();

 private:
  struct Channels;
  Client(ClientOptions options, std::unique_ptr<Channels> channels);
  // The server's, asked for once.
  absl::StatusOr<v1::Limits> GetLimits();
  // Whether the server takes no message so large, but its tensors in chunks.
  bool MustGoInChunks(size_t request_bytes);
  template <typename Create, typename IsOurs>
  absl::StatusOr<v1::Session> CreateWithId(const std::string& id, Create create, IsOurs is_ours);
  struct Sharing;
  Client(const std::string& target, ClientOptions options, std::unique_ptr<Channels> channels);

  absl::StatusOr<v1::NormalizeResponse> SendNormalize(const ClientOptions& options,
                                                      const v1::NormalizeRequest& request);
  absl::StatusOr<v1::NormalizeResponse> SendShared(const ClientOptions& options, client::SharedCall call);

  const std::string target_;
  const ClientOptions options_;
  const std::unique_ptr<Channels> channels_;
  const std::unique_ptr<Sharing> sharing_;
};

}  // namespace normd

#endif  // NORMD_CLIENT_CPP_CLIENT_H_
