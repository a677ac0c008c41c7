// Sends spans to an OpenTelemetry collector: OTLP over gRPC, in batches, from a thread of its own.
// In the path: beside it. A request leaves its span here when its reply was written, if its trace is recorded.
// Nothing waits for the collector: while it is away or slow, spans fill a bounded queue, and are dropped and counted
// beyond it.
// Threads: Add and stats are safe from any thread.
#ifndef NORMD_SERVER_TRACES_SPAN_EXPORTER_H_
#define NORMD_SERVER_TRACES_SPAN_EXPORTER_H_

#include <grpcpp/channel.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/wire/http_proxy.h"
#include "server/base/mutex.h"
#include "server/traces/span.h"

namespace normd {

// Where a collector listens.
struct CollectorAddress {
  std::string target;  // "collector:4317"
  bool tls = false;
};

// Parses "http://host[:port]" (plain text) or "https://host[:port]" (TLS); the port is 4317 if it is not given. The
// error is INVALID_ARGUMENT and names the option.
absl::StatusOr<CollectorAddress> ParseCollectorAddress(std::string_view option, const std::string& url);

struct SpanExporterOptions {
  CollectorAddress collector;
  std::string roots;  // PEM text of the CAs that may have signed the collector's certificate; empty: the system's
  std::vector<std::pair<std::string, std::string>> resource;  // who sends: {"service.name", "normd"}, ...
  size_t max_queue = 8192;                                    // spans that wait
  size_t max_batch = 512;                                     // spans in one message
  absl::Duration interval = absl::Seconds(1);                 // how long a span may wait for more
  absl::Duration timeout = absl::Seconds(5);                  // of one export
  int attempts = 3;                                 // of one batch, `interval` apart, as long as its error may pass
  absl::Duration flush_timeout = absl::Seconds(2);  // for waiting spans when the exporter ends
  // Runs when spans are lost after others were taken, and not again until some are taken; on the exporter's thread.
  std::function<void(const absl::Status& why, int64_t spans)> on_lost;
};

struct SpanExporterStats {
  int64_t exported = 0;
  int64_t dropped = 0;  // for want of room, or given up, or refused by the collector
};

class SpanExporter {
 public:
  explicit SpanExporter(SpanExporterOptions options);
  // Sends the spans that are under way or waiting, for flush_timeout at most.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Takes the span, or drops it if the queue is full. Does not block.
  void Add(FinishedSpan span);

  SpanExporterStats stats() const {
    return {exported_.load(std::memory_order_relaxed), dropped_.load(std::memory_order_relaxed)};
  }

 private:
  void Run();
  // Waits for spans, and takes at most one batch of them; returns none when the exporter ends and nothing is left.
  std::vector<FinishedSpan> TakeBatch();
  void Export(std::vector<FinishedSpan> batch);
  // Until when the exporter may send, by SteadyNow; InfiniteFuture until its destructor runs.
  absl::Time EndBy();
  // One attempt, which ends after `timeout`, or at EndBy if that comes before.
  absl::Status Send(const std::string& message, absl::Duration timeout, int64_t* rejected);
  // Waits for `pause`; returns false when the exporter ends meanwhile.
  bool Pause(absl::Duration pause);

  const SpanExporterOptions options_;
  const std::optional<wire::HttpProxy> proxy_;  // between here and the collector; never to one on this machine
  const std::shared_ptr<grpc::Channel> channel_;
  bool losing_ = false;  // whether the last batch was lost; used by the exporter's thread
  std::atomic<int64_t> exported_{0}, dropped_{0};
  Mutex mu_;
  CondVar changed_;
  std::deque<FinishedSpan> waiting_ ABSL_GUARDED_BY(mu_);            // taking a batch moves none of the others
  absl::Time end_by_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();  // by SteadyNow; set when the exporter ends
  std::thread thread_;
};

}  // namespace normd

#endif  // NORMD_SERVER_TRACES_SPAN_EXPORTER_H_
