// Reports of single requests, beside the metrics of all: spans for a collector, lines about slow requests, and the
// explanation that a caller asks for.
// In the path: beside it. The observer of rpc (telemetry.h) asks at a call's headers whether to trace it, and reports
// each request when its reply was written.
// Threads: safe from any thread.
#ifndef NORMD_SERVER_WIRING_TRACING_H_
#define NORMD_SERVER_WIRING_TRACING_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/obs/log.h"
#include "server/options/config.h"
#include "server/rpc/edge/observer.h"
#include "server/traces/span_exporter.h"

namespace normd {

// The fields that every line about a request has.
LogFields FieldsOfRequest(const RequestRecord& record);

// A JSON object: what was done for the request by which kernel, and how long each phase took, in microseconds. The
// writing of the reply is still to come then.
std::string ExplainRequest(const RequestRecord& record);

class Tracing {
 public:
  // Opens an exporter if --trace_endpoint names a collector, which need not be there yet. Borrows `log` and `clock`,
  // which must outlive the result. An error names --trace_ca, the only file that is read.
  static absl::StatusOr<std::unique_ptr<Tracing>> Open(const Config& config, Log* log, Clock* clock);

  // Takes the options that may change while the server serves.
  void Reload(const Config& config);

  // Whether traces go anywhere.
  bool exports() const { return exporter_ != nullptr; }
  // Whether to trace a call whose caller has not decided.
  bool Sample() const;

  // Takes the request, whose reply was written or never will be.
  void Written(const RequestRecord& record);

  SpanExporterStats stats() const { return exporter_ == nullptr ? SpanExporterStats() : exporter_->stats(); }

 private:
  Tracing(const Config& config, Log* log, Clock* clock);

  Clock* const clock_;
  Log slow_log_;  // apart from the server's log, so that slow requests do not use up the rate of its warnings
  std::atomic<uint64_t> sample_below_{0};    // a random number below it means yes
  std::atomic<int64_t> slow_ns_{INT64_MAX};  // requests that take longer are slow
  std::unique_ptr<SpanExporter> exporter_;   // null: no collector
};

}  // namespace normd

#endif  // NORMD_SERVER_WIRING_TRACING_H_
