// The C++ client of a normd server: typed calls with deadlines and safe retries. It keeps one connection for small
// messages and one for large messages, so that a small call never waits behind a large one.
//
//   #include <normd/client.h>
//
//   #include <iostream>
//
//   int main() {
//     const auto client = normd::Client::Connect("127.0.0.1:8001");  // one for the process, shared by its threads
//     if (!client.ok()) return 1;
//     normd::v1::NormSpec spec;
//     spec.mutable_layer_norm()->add_normalized_shape(4);
//     const absl::StatusOr<normd::client::Tensor> y =
//         (*client)->NormalizeTensor(spec, normd::client::Tensor::F32({1, 4}, {1, 2, 3, 4}));
//     if (!y.ok()) {
//       std::cerr << normd::client::ToText(y.status()) << "\n";
//       return 1;
//     }
//     for (float value : y->ToFloats()) std::cout << value << " ";  // -1.34164 -0.447212 0.447212 1.34164
//   }
//
// In the path: a request starts here and its reply ends here. The library knows the contract (the .proto files) and
// gRPC, and nothing of the server's code; this header needs no gRPC.
// Threads: a Client is safe from any number of threads. Its calls block until their reply or deadline.
// Ownership: a Client owns its connections. A NormalizeStream or a SessionWatch keeps what it needs and may
// outlive the Client.
#ifndef NORMD_CLIENT_CPP_CLIENT_H_
#define NORMD_CLIENT_CPP_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cpp/cuda_region.h"
#include "client/cpp/retry.h"
#include "client/cpp/security.h"
#include "client/cpp/session_watch.h"
#include "client/cpp/shared_memory.h"
#include "client/cpp/status.h"
#include "client/cpp/tensor.h"
#include "normd/v1/normalizer.pb.h"
#include "normd/v1/sessions.pb.h"

namespace normd {

namespace client {
class MomentsSender;
}  // namespace client

// Options of a Client; constant after Connect. Sizes are in bytes.
struct ClientOptions {
  // The time limit of each call, its retries included. Must be positive; InfiniteDuration() is allowed.
  absl::Duration deadline = absl::Seconds(30);
  // The largest message to receive and to send, at most 2^31 - 1. -1 sets no limit here: the server's limit applies.
  int64_t max_receive_bytes = -1;
  int64_t max_send_bytes = -1;
  // Requests of at least this size use the connection for large messages.
  int64_t large_message_bytes = 256 << 10;
  // Which failed calls are sent again, and when.
  client::RetryOptions retry;
  // Spreads the calls over all addresses of the target ("ipv4:10.0.0.1:8001,10.0.0.2:8001", or a DNS name that has
  // several), and leaves out servers whose health is not SERVING, as that of a draining one. A server that comes back
  // is looked for every 1.2 s. Without `balance` all calls go to the first address that answers. Not for a single
  // server: its calls would fail as soon as it begins to drain.
  bool balance = false;
  // Makes Normalize and NormalizeTensor pass tensors of 64 KiB and more through memory shared with the server, if the
  // target is "unix:". Responses are the same; where shared memory is unavailable, tensors are sent. Takes
  // shared_region_bytes of memory, and up to 1 GiB if the calls in progress need more.
  bool shared_memory = false;
  // The memory that shared_memory takes at a time, from one page to 1 GiB. A process that makes few calls saves time by
  // taking no more than x and y need, because the system clears every page.
  int64_t shared_region_bytes = int64_t{64} << 20;
  // Makes Connect look for the Unix socket of a server at a loopback address, and use the socket if it leads to the
  // same process: for shared memory, and for speed. Connect then asks the server, for at most two seconds. Over TLS
  // Connect does not look: the server at the address has proved its name and knows the caller by certificate or token;
  // a socket proves nothing, so no token may follow there, and without it the caller would be another one.
  bool prefer_unix_socket = false;
  // TLS, the client's certificate, its token (<normd/security.h>). By default calls are plain text.
  client::SecurityOptions security;
};

// The server's answer from the standard health service (grpc.health.v1). kUnknown is any other answer than SERVING and
// NOT_SERVING.
enum class Health { kUnknown, kServing, kNotServing };

// One NormalizeStream call: many requests and replies over one stream. The server answers in the order of the requests
// and echoes the `sequence` of each; a request that it refuses is answered by `error`, and the stream goes on.
//
//   std::unique_ptr<normd::NormalizeStream> stream = client->OpenStream(absl::Seconds(60));
//   normd::v1::StreamRequest request;
//   request.set_sequence(1);
//   request.mutable_call()->mutable_spec()->mutable_rms_norm();
//   *request.mutable_call()->mutable_x() = normd::client::Tensor::F32({1, 2}, {3, 4}).ToProto();
//   stream->Write(request);
//   stream->WritesDone();
//   for (normd::v1::StreamResponse response; stream->Read(&response);) {
//     if (response.has_error()) {
//       std::cerr << normd::client::ToText(normd::client::ToStatus(response.error())) << "\n";
//     }
//   }
//   const absl::Status status = stream->Finish();
//
// Threads: one thread may write while another reads; Cancel is safe from any thread. Finish is called once, after both
// are done. To write many requests, read in a second thread: when replies pile up unread, Write blocks.
// Errors: a stream is never retried. When one breaks, open another.
// Ownership: the stream keeps its connection and may outlive its Client.
class NormalizeStream {
 public:
  NormalizeStream(const NormalizeStream&) = delete;
  NormalizeStream& operator=(const NormalizeStream&) = delete;
  // Cancels the call and waits for its end, unless Finish was called.
  ~NormalizeStream();

  // Blocks until there is room for the message. False if the stream is broken: Finish returns the reason.
  bool Write(const v1::StreamRequest& request);
  // Half-closes the stream: no request follows. The server answers the requests that it has read, then ends the stream.
  void WritesDone();
  // Blocks for the next reply. False at the end of the stream.
  bool Read(v1::StreamResponse* response);
  // Calls WritesDone if it was not called, drops unread replies, and returns the final status.
  absl::Status Finish();
  // Ends the call; Finish then returns CANCELLED.
  void Cancel();

 private:
  friend class Client;
  struct Call;
  explicit NormalizeStream(std::unique_ptr<Call> call);
  std::unique_ptr<Call> call_;
};

// The calls of one server.
//
// Sharing and reuse: make one Client per server and keep it for the life of the process. Every method is safe from any
// number of threads at the same time, and calls of different threads run concurrently over the same connections. A
// Client connects on its first call and reconnects by itself after the server was restarted. A Client per request would
// pay for a new connection each time and would have no retry budget to go by. The server bounds the calls of one
// connection that run at a time, streams and CUDA regions included (--max_concurrent_streams: 16 by default, or 8);
// further calls wait in the client. Programs that need more make several Clients. After fork() the child connects a
// Client of its own.
// Lifetime: destroy a Client only when none of its calls is running. Streams, watches, SharedBlocks and CudaRegions
// that it made may outlive it.
// Blocking: a call returns at its deadline at the latest, with one exception that is gRPC's: a call that is still
// writing returns only when its bytes have left the process. A stopped server or a machine that is gone can hold such a
// call in a full socket.
// Errors: every method returns the server's errors (client::GetErrorInfo reads field, reason, value and limit),
// UNAVAILABLE if no server answered, and DEADLINE_EXCEEDED. Calls for which client::IsSafeToRetry holds, and calls that
// only read, are retried as ClientOptions::retry says, within the Client's retry budget (client::RetryBudget). Once the
// budget is used up, the first failure is returned.
class Client {
 public:
  // `target` is "host:port" or "unix:/path" (<normd/local_server.h> finds the socket of a server of this user); without
  // a port it is 8001. Calls to this machine never go through the proxy of http_proxy and the like; for other targets
  // no_proxy counts, and the error of a call that fails names the variable.
  // Connects lazily: an unreachable server is UNAVAILABLE on the first call. INVALID_ARGUMENT for what is no target,
  // for options out of range, for certificate and token files that cannot be used, and for a token that would travel in
  // plain text.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& target, ClientOptions options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // A Client of the same connections and the same retry budget whose calls have another time limit, which must be
  // positive. It may outlive this one.
  std::unique_ptr<Client> WithDeadline(absl::Duration deadline) const;

  // Where the Client connects: the `target` of Connect, or the Unix socket that was preferred.
  const std::string& target() const { return target_; }

  // Normalises one tensor. A request over the server's message limit is sent in chunks (see NormalizeChunked). The
  // Client asks for that limit once, before its first request over 4 MiB, under a deadline of its own.
  absl::StatusOr<v1::NormalizeResponse> Normalize(const v1::NormalizeRequest& request);
  // As above, without copying the tensors on their way out: consumes `request`. With ClientOptions::shared_memory the
  // tensors are copied into shared memory all the same.
  absl::StatusOr<v1::NormalizeResponse> Normalize(v1::NormalizeRequest&& request);
  // As Normalize, on a stream of its own: the data of x and residual.tensor and the outputs travel in chunks, so that
  // x.data may be larger than a message and than protobuf's 2 GiB. DATA_LOSS for a reply whose chunks do not fit. The
  // field paths of errors start with "call.", as on any stream.
  absl::StatusOr<v1::NormalizeResponse> NormalizeChunked(const v1::NormalizeRequest& request);
  // A stateless inference call. Returns y, with dtype and shape of `x`. INTERNAL if the reply is not exactly y.
  absl::StatusOr<client::Tensor> NormalizeTensor(const v1::NormSpec& spec, client::Tensor x,
                                                 const v1::Parameters& parameters = {});
  // Allocates `size_bytes` of memory that a server behind a "unix:" target maps. Requests name it with
  // client::SetShared (<normd/shared_memory.h> has an example), and its tensors are neither sent nor copied. Registers
  // another region with the server where no region has room. INVALID_ARGUMENT for other targets and for sizes outside
  // of 1 byte to 1 GiB, UNAVAILABLE where the server has no shared memory, PERMISSION_DENIED where its socket is closed
  // to this user, RESOURCE_EXHAUSTED at 1 GiB in all or at a limit of the server. A server that restarts forgets the
  // block: requests then return NOT_FOUND, and a new block must be allocated.
  absl::StatusOr<client::SharedBlock> AllocateShared(int64_t size_bytes);
  // Registers memory of a CUDA device that this process owns. Requests name it with client::SetShared
  // (<normd/cuda_region.h> has an example), and its tensors never leave the device. The server must run on this machine
  // and use the device: FAILED_PRECONDITION if it uses none, INVALID_ARGUMENT for a handle that it cannot open,
  // RESOURCE_EXHAUSTED at a limit of the server. Never retried. The region has a connection of its own and ends with
  // it: requests then return NOT_FOUND.
  absl::StatusOr<std::unique_ptr<client::CudaRegion>> RegisterCuda(const client::CudaMemory& memory);
  // Many requests in one message. The returned status covers the call as a whole; each item carries its own status
  // (client::ToStatus).
  absl::StatusOr<v1::BatchNormalizeResponse> BatchNormalize(const v1::BatchNormalizeRequest& request);
  // Opens a stream on the connection for large messages. `deadline` covers the whole stream. Never fails: the stream's
  // methods report errors.
  std::unique_ptr<NormalizeStream> OpenStream(absl::Duration deadline = absl::InfiniteDuration());
  // The reduce pass alone: count, mean and M2 of each statistics group, to be merged by CommitMoments. With
  // `want_exact` they carry exact sums and are the nearest values to these.
  absl::StatusOr<v1::ComputeMomentsResponse> ComputeMoments(const v1::ComputeMomentsRequest& request);
  // The calls of Normalize so far whose tensors went through shared memory by ClientOptions::shared_memory.
  int64_t shared_calls() const;
  // What the server offers: version, methods and their attributes, dtypes, devices, limits.
  absl::StatusOr<v1::DescribeResponse> Describe();

  // Sessions: layers that live on the server. `name` is "sessions/{id}".
  //
  //   normd::v1::CreateSessionRequest create;  // without a session_id: the server chooses one
  //   create.mutable_session()->set_num_channels(2);
  //   create.mutable_session()->set_default_dtype(normd::v1::DTYPE_F32);
  //   create.mutable_session()->mutable_spec()->mutable_batch_norm()->set_layout(normd::v1::LAYOUT_CHANNELS_LAST);
  //   const absl::StatusOr<normd::v1::Session> session = client->CreateSession(create);
  //   if (!session.ok()) return session.status();
  //   normd::v1::NormalizeRequest request;
  //   request.set_session(session->name());
  //   request.set_mode(normd::v1::MODE_TRAINING);
  //   request.mutable_step()->set_client_id("worker-0");  // with a StepId the step is retried, and applied once
  //   request.mutable_step()->set_sequence(1);
  //   *request.mutable_x() = normd::client::Tensor::F32({2, 2}, {1, 10, 3, 30}).ToProto();
  //   const absl::StatusOr<normd::v1::NormalizeResponse> response = client->Normalize(request);
  //
  // Calls that read are retried, and so is CommitMoments with a StepId. Other calls that change something are sent
  // once, except CreateSession and ForkSession with a session_id: if a try got no answer and the next one finds the id
  // taken, the existing session is returned. That session is certain to be this call's own work only if nobody else
  // uses the id. If the existing session has another method, number of channels or other labels than the one to create,
  // CreateSession returns ALREADY_EXISTS.
  absl::StatusOr<v1::Session> CreateSession(const v1::CreateSessionRequest& request);
  // SESSION_VIEW_FULL adds the parameters, the running state, the names of the channels and the digest. A session whose
  // version is not above `newer_than_version` is returned in SESSION_VIEW_BASIC all the same, so that a caller who asks
  // again and again receives tensors once a version.
  absl::StatusOr<v1::Session> GetSession(const std::string& name, v1::SessionView view = v1::SESSION_VIEW_BASIC,
                                         std::optional<uint64_t> newer_than_version = std::nullopt);
  // Opens a watch on the session's versions (<normd/session_watch.h>). Never fails: SessionWatch::Next reports errors.
  // A watch is a call for as long as it lives, on the connection for large messages.
  std::unique_ptr<SessionWatch> WatchSession(const std::string& name, WatchOptions options = {});
  // One page of sessions. `next_page_token` of the response is the `page_token` of the request for the next page.
  absl::StatusOr<v1::ListSessionsResponse> ListSessions(const v1::ListSessionsRequest& request);
  // Changes the fields that `update_mask` names: parameters, labels, ttl, frozen.
  absl::StatusOr<v1::Session> UpdateSession(const v1::UpdateSessionRequest& request);
  // Makes the session refuse every change but its deletion, for good: FAILED_PRECONDITION, reason SESSION_FROZEN. A
  // session that is frozen already is returned as it is, and so the call is retried.
  absl::StatusOr<v1::Session> FreezeSession(const std::string& name);
  // Sets the running state back to its initial values.
  absl::StatusOr<v1::Session> ResetSession(const v1::ResetSessionRequest& request);
  // Copies a session under another id. With `frozen` the copy is a version for good, whatever becomes of the original.
  absl::StatusOr<v1::Session> ForkSession(const v1::ForkSessionRequest& request);
  absl::Status DeleteSession(const v1::DeleteSessionRequest& request);
  // Applies one training step from the partial moments of one or several callers, merged in the order given. If all of
  // them carry exact sums, the state does not depend on the order, nor on how the batch was cut into parts:
  //
  //   normd::v1::ComputeMomentsRequest part;  // each worker, of its own rows
  //   part.set_session("sessions/bn");
  //   part.set_want_exact(true);
  //   *part.mutable_x() = normd::client::Tensor::F32({2, 2}, {1, 10, 3, 30}).ToProto();
  //   normd::v1::CommitMomentsRequest step;   // one of them
  //   step.set_session("sessions/bn");
  //   *step.add_moments() = client->ComputeMoments(part)->moments();
  //   client->CommitMoments(step);
  //
  // With `want_state` the reply carries the session's newest state, which holds the step. Moments with `channel_names`
  // are put in the session's order by these names: INVALID_ARGUMENT for a name that is missing, unknown or given twice.
  absl::StatusOr<v1::StateResult> CommitMoments(const v1::CommitMomentsRequest& request);
  // The session as the server's serialised record. The offset and checksum of every chunk are checked: DATA_LOSS.
  absl::StatusOr<std::string> ExportSession(const std::string& name);
  // Creates a session from the bytes of ExportSession. An empty `session_id` keeps the id of the record.
  absl::StatusOr<v1::Session> ImportSession(absl::string_view record, const std::string& session_id = "");

  // Never retried. The status says whether the question was answered; the value is the answer.
  absl::StatusOr<Health> CheckHealth();

 private:
  friend class client::MomentsSender;
  struct Channels;
  // The server's limits: asked for once, then remembered.
  absl::StatusOr<v1::Limits> GetLimits();
  std::optional<v1::Limits> KnownLimits() const;
  // True if `request_bytes` is over the server's message limit and the server takes tensors in chunks.
  bool MustGoInChunks(size_t request_bytes);
  template <typename Create, typename IsOurs>
  absl::StatusOr<v1::Session> CreateWithId(const std::string& id, Create create, IsOurs is_ours);
  struct Sharing;
  Client(const std::string& target, ClientOptions options, std::shared_ptr<Channels> channels);

  absl::StatusOr<v1::NormalizeResponse> SendNormalize(const ClientOptions& options,
                                                      const v1::NormalizeRequest& request);
  absl::StatusOr<v1::NormalizeResponse> SendShared(const ClientOptions& options, client::SharedCall call);

  // Waits for `duration`, until `is_over` returns true, or until the connection for requests of `request_bytes` is made
  // again: what those do who try again by themselves.
  void WaitForConnection(size_t request_bytes, absl::Duration duration, absl::FunctionRef<bool()> is_over) const;

  const std::string target_;
  const ClientOptions options_;
  const std::shared_ptr<Channels> channels_;  // of the Clients that WithDeadline made, too, and of watches
  const std::unique_ptr<Sharing> sharing_;
};

}  // namespace normd

#endif  // NORMD_CLIENT_CPP_CLIENT_H_
