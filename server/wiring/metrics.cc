#include "server/wiring/metrics.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "server/base/error_reasons.h"
#include "server/base/tenant_name.h"
#include "server/session/session_key.h"

namespace normd {
namespace {

// The number of status codes that a call can end with. absl's numbers of the codes serve as indices, OK being 0.
constexpr int kCodes = 17;
constexpr int64_t kMostSamples = int64_t{1} << 53;  // doubles, in which Prometheus counts, are whole up to here

std::vector<std::string> CodeNames() {
  std::vector<std::string> names;
  names.reserve(kCodes);
  for (int code = 0; code < kCodes; ++code) {
    names.push_back(absl::StatusCodeToString(static_cast<absl::StatusCode>(code)));
  }
  return names;
}

std::vector<std::string> WithLast(std::vector<std::string> list, std::string last) {
  list.push_back(std::move(last));
  return list;
}

// The index of `value` in `list`, or of the last entry, which stands for all other values.
int IndexIn(const std::vector<std::string>& list, std::string_view value) {
  const auto it = std::find(list.begin(), list.end() - 1, value);
  return static_cast<int>(it - list.begin());
}

std::vector<std::string> ReasonNames() {
  std::vector<std::string> names;
  for (const std::span<const ReasonRow> rows : {std::span<const ReasonRow>(kKernelReasons), {kServerReasons}}) {
    for (const ReasonRow& row : rows) names.emplace_back(row.name);
  }
  return names;
}

Label OneValue(std::string_view name, const std::string& value) { return Label(name, std::vector<std::string>{value}); }

}  // namespace

std::vector<MetricInfo> AllMetrics() { return Metrics(MetricsOptions()).list(); }

std::string MetricsMarkdown() { return MarkdownTable(AllMetrics()); }

Metrics::Metrics(const MetricsOptions& options)
    : method_("method", WithLast(options.methods, "other")),
      norm_("norm", WithLast(options.norms, "none")),
      code_("code", CodeNames()),
      reason_("reason", WithLast(ReasonNames(), "other")),
      build_({OneValue("version", options.version), OneValue("numerics", options.numerics),
              OneValue("isa", options.isa)}) {
  build_info_.Set(0, 1);
  // Each method has one request counter from the start, so that rates over a fresh server are 0 and not absent. A
  // histogram has 28 lines, so only one method's exists from the start.
  const size_t no_norm = norm_.values.size() - 1;
  for (size_t method = 0; method < method_.values.size(); ++method)
    requests_.Show(method, no_norm, absl::StatusCode::kOk);
  for (const Transport transport : {Transport::kTcp, Transport::kTls, Transport::kUnix}) {
    transport_requests_.Show(transport, Protocol::kGrpc);
  }
  durations_.Show(0, Phase::kTotal);
}

SessionDrifts::Labels Metrics::LabelsOfSession(std::string_view key) {
  return {.tenant = TenantLabel(TenantOf(key)), .session = IdOf(key)};
}

// Three a decade from 1 us to 100 s: a phase of a small call takes microseconds, and a call with 256 MiB takes about a
// second.
Buckets Metrics::DurationBuckets() {
  Buckets buckets = {.bounds = {}, .units = 1e9};
  for (int64_t decade = 1'000; decade < 100'000'000'000; decade *= 10) {
    for (const int64_t step : {1, 2, 5}) buckets.bounds.push_back(step * decade);
  }
  buckets.bounds.push_back(100'000'000'000);
  return buckets;
}

Buckets Metrics::ItemBuckets() { return {.bounds = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096}}; }

int Metrics::MethodIndex(std::string_view method) const { return IndexIn(method_.values, method); }
int Metrics::NormIndex(std::string_view norm) const { return IndexIn(norm_.values, norm); }

void Metrics::CountContribution(double samples) {
  contributions_.Add(1);
  // A caller may claim 1e18 samples ten times, which is more than 64 bits hold.
  const int64_t room = std::max<int64_t>(kMostSamples - samples_.Total(), 0);
  samples_.Add(samples < static_cast<double>(room) ? std::llround(samples) : room);
}

void Metrics::CountRequest(int method, int norm, absl::StatusCode code) {
  requests_.Add(1, method, norm, static_cast<int>(code) < kCodes ? code : absl::StatusCode::kUnknown);
}

void Metrics::CountRefusal(std::string_view reason) { refusals_.Add(1, IndexIn(reason_.values, reason)); }

void Metrics::SetStats(const Stats& stats) {
  for (StatMetrics* metrics : {&backend_stats_, &store_stats_, &listener_stats_, &process_stats_}) metrics->Set(stats);
  tenant_sessions_.Set(stats.tenants.sessions);
  tenant_session_bytes_.Set(stats.tenants.session_bytes);
  tenant_in_flight_bytes_.Set(stats.tenants.in_flight_bytes);
  tenant_refusals_.Set(stats.tenants.refusals);
}

}  // namespace normd
