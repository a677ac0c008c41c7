#include "server/metrics.h"

#include <algorithm>

namespace normd {
namespace {

// The number of status codes that a call can end with. absl's numbers of the codes serve as indices, OK being 0.
constexpr int kCodes = 17;

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

Label OneValue(std::string_view name, const std::string& value) { return Label(name, std::vector<std::string>{value}); }

}  // namespace

std::vector<MetricInfo> AllMetrics() { return Metrics(MetricsOptions()).list(); }

std::string MetricsMarkdown() { return MarkdownTable(AllMetrics()); }

Metrics::Metrics(const MetricsOptions& options)
    : method_("method", WithLast(options.methods, "other")),
      norm_("norm", WithLast(options.norms, "none")),
      code_("code", CodeNames()),
      build_({OneValue("version", options.version), OneValue("numerics", options.numerics),
              OneValue("isa", options.isa)}) {
  build_info_.At(0, 0, 0).Set(1);
  // Each method has one request counter from the start, so that rates over a fresh server are 0 and not absent. A
  // histogram has 20 lines, so only one method's exists from the start.
  const size_t no_norm = norm_.values.size() - 1;
  for (size_t method = 0; method < method_.values.size(); ++method)
    requests_.At(method, no_norm, absl::StatusCode::kOk);
  durations_.At(0, Phase::kTotal);
}

// From 10 us to 10 s: a small call takes tens of microseconds, and a call with 256 MiB takes about a second.
std::vector<double> Metrics::DurationBuckets() {
  return {1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};
}

std::vector<double> Metrics::ItemBuckets() { return {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096}; }

int Metrics::MethodIndex(std::string_view method) const { return IndexIn(method_.values, method); }
int Metrics::NormIndex(std::string_view norm) const { return IndexIn(norm_.values, norm); }

void Metrics::CountRequest(int method, int norm, absl::StatusCode code) {
  requests_.At(method, norm, static_cast<int>(code) < kCodes ? code : absl::StatusCode::kUnknown).Increment();
}

std::vector<std::pair<std::string, uint64_t>> Metrics::RequestsByMethod() const {
  std::vector<std::pair<std::string, uint64_t>> result;
  for (size_t method = 0; method < method_.values.size(); ++method) {
    double sum = 0;
    for (size_t norm = 0; norm < norm_.values.size(); ++norm) {
      for (int code = 0; code < kCodes; ++code) {
        const auto* counter = requests_.Find(method, norm, code);
        if (counter != nullptr) sum += counter->Value();
      }
    }
    if (sum > 0) result.emplace_back(method_.values[method], static_cast<uint64_t>(sum));
  }
  return result;
}

void Metrics::SetStats(const Stats& stats) {
  MutexLock lock(stats_mu_);
  for (StatMetrics* metrics : {&store_stats_, &listener_stats_, &process_stats_}) metrics->Set(stats);
}

}  // namespace normd
