// The inside of Client: its two connections, what they carry to be let in, and the loop that runs every unary call.
// Only sources of this library include it, so that users of client.h compile without gRPC. Threads: Client::Channels is
// safe from any thread. Ownership: a Client owns one.
#ifndef NORMD_CLIENT_CPP_CHANNELS_H_
#define NORMD_CLIENT_CPP_CHANNELS_H_

#include <grpcpp/grpcpp.h>
#include <algorithm>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "client/cpp/client.h"
#include "client/cpp/connection_error.h"
#include "client/cpp/credentials.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "normd/v1/normalizer.grpc.pb.h"
#include "normd/v1/sessions.grpc.pb.h"
#include "proto/wire/http_proxy.h"
#include "proto/wire/metadata.h"

namespace normd {
namespace client {

inline absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return MakeStatus(status.error_code(), status.error_message(), status.error_details());
}

// The status of the call of `context`, which has ended, with its request id.
inline absl::Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context) {
  if (status.ok()) return absl::OkStatus();
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto id = trailers.find(wire::kRequestIdKey);
  if (id == trailers.end()) return FromGrpc(status);
  return WithRequestId(FromGrpc(status), absl::string_view(id->second.data(), id->second.size()));
}

// Tells the server the size of a large request, so that it can refuse the request before it is sent. Small calls are
// not worth the metadata.
inline void Announce(const ClientOptions& options, size_t request_bytes, grpc::ClientContext* context) {
  if (static_cast<int64_t>(request_bytes) < options.large_message_bytes) return;
  context->AddMetadata(wire::kMessageBytesKey, std::to_string(request_bytes));
}

// Tells balancers which session a call is for. Text that metadata cannot carry is left out: it is no session's name.
inline void NameSession(const std::string& name, grpc::ClientContext* context) {
  constexpr size_t kLongest = 128;
  const bool can_be_sent =
      name.size() <= kLongest && std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (!name.empty() && can_be_sent) context->AddMetadata(wire::kSessionKey, name);
}

// Takes turns over the addresses of a target, and asks each server's health: one that says NOT_SERVING gets no calls.
inline constexpr char kBalancedConfig[] =
    R"({"loadBalancingConfig":[{"round_robin":{}}],"healthCheckConfig":{"serviceName":""}})";

// A channel to `target` with a connection of its own. Channels to the same target need different `index` values.
inline std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target, const ClientOptions& options,
                                                  const Credentials& credentials, int index) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(options.max_receive_bytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(options.max_send_bytes));
  // Channels with equal arguments would share one connection.
  arguments.SetInt("normd.connection", index);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A restarted server is found again within the retries of one call. GRPC_ARG_MIN_RECONNECT_BACKOFF_MS keeps its
  // default, because in this release it also bounds the time of one connection attempt.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000);
  if (options.balance) {
    arguments.SetServiceConfigJSON(kBalancedConfig);
    // While one server is down the others do its work. It must be back in use before the next one is restarted.
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  }
  // Otherwise gRPC would ask the environment's proxy for a server on this machine, too.
  if (!wire::HttpProxyOf(target).has_value()) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (!options.security.server_name.empty()) arguments.SetSslTargetNameOverride(options.security.server_name);
  return grpc::CreateCustomChannel(target, credentials.channel(), arguments);
}

// Converts to gRPC's deadline. InfiniteFuture becomes the largest time point.
inline std::chrono::system_clock::time_point ToDeadline(absl::Time when) {
  return when == absl::InfiniteFuture() ? std::chrono::system_clock::time_point::max() : absl::ToChronoTime(when);
}

// What a call goes by: its own options and session, and the credentials and the retry budget that all calls of the
// client share.
struct CallTerms {
  const ClientOptions& options;
  const Credentials& credentials;
  RetryBudget& budget;
  const Callee& callee;
  std::string session;  // its name; empty: the call is for no single session
};

// What every call carries, streams included.
inline void PrepareContext(absl::Time deadline, const Credentials& credentials, grpc::ClientContext* context) {
  context->set_deadline(ToDeadline(deadline));
  credentials.AddTo(context);
}

// Waits for `duration`, until `is_over()`, or until the channel connects again. A thread that only sleeps would wait
// for longer: gRPC goes on with a connection while a thread waits for it, and else looks after it every 5 s.
template <typename IsOver>
void WaitForConnection(grpc::Channel& channel, absl::Duration duration, IsOver is_over) {
  constexpr absl::Duration kSlice = absl::Milliseconds(20);  // the longest time until `is_over` is asked
  const absl::Time end = absl::Now() + duration;
  // A server that is connected, and refuses, is given the whole time.
  const bool was_connected = channel.GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY;
  while (absl::Now() < end && !is_over()) {
    const absl::Time slice_end = std::min(end, absl::Now() + kSlice);
    if (was_connected) {
      std::this_thread::sleep_for(absl::ToChronoNanoseconds(slice_end - absl::Now()));
    } else if (channel.WaitForConnected(ToDeadline(slice_end))) {
      return;
    }
  }
}

}  // namespace client

struct Client::Channels {
  // A channel and the stubs that use it.
  struct Connection {
    explicit Connection(const std::shared_ptr<grpc::Channel>& to)
        : channel(to),
          normalize_method("/normd.v1.Normalizer/Normalize", grpc::internal::RpcMethod::NORMAL_RPC, to),
          normalizer(v1::Normalizer::NewStub(to)),
          sessions(v1::Sessions::NewStub(to)),
          health(grpc::health::v1::Health::NewStub(to)) {}

    const std::shared_ptr<grpc::Channel> channel;
    // The method as the generated stub has it, for messages that are already slices.
    const grpc::internal::RpcMethod normalize_method;
    const std::unique_ptr<v1::Normalizer::Stub> normalizer;
    const std::unique_ptr<v1::Sessions::Stub> sessions;
    const std::unique_ptr<grpc::health::v1::Health::Stub> health;
  };

  Channels(const std::string& target, const ClientOptions& options, std::unique_ptr<client::Credentials> to_be_let_in)
      : credentials(std::move(to_be_let_in)),
        callee(client::MakeCallee(target, options.security)),
        small(client::MakeChannel(target, options, *credentials, 0)),
        large(client::MakeChannel(target, options, *credentials, 1)),
        budget(options.retry) {}

  // What a call with these options goes by, as RunUnary takes it. Borrows `options`.
  client::CallTerms Terms(const ClientOptions& options, std::string session = {}) {
    return {options, *credentials, budget, callee, std::move(session)};
  }

  Connection& For(const ClientOptions& options, size_t request_bytes) {
    return static_cast<int64_t>(request_bytes) >= options.large_message_bytes ? large : small;
  }

  const std::unique_ptr<client::Credentials> credentials;
  const client::Callee callee;  // for errors
  Connection small, large;
  client::RetryBudget budget;

  std::mutex mu;
  std::optional<v1::Limits> limits;  // guarded by mu; absent until asked for
};

namespace client {

// Runs `call(context, response)` until it succeeds, fails for good, or the deadline or the end of the retry budget is
// near. `safe`: the call may be repeated.
template <typename Response, typename Call>
absl::StatusOr<Response> RunUnary(const CallTerms& terms, bool safe, Call call) {
  const ClientOptions& options = terms.options;
  const absl::Time deadline = absl::Now() + options.deadline;
  for (int attempt = 1;; ++attempt) {
    grpc::ClientContext context;
    PrepareContext(deadline, terms.credentials, &context);
    NameSession(terms.session, &context);
    Response response;
    const absl::Status status = FromGrpc(call(&context, &response), context);
    if (status.ok()) {
      terms.budget.NoteSuccess();
      return response;
    }
    if (!safe) return ExplainConnection(status, terms.callee);
    const std::optional<absl::Duration> wait =
        NextWait(options.retry, status, attempt, deadline - absl::Now(), DrawUniform());
    if (!wait.has_value() || !terms.budget.Take()) return ExplainConnection(status, terms.callee);
    std::this_thread::sleep_for(absl::ToChronoNanoseconds(*wait));
  }
}

}  // namespace client
}  // namespace normd

#endif  // NORMD_CLIENT_CPP_CHANNELS_H_
