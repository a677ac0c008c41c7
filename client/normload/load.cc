#include "client/normload/load.h"

#include <atomic>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace normd::client {
namespace {

// What workers share: when to stop, and how many calls are left.
struct Pace {
  absl::Time measure_from;
  absl::Time stop_at;
  std::atomic<int64_t> calls_left;

  bool TakeCall() { return absl::Now() < stop_at && calls_left.fetch_sub(1, std::memory_order_relaxed) > 0; }
};

int64_t TensorBytes(const v1::NormalizeRequest& request) {
  return static_cast<int64_t>(request.x().data().size() + request.residual().tensor().data().size());
}

int64_t TensorBytes(const v1::NormalizeResponse& response) {
  int64_t bytes = 0;
  for (const v1::Output& output : response.outputs()) bytes += static_cast<int64_t>(output.tensor().data().size());
  return bytes;
}

// One call of one transport: the next reply's status, with what was normalised added to `result`.
class Caller {
 public:
  Caller(const LoadOptions& options, Client& client) : options_(options), client_(client) {
    if (options.transport == Transport::kBatch) {
      for (int i = 0; i < options.batch_items; ++i) *batch_.add_items() = options.request;
    }
    if (options.transport == Transport::kStream) *message_.mutable_call() = options.request;
  }

  absl::Status Call(LoadResult& result) {
    switch (options_.transport) {
      case Transport::kBatch:
        return CallBatch(result);
      case Transport::kStream:
        return CallStream(result);
      default:
        return CallUnary(result);
    }
  }

 private:
  void Count(const v1::NormalizeResponse& response, LoadResult& result) const {
    ++result.items;
    result.bytes_sent += TensorBytes(options_.request);
    result.bytes_received += TensorBytes(response);
    if (result.applied.kernel().empty()) result.applied = response.applied();
  }

  absl::Status CallUnary(LoadResult& result) {
    const absl::StatusOr<v1::NormalizeResponse> response = client_.Normalize(options_.request);
    if (response.ok()) Count(*response, result);
    return response.status();
  }

  // A call whose items failed is a failed call.
  absl::Status CallBatch(LoadResult& result) {
    const absl::StatusOr<v1::BatchNormalizeResponse> response = client_.BatchNormalize(batch_);
    if (!response.ok()) return response.status();
    for (const v1::BatchItemResult& item : response->items()) {
      if (absl::Status status = ToStatus(item.status()); !status.ok()) return status;
    }
    for (const v1::BatchItemResult& item : response->items()) Count(item.response(), result);
    return absl::OkStatus();
  }

  absl::Status CallStream(LoadResult& result) {
    if (stream_ == nullptr) stream_ = client_.OpenStream();
    message_.set_sequence(message_.sequence() + 1);
    v1::StreamResponse response;
    if (!stream_->Write(message_) || !stream_->Read(&response)) {
      const absl::Status status = stream_->Finish();
      stream_ = nullptr;
      return status.ok() ? absl::UnavailableError("the server ended the stream") : status;
    }
    if (response.has_error()) return ToStatus(response.error());
    Count(response.reply(), result);
    return absl::OkStatus();
  }

  const LoadOptions& options_;
  Client& client_;
  v1::BatchNormalizeRequest batch_;
  v1::StreamRequest message_;
  std::unique_ptr<NormalizeStream> stream_;
};

void Work(const LoadOptions& options, Client& client, Pace& pace, LoadResult& result) {
  Caller caller(options, client);
  LoadResult warm;  // thrown away
  while (absl::Now() < pace.measure_from) {
    if (!caller.Call(warm).ok()) absl::SleepFor(absl::Milliseconds(10));
  }
  while (pace.TakeCall()) {
    const absl::Time start = absl::Now();
    const absl::Status status = caller.Call(result);
    if (status.ok()) {
      result.latency.Record(absl::ToInt64Nanoseconds(absl::Now() - start));
      continue;
    }
    ++result.errors[absl::StatusCodeToString(status.code())];
    if (result.first_error.empty()) result.first_error = std::string(status.message());
    absl::SleepFor(absl::Milliseconds(1));  // a refused closed loop must not spin
  }
}

void Merge(const LoadResult& from, LoadResult& to) {
  to.latency.Merge(from.latency);
  for (const auto& [code, count] : from.errors) to.errors[code] += count;
  if (to.first_error.empty()) to.first_error = from.first_error;
  to.items += from.items;
  to.bytes_sent += from.bytes_sent;
  to.bytes_received += from.bytes_received;
  if (to.applied.kernel().empty()) to.applied = from.applied;
}

absl::StatusOr<std::vector<std::unique_ptr<Client>>> ConnectAll(const LoadOptions& options) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < options.connections; ++i) {
    ClientOptions client_options;
    client_options.deadline = options.deadline;
    client_options.retry.max_attempts = 1;  // a load generator counts failures, it does not hide them
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(options.server, client_options);
    if (!client.ok()) return client.status();
    // One call on each, so that no connection is made while time is taken and mistakes are told at once.
    const absl::StatusOr<v1::NormalizeResponse> first = (*client)->Normalize(options.request);
    if (!first.ok()) return first.status();
    clients.push_back(*std::move(client));
  }
  return clients;
}

}  // namespace

bool IsLocal(const std::string& target) {
  if (absl::StartsWith(target, "unix:")) return true;
  std::string host = target.substr(0, target.rfind(':'));
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) host = host.substr(1, host.size() - 2);
  // "127." alone would also begin "127.example.org": only digits and dots make an address.
  const bool loopback = absl::StartsWith(host, "127.") && host.find_first_not_of("0123456789.") == std::string::npos;
  return loopback || host == "localhost" || host == "::1";
}

absl::StatusOr<LoadResult> RunLoad(const LoadOptions& options) {
  const absl::StatusOr<std::vector<std::unique_ptr<Client>>> clients = ConnectAll(options);
  if (!clients.ok()) return clients.status();
  Pace pace;
  pace.measure_from = absl::Now() + options.warmup;
  pace.stop_at = pace.measure_from + options.duration;
  pace.calls_left = options.requests > 0 ? options.requests : std::numeric_limits<int64_t>::max();
  std::vector<LoadResult> results(static_cast<size_t>(options.concurrency));
  std::vector<std::thread> workers;
  for (int i = 0; i < options.concurrency; ++i) {
    Client& client = *(*clients)[static_cast<size_t>(i % options.connections)];
    workers.emplace_back(
        [&options, &client, &pace, &result = results[static_cast<size_t>(i)]] { Work(options, client, pace, result); });
  }
  for (std::thread& worker : workers) worker.join();
  LoadResult all;
  all.elapsed = absl::Now() - pace.measure_from;
  for (const LoadResult& result : results) Merge(result, all);
  return all;
}

}  // namespace normd::client
