#include "client/cpp/client.h"

#include <grpcpp/impl/client_unary_call.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "absl/strings/str_cat.h"
#include "client/cpp/channels.h"
#include "client/cpp/local_server.h"
#include "client/cpp/normalize_stream.h"
#include "client/cpp/slices.h"
#include "client/cpp/target.h"

namespace normd {
namespace {

using client::RunUnary;

// Requests up to this size are sent without asking for the server's limit: gRPC's own default, and few servers set
// less.
constexpr int64_t kUnaskedBytes = 4 << 20;

constexpr int64_t kMinRegionBytes = 4096;
constexpr int64_t kMaxRegionBytes = int64_t{1} << 30;

absl::Status OutOfRange(absl::string_view field, const absl::AlphaNum& value, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, "; it must be ", wanted));
}

absl::Status CheckRetryOptions(const client::RetryOptions& retry) {
  if (retry.max_attempts < 1) return OutOfRange("retry.max_attempts", retry.max_attempts, "at least 1");
  if (!(retry.jitter >= 0 && retry.jitter <= 1)) return OutOfRange("retry.jitter", retry.jitter, "0 to 1");
  if (!(retry.multiplier >= 1)) return OutOfRange("retry.multiplier", retry.multiplier, "at least 1");
  if (!(retry.budget_tokens >= 0)) return OutOfRange("retry.budget_tokens", retry.budget_tokens, "at least 0");
  if (!(retry.budget_return >= 0)) return OutOfRange("retry.budget_return", retry.budget_return, "at least 0");
  return absl::OkStatus();
}

absl::Status CheckOptions(const ClientOptions& options) {
  constexpr int64_t kMaxBytes = std::numeric_limits<int>::max();
  if (options.deadline <= absl::ZeroDuration()) {
    return OutOfRange("deadline", absl::FormatDuration(options.deadline), "above 0");
  }
  for (const auto& [name, bytes] : {std::pair("max_receive_bytes", options.max_receive_bytes),
                                    std::pair("max_send_bytes", options.max_send_bytes)}) {
    if (bytes < -1 || bytes > kMaxBytes) return OutOfRange(name, bytes, absl::StrCat("-1 to ", kMaxBytes));
  }
  if (options.shared_region_bytes < kMinRegionBytes || options.shared_region_bytes > kMaxRegionBytes) {
    return OutOfRange("shared_region_bytes", options.shared_region_bytes,
                      absl::StrCat(kMinRegionBytes, " to ", kMaxRegionBytes));
  }
  return CheckRetryOptions(options.retry);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const std::string& target, ClientOptions options) {
  absl::StatusOr<std::string> completed = client::CompleteTarget("target", target);
  if (!completed.ok()) return completed.status();
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  std::string to = *std::move(completed);
  if (options.prefer_unix_socket) to = client::FindUnixSocketOf(to, options).value_or(to);
  absl::StatusOr<std::unique_ptr<client::Credentials>> credentials = client::Credentials::Make(to, options.security);
  if (!credentials.ok()) return credentials.status();
  auto channels = std::make_shared<Channels>(to, options, *std::move(credentials));
  return std::unique_ptr<Client>(new Client(to, std::move(options), std::move(channels)));
}

// Blocks of callers and blocks of calls come from separate arenas, because the arena of calls may be abandoned at any
// time.
struct Client::Sharing {
  Sharing(const std::string& target, int64_t region_bytes)
      : blocks(target, {}),
        call_blocks(target, {.region_bytes = region_bytes, .timeout = kPatience}),
        calls(&call_blocks) {}

  // How long a call waits for shared memory, which it can do without.
  static constexpr absl::Duration kPatience = absl::Seconds(1);
  client::SharedMemory blocks, call_blocks;
  client::SharedCalls calls;
  std::atomic<int64_t> answered{0};  // calls that ended well over shared memory
};

Client::Client(const std::string& target, ClientOptions options, std::shared_ptr<Channels> channels)
    : target_(target),
      options_(std::move(options)),
      channels_(std::move(channels)),
      sharing_(std::make_unique<Sharing>(target, options_.shared_region_bytes)) {}
Client::~Client() = default;

std::unique_ptr<Client> Client::WithDeadline(absl::Duration deadline) const {
  ClientOptions options = options_;
  options.deadline = deadline;
  return std::unique_ptr<Client>(new Client(target_, std::move(options), channels_));
}

void Client::WaitForConnection(size_t request_bytes, absl::Duration duration, absl::FunctionRef<bool()> is_over) const {
  client::WaitForConnection(*channels_->For(options_, request_bytes).channel, duration, is_over);
}

int64_t Client::shared_calls() const { return sharing_->answered.load(std::memory_order_relaxed); }

absl::StatusOr<client::SharedBlock> Client::AllocateShared(int64_t size_bytes) {
  return sharing_->blocks.Allocate(size_bytes);
}

absl::StatusOr<v1::NormalizeResponse> Client::Normalize(const v1::NormalizeRequest& request) {
  if (!options_.shared_memory) return SendNormalize(options_, request);
  const absl::Time deadline = absl::Now() + options_.deadline;
  ClientOptions rest = options_;
  if (std::optional<client::SharedCall> call = sharing_->calls.Begin(request); call.has_value()) {
    rest.deadline = deadline - absl::Now();
    absl::StatusOr<v1::NormalizeResponse> response = SendShared(rest, *std::move(call));
    if (response.ok() || !client::SharedCall::IsToBeSentInline(response.status())) return response;
  }
  rest.deadline = deadline - absl::Now();
  return SendNormalize(rest, request);
}

absl::StatusOr<v1::NormalizeResponse> Client::SendShared(const ClientOptions& options, client::SharedCall call) {
  auto& stub = *channels_->For(options, call.request().ByteSizeLong()).normalizer;
  absl::StatusOr<v1::NormalizeResponse> response = RunUnary<v1::NormalizeResponse>(
      channels_->Terms(options, call.request().session()), client::IsSafeToRetry(call.request()),
      [&](grpc::ClientContext* context, auto* message) {
        grpc::Status status = stub.Normalize(context, call.request(), message);
        call.Note(client::FromGrpc(status));
        return status;
      });
  if (response.ok()) {
    call.TakeResults(&*response);
    sharing_->answered.fetch_add(1, std::memory_order_relaxed);
  }
  sharing_->calls.End(std::move(call));
  return response;
}

absl::StatusOr<v1::NormalizeResponse> Client::Normalize(v1::NormalizeRequest&& request) {
  if (options_.shared_memory) return Normalize(static_cast<const v1::NormalizeRequest&>(request));
  const auto owned = std::make_shared<const v1::NormalizeRequest>(std::move(request));
  const size_t request_bytes = owned->ByteSizeLong();
  if (MustGoInChunks(request_bytes)) return NormalizeChunked(*owned);
  const grpc::ByteBuffer slices = client::ToSlices(owned);
  Channels::Connection& connection = channels_->For(options_, request_bytes);
  return RunUnary<v1::NormalizeResponse>(
      channels_->Terms(options_, owned->session()), client::IsSafeToRetry(*owned),
      [&](grpc::ClientContext* context, v1::NormalizeResponse* response) {
        client::Announce(options_, request_bytes, context);
        return grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, v1::NormalizeResponse>(
            connection.channel.get(), connection.normalize_method, context, slices, response);
      });
}

absl::StatusOr<v1::NormalizeResponse> Client::SendNormalize(const ClientOptions& options,
                                                            const v1::NormalizeRequest& request) {
  const size_t request_bytes = request.ByteSizeLong();
  if (MustGoInChunks(request_bytes)) return NormalizeChunked(request);
  auto& stub = *channels_->For(options, request_bytes).normalizer;
  return RunUnary<v1::NormalizeResponse>(channels_->Terms(options, request.session()), client::IsSafeToRetry(request),
                                         [&](grpc::ClientContext* context, auto* response) {
                                           client::Announce(options, request_bytes, context);
                                           return stub.Normalize(context, request, response);
                                         });
}

bool Client::MustGoInChunks(size_t request_bytes) {
  if (static_cast<int64_t>(request_bytes) < std::min(options_.large_message_bytes, kUnaskedBytes)) return false;
  if (static_cast<int64_t>(request_bytes) <= kUnaskedBytes && !KnownLimits().has_value()) return false;
  // If the server does not tell its limits, the message is sent; the server takes or refuses it.
  const absl::StatusOr<v1::Limits> limits = GetLimits();
  const bool fits = !limits.ok() || static_cast<int64_t>(request_bytes) <= limits->max_message_bytes();
  return !fits && limits->max_tensor_bytes() > 0;
}

absl::StatusOr<client::Tensor> Client::NormalizeTensor(const v1::NormSpec& spec, client::Tensor x,
                                                       const v1::Parameters& parameters) {
  v1::NormalizeRequest request;
  *request.mutable_spec() = spec;
  *request.mutable_parameters() = parameters;
  *request.mutable_x() = std::move(x).ToProto();
  absl::StatusOr<v1::NormalizeResponse> response = Normalize(std::move(request));
  if (!response.ok()) return response.status();
  if (response->outputs_size() != 1 || response->outputs(0).kind() != v1::OUTPUT_KIND_Y) {
    return absl::InternalError("the server's reply does not hold exactly y");
  }
  return client::Tensor::FromProto(std::move(*response->mutable_outputs(0)->mutable_tensor()));
}

absl::StatusOr<v1::BatchNormalizeResponse> Client::BatchNormalize(const v1::BatchNormalizeRequest& request) {
  const size_t request_bytes = request.ByteSizeLong();
  auto& stub = *channels_->For(options_, request_bytes).normalizer;
  return RunUnary<v1::BatchNormalizeResponse>(channels_->Terms(options_), client::IsSafeToRetry(request),
                                              [&](grpc::ClientContext* context, auto* response) {
                                                client::Announce(options_, request_bytes, context);
                                                return stub.BatchNormalize(context, request, response);
                                              });
}

absl::StatusOr<v1::ComputeMomentsResponse> Client::ComputeMoments(const v1::ComputeMomentsRequest& request) {
  auto& stub = *channels_->For(options_, request.ByteSizeLong()).normalizer;
  return RunUnary<v1::ComputeMomentsResponse>(
      channels_->Terms(options_), true,
      [&](grpc::ClientContext* context, auto* response) { return stub.ComputeMoments(context, request, response); });
}

absl::StatusOr<v1::DescribeResponse> Client::Describe() {
  absl::StatusOr<v1::DescribeResponse> describe = RunUnary<v1::DescribeResponse>(
      channels_->Terms(options_), true, [&](grpc::ClientContext* context, auto* response) {
        return channels_->small.normalizer->Describe(context, v1::DescribeRequest(), response);
      });
  if (describe.ok()) {
    const std::lock_guard<std::mutex> lock(channels_->mu);
    channels_->limits = describe->limits();
  }
  return describe;
}

std::unique_ptr<NormalizeStream> Client::OpenStream(absl::Duration deadline) {
  auto call = std::make_unique<NormalizeStream::Call>();
  call->callee = channels_->callee;
  client::PrepareContext(absl::Now() + deadline, *channels_->credentials, &call->context);
  call->stream = channels_->large.normalizer->NormalizeStream(&call->context);
  return std::unique_ptr<NormalizeStream>(new NormalizeStream(std::move(call)));
}

absl::StatusOr<Health> Client::CheckHealth() {
  using Reply = grpc::health::v1::HealthCheckResponse;
  const absl::StatusOr<Reply> reply =
      RunUnary<Reply>(channels_->Terms(options_), false, [&](grpc::ClientContext* context, auto* response) {
        return channels_->small.health->Check(context, grpc::health::v1::HealthCheckRequest(), response);
      });
  if (!reply.ok()) return reply.status();
  if (reply->status() == Reply::SERVING) return Health::kServing;
  return reply->status() == Reply::NOT_SERVING ? Health::kNotServing : Health::kUnknown;
}

}  // namespace normd
